"""Records whose properties are damaged: an index has a key that the record no longer has.

No checksum covers the properties of a 4.9 record. Such a record is unreadable, unless the index is of another log.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from tests.small import SMALL_16K

_MESSAGES = 60
Damage = Callable[[bytearray, int], None]


def _change_a_key(log: bytearray, number: int) -> None:
    at = log.index(b"KEYS\x01k%02d\x02" % number)
    log[at + 5 : at + 8] = b"zzz"


def _lose_the_name_of_keys(log: bytearray, number: int) -> None:
    at = log.index(b"KEYS\x01k%02d\x02" % number)
    log[at] ^= 0x20


def _lose_a_separator(log: bytearray, number: int) -> None:
    log[log.index(b"KEYS\x01k%02d\x02" % number) + 4] = 0x40


@pytest.fixture(params=["spot-checked", "proven"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=SMALL_16K) as store:
        store.put_many(reput.Message("T", b"x" * 300, keys=[f"k{n:02d}"]) for n in range(_MESSAGES))
    if request.param == "proven":
        reput.prove(path)
    return path


@pytest.mark.parametrize("damage", [_change_a_key, _lose_the_name_of_keys, _lose_a_separator])
@pytest.mark.parametrize("number", [0, 17, _MESSAGES - 1])
def test_a_key_that_its_record_has_lost_is_not_answered_completely(
    store: Path, damage: Damage, number: int
) -> None:
    with reput.open_store(store) as opened:
        offset = opened.query("T", f"k{number:02d}").messages[0].physical_offset
    file = max(f for f in (store / "commitlog").iterdir() if int(f.name) <= offset)
    log = bytearray(file.read_bytes())
    damage(log, number)
    file.write_bytes(log)
    with reput.open_store(store) as opened:
        result = opened.query("T", f"k{number:02d}")
        others = [opened.query("T", f"k{n:02d}") for n in range(_MESSAGES) if n != number]
    assert result.messages == ()
    assert [lost.start for lost in result.coverage.unreadable] == [offset]
    assert all(len(other.messages) == 1 for other in others)
    keys = [("T", f"k{n:02d}") for n in range(_MESSAGES)]
    answer = reput.look_up(store, keys, columns=["keys"]).read_all()
    whole = dict(zip(answer["key"].to_pylist(), answer["is_complete"].to_pylist(), strict=True))
    assert not whole[f"k{number:02d}"]


@pytest.mark.parametrize("number", [0, 17, _MESSAGES - 1])
def test_a_record_that_replaced_the_indexed_record_is_not_damaged(store: Path, number: int) -> None:
    """A broker cuts off a half-written record, and writes another one to its place."""
    with reput.open_store(store) as opened:
        message = opened.query("T", f"k{number:02d}").messages[0]
        at = opened.commit_log.locate(message.physical_offset).layout.store_timestamp_position
    offset = message.physical_offset
    file = max(f for f in (store / "commitlog").iterdir() if int(f.name) <= offset)
    log = bytearray(file.read_bytes())
    _change_a_key(log, number)
    at += offset - int(file.name)
    log[at : at + 8] = (message.store_timestamp + 5_000).to_bytes(8)
    file.write_bytes(log)
    with reput.open_store(store) as opened:
        result = opened.query("T", f"k{number:02d}")
    assert (result.messages, result.is_complete) == ((), True)


def test_an_index_of_another_log_is_only_stale(tmp_path: Path) -> None:
    """Its entries are wrong in a row, so the scanned log decides."""
    paths = [tmp_path / name for name in ("a", "b")]
    for path in paths:
        with reput.open_store(path, mode="rw", config=SMALL_16K) as store:
            store.put_many(
                reput.Message("T", b"x" * 300, keys=[f"{path.name}{n:02d}"])
                for n in range(_MESSAGES)
            )
    shutil.rmtree(paths[0] / "index")
    shutil.copytree(paths[1] / "index", paths[0] / "index")
    with reput.open_store(paths[0]) as store:
        for number in range(_MESSAGES):
            assert len(store.query("T", f"a{number:02d}").messages) == 1
            found = store.query("T", f"b{number:02d}")
            assert (found.messages, found.is_complete) == ((), True)
