"""Tables filtered by a key that a record has lost: its properties are damaged, but an index still has the key."""

from pathlib import Path

import pytest

import reput
from reput.core.log import log_topics
from reput.engine.tables.filters import Condition, dispatched_under
from reput.errors import CorruptMessageError, StoreError
from tests.small import SMALL_16K
from tests.tables.reading import plan

_MESSAGES = 60
_REASON = "an index has a key of it that it lacks"
_COLUMNS = ("physical_offset", "corrupt_reason")


def _write(path: Path, keys: list[str]) -> Path:
    with reput.open_store(path, mode="rw", config=SMALL_16K) as store:
        store.put_many(reput.Message("T", b"x" * 300, keys=key.split()) for key in keys)
    return path


def _lose(store: Path, key: str) -> int:
    """Change a letter of the key in its newest record. Return the record's physical offset."""
    with reput.open_store(store) as opened:
        offset = opened.query("T", key).messages[0].physical_offset
    file = max(f for f in (store / "commitlog").iterdir() if int(f.name) <= offset)
    log = bytearray(file.read_bytes())
    log[log.index(key.encode(), offset - int(file.name))] ^= 1
    file.write_bytes(log)
    return offset


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return _write(tmp_path / "store", [f"k{n:02d}" for n in range(_MESSAGES)])


@pytest.mark.parametrize("topic", ["T", None])
@pytest.mark.parametrize("unwrap_batches", [False, True])
@pytest.mark.parametrize("number", [0, 17, _MESSAGES - 1])
def test_a_record_without_its_key_is_damage(
    store: Path, topic: str | None, unwrap_batches: bool, number: int
) -> None:
    key = f"k{number:02d}"
    offset = _lose(store, key)
    with pytest.raises(CorruptMessageError, match=_REASON):
        reput.dataset(store, topic=topic, key=key, unwrap_batches=unwrap_batches).to_table()
    rows = reput.dataset(
        store, _COLUMNS, topic=topic, key=key, unwrap_batches=unwrap_batches, on_corrupt="row"
    ).to_table()
    assert rows["physical_offset"].to_pylist() == [offset]
    assert _REASON in rows["corrupt_reason"][0].as_py()


@pytest.mark.parametrize("key", ["c00", f"a{_MESSAGES - 1}"])
def test_any_key_of_the_first_and_the_last_record_of_an_index_is_compared(
    tmp_path: Path, key: str
) -> None:
    """The outermost entry, and the one beside it, have other keys of the record."""
    store = _write(tmp_path / "s", [f"a{n:02d} b{n:02d} c{n:02d}" for n in range(_MESSAGES)])
    _lose(store, key)
    with reput.open_store(store) as opened:
        assert not opened.query("T", key).is_complete


def test_other_messages_are_found_after_the_damage(store: Path) -> None:
    _lose(store, "k17")
    assert len(reput.dataset(store, key="k16", on_corrupt="skip").to_table()) == 1


def test_entries_of_a_frequent_key_are_verified(tmp_path: Path) -> None:
    """The log is scanned for such a key. A scan does not notice that a record has lost the key."""
    keys = [f"k{n}" if n % 7 else "often" for n in range(_MESSAGES)]
    store = _write(tmp_path / "store", keys)
    of_key = dispatched_under("keys", ("often",))
    assert "too frequent" in plan(store, of_key).notes[0]
    offset = _lose(store, "often")
    assert [one.lost.start for one in plan(store, of_key).missing] == [offset]


def test_only_the_asked_range_is_searched(store: Path) -> None:
    offset = _lose(store, "k17")
    of_key = dispatched_under("keys", ("k17",))
    for first, count in ((offset, 1), (offset + 1, 0)):
        conditions = [*of_key, Condition("physical_offset", ">=", first)]
        assert len(plan(store, conditions).missing) == count


def test_an_erasure_by_a_lost_key_is_refused(store: Path) -> None:
    assert reput.erase(store, keys=["k17"], plan_only=True).messages[0].messages == 1
    offset = _lose(store, "k17")
    with pytest.raises(StoreError, match=rf"{offset:,}.*{_REASON}.*repair the store first"):
        reput.erase(store, keys=["k17"], plan_only=True)


@pytest.mark.parametrize("topics", [(), ("T",)])
def test_sampled_topics_are_said(
    store: Path, topics: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_WALKED_BYTES", "_SCANNED_BYTES"):
        monkeypatch.setattr(log_topics, name, 0)
    of_topic = [Condition("topic", "in", topics)] if topics else []
    notes = plan(store, [*dispatched_under("keys", ("k03",)), *of_topic]).notes
    assert any("spot-checked" in note for note in notes) == (not topics)
