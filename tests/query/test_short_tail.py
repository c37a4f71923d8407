"""Every query reads the log after the index again, even if an earlier query of the same store has read it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import reput
from reput.core.log.record import LocatedRecord
from reput.core.log.walk import LogWalk
from tests.small import SMALL_64K


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with reput.open_store(tmp_path, mode="rw", config=SMALL_64K) as store:
        store.put_many(reput.Message("T", b"x" * 50, keys=["k"]) for _ in range(20))
    return tmp_path


def offsets(store: reput.MessageStore) -> list[int]:
    return [message.physical_offset for message in store.query("T", "k").messages]


def test_a_record_of_the_tail_that_changes_is_seen_by_the_next_query(path: Path) -> None:
    log = path / "commitlog" / f"{0:020d}"
    with reput.open_store(path, config=SMALL_64K) as store:
        before = offsets(store)
        whole, (last, *_) = log.read_bytes(), before
        message = store.get(last)
        for changed in (
            whole.replace(b"KEYS\x01k", b"KEYS\x01z"),
            whole[:last] + bytes(len(whole) - last),
        ):
            log.write_bytes(changed)
            answer = store.query("T", "k")
            found = [one.physical_offset for one in answer.messages]
            assert last not in found
            log.write_bytes(whole)
            assert offsets(store) == before
        assert message.keys == ["k"]


def test_an_unchanged_tail_is_read_but_not_walked_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tail is followed by unwritten bytes, which a walk reads once more to see whether the log has grown."""
    index = path.with_name("index before")
    shutil.copytree(path / "index", index)
    with reput.open_store(path, mode="rw", config=SMALL_64K) as owner:
        owner.put(reput.Message("T", b"x", keys=["k"]))
    shutil.rmtree(path / "index")
    index.rename(path / "index")
    with reput.open_store(path, config=SMALL_64K) as store:
        before, walks = offsets(store), []
        assert len(before) == 21

        class Counted(LogWalk):
            def __iter__(self) -> Iterator[LocatedRecord]:
                walks.append(self.position)
                return super().__iter__()

        monkeypatch.setattr("reput.core.index.plan.LogWalk", Counted)
        assert offsets(store) == before
        assert walks == []


def test_a_cursor_in_the_tail_leaves_out_what_is_newer(path: Path) -> None:
    (path / "index").rename(path / "away")
    with reput.open_store(path, config=SMALL_64K) as store:
        newest = offsets(store)
        assert len(newest) == 20
        for place, offset in enumerate(newest):
            rest = store.query("T", "k", after=offset)
            assert [one.physical_offset for one in rest.messages] == newest[place + 1 :]
            assert rest.is_complete
            assert rest.coverage.log.stop == offset


def test_messages_after_the_index_are_found_newest_first(path: Path) -> None:
    index = path.with_name("index before")
    shutil.copytree(path / "index", index)
    with reput.open_store(path, mode="rw", config=SMALL_64K) as store:
        store.put_many(reput.Message("T", b"x" * 50, keys=["k"]) for _ in range(3))
    with reput.open_store(path, config=SMALL_64K) as store:
        whole = offsets(store)
    assert len(whole) == 23
    assert whole == sorted(whole, reverse=True)
    shutil.rmtree(path / "index")
    index.rename(path / "index")
    with reput.open_store(path, config=SMALL_64K) as store:
        for _ in range(2):
            assert offsets(store) == whole
