"""A log that grows while it is read: its end moves, and what is broken in it is still told from its end."""

from dataclasses import replace
from pathlib import Path

import pytest

from reput.format.commit_log import encode
from reput.store import log_walk
from reput.store.commit_log import CommitLog
from reput.store.log_walk import LogWalk
from tests.cli.small_store import MESSAGE, write_store


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
    store = write_store(tmp_path, [MESSAGE])
    log = CommitLog(store)
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
    store = write_store(tmp_path, [MESSAGE])
    log = CommitLog(store)
    first = LogWalk(log, 0)
    assert len(list(first)) == 1
    broken = first.position
    sound = append(store, broken, b"\0\0\1\0" + b"?" * 252)
    append(store, sound, record(sound))
    walk = LogWalk(log, broken)
    assert list(walk) == []
    (damage,) = walk.damage
    assert (damage.physical_offset, walk.position) == (broken, log.files_end)
