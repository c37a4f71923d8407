"""A log that grows while it is read: its end moves, and damage is distinguished from the end."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.core.log import walk as log_walk
from reput.core.log.files import find_record
from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import StoreLog
from reput.core.log.walk import LogWalk
from reput.format.commit_log import encode
from reput.io.reader import FileReader
from reput.testing.builders import MESSAGE, write_log


def append(path: Path, at: int, data: bytes) -> int:
    with next((path / "commitlog").iterdir()).open("r+b") as file:
        file.seek(at)
        file.write(data)
    return at + len(data)


def record(at: int) -> bytes:
    return encode(replace(MESSAGE, physical_offset=at))


def test_the_file_behind_an_end_is_searched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write_log(tmp_path, [MESSAGE])
    log = CommitLogReader(StoreLog(store))
    first = LogWalk(log, 0)
    end = sum(found.layout.total_bytes for found in first)
    assert (first.at_end, first.position) == (True, end)

    def search(*args: object) -> None:
        raise AssertionError("searched again")

    monkeypatch.setattr(log_walk, "find_record", search)
    for _ in range(3):
        grown = append(store, end, record(end))
        walk = LogWalk(log, end)
        assert [found.physical_offset for found in walk] == [end]
        assert (walk.at_end, walk.position, walk.damage) == (True, grown, [])
        end = grown


def test_what_is_broken_behind_an_end_seen_before_is_damage(tmp_path: Path) -> None:
    store = write_log(tmp_path, [MESSAGE])
    log = CommitLogReader(StoreLog(store))
    first = LogWalk(log, 0)
    assert len(list(first)) == 1
    broken = first.position
    sound = append(store, broken, b"\0\0\1\0" + b"?" * 252)
    append(store, sound, record(sound))
    walk = LogWalk(log, broken)
    assert list(walk) == []
    (damage,) = walk.damage
    assert (damage.physical_offset, walk.position) == (broken, log.files_end)


@pytest.mark.parametrize("more", [1, 2, 5])
def test_records_that_are_written_while_it_is_decided_where_the_log_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    store = write_log(tmp_path, [MESSAGE])
    log = CommitLogReader(StoreLog(store))
    found = len(encode(MESSAGE))
    ends = [found]
    real, is_done = find_record, False

    def search(*args: Any) -> int | None:
        nonlocal is_done
        for _ in range(0 if is_done else more):
            ends.append(append(store, ends[-1], record(ends[-1])))
        is_done = True
        return real(*args)

    monkeypatch.setattr(log_walk, "find_record", search)
    walk = LogWalk(log, 0)
    offsets = [at.physical_offset for at in walk]
    assert (walk.damage, walk.at_end) == ([], True)
    # A single new record does not prove that the log continues at its place, where the log ended a moment ago.
    assert offsets == [0, *(ends[:-1] if more > 1 else [])]
    assert [at.physical_offset for at in LogWalk(log, 0)] == [0, *ends[:-1]]


def test_looking_for_the_end_does_not_fill_the_space_taken_ahead(tmp_path: Path) -> None:
    size = 64 << 20
    with reput.open_store(
        tmp_path, mode="rw", config=reput.StoreConfig(commit_log_file_bytes=size)
    ) as store:
        store.put(reput.Message("T", b"x", keys=["k"]))
    (path,) = (tmp_path / "commitlog").iterdir()
    with FileReader(str(path)) as reader:
        if reader.next_run(32 << 20) is not None:
            pytest.skip("a file system that does not report its holes")
    for _ in range(2):
        with reput.open_store(tmp_path) as store:
            assert len(store.query("T", "k").messages) == 1
        with FileReader(str(path)) as reader:
            assert reader.next_run(32 << 20) is None
