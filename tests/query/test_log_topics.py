"""All topics are the topics of the log, whether they have a folder in consumequeue/ or not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from benchmarks import topics
from reput.core.log import log_topics
from reput.core.log.files import CommitLogFile
from reput.core.log.reader import CommitLogReader
from reput.io import stamps
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
KEY, UNIQUE_KEY = "K25", "56322B25E43DCB5F1DC60FCB378D3F2D"


@pytest.fixture(params=["TopicA", "."])
def store(golden: Golden, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return a store without the queues of one topic, or without any queue. Its index has all keys."""
    path = tmp_path / "store"
    copy_store(golden("basic").path, path)
    shutil.rmtree(path / "consumequeue" / request.param)
    return path


def test_a_key_is_found_in_topics_without_queues(store: Path) -> None:
    with reput.open_store(store) as opened:
        found = opened.query(None, KEY)
        assert len(found) == 19
        assert found.is_complete
        assert found.notes == ()
        assert opened.find_by_id(UNIQUE_KEY).messages[0].topic == "TopicA"
    assert len(reput.find([store], KEY)) == 19


def test_topics_are_sampled_in_a_long_log(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_topics, "_WALKED_BYTES", 0)
    monkeypatch.setattr(log_topics, "_SCANNED_BYTES", 0)
    with reput.open_store(store) as opened:
        found = opened.query(None, KEY)
        assert len(found) == 19
        assert found.is_complete
        assert "spot-checked" in found.notes[-1]
        assert opened.query("TopicA", KEY).notes == ()


def test_a_scan_knows_the_queues_of_each_file(golden: Golden) -> None:
    store = golden("basic")
    with reput.open_store(store.path) as opened:
        for file in opened.commit_log.files:
            expected: dict[tuple[str, int], list[int]] = {}
            for row in store.messages:
                if file.start <= row.physical_offset < file.end:
                    numbers = expected.setdefault((row.topic, row.queue_id), [])
                    numbers += [row.queue_offset] * (row.sys_flag & 4 == 0)
            queues = opened.known_ranges.learn(file, with_queues=True).queues
            assert queues is not None
            assert {one[:2]: one[2:] for one in queues} == {
                queue: (min(numbers, default=-1), max(numbers, default=-1))
                for queue, numbers in expected.items()
            }


def test_topics_behind_damage_are_found(store: Path) -> None:
    with reput.open_store(store) as opened:
        files = opened.commit_log.files
        names = opened.all_topics()
    for file in files:
        with open(file.path, "r+b") as log:
            log.write(bytes(16))
    with reput.open_store(store) as opened:
        assert opened.all_topics() == names


def test_a_map_has_the_topics_of_all_files(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(stamps, "_REPORTING", frozenset([*stamps._REPORTING, "tmpfs", "overlay"]))
    reput.prove(store)
    monkeypatch.setattr(log_topics, "_WALKED_BYTES", 0)
    monkeypatch.setattr(log_topics, "_SCANNED_BYTES", 0)
    monkeypatch.setattr(log_topics, "_PLACES", 1)
    monkeypatch.setattr(log_topics, "_RECORDS", 0)
    with reput.open_store(store) as opened:
        found = opened.query(None, KEY)
        first = opened.commit_log.files[0]
    assert len(found) == 19
    assert found.is_complete
    assert found.notes == ()
    # A file that has changed is not in the map.
    with open(first.path, "r+b") as log:
        begin = log.read(1)
        log.seek(0)
        log.write(begin)
    with reput.open_store(store) as opened:
        assert "spot-checked" in opened.query(None, KEY).notes[-1]


def test_a_key_in_all_topics_of_hundreds_of_log_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is complete with and without the map of topics, and reads only a few log files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(stamps, "_REPORTING", frozenset([*stamps._REPORTING, "tmpfs", "overlay"]))
    topics.write_log(path := tmp_path / "store", 300)
    read: list[str] = []
    plain = CommitLogReader.read

    def noted(log: CommitLogReader, file: CommitLogFile, at: int, length: int) -> bytes:
        read.append(file.path)
        return plain(log, file, at, length)

    monkeypatch.setattr(CommitLogReader, "read", noted)
    with topics.Trusting(path) as opened:
        found = opened.query(None, "absent")
    assert found.is_complete
    assert "spot-checked" in found.notes[-1]
    assert len(set(read)) < 40
    topics.keep_map(path)
    read.clear()
    with topics.Trusting(path) as opened:
        found = opened.query(None, "absent")
    assert found.is_complete
    assert found.notes == ()
    assert len(set(read)) < 10
