"""Scans for other purposes remember the facts about log files that a scan for a question would find."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import reput
from reput.files import stamps
from reput.log import known_ranges, log_topics
from reput.log.known_file import KnownFile, joined
from reput.log.known_ranges import KnownRanges
from reput.log.reader import CommitLogReader
from reput.log.sources import StoreLog
from reput.pipeline.driver import rebuild_store
from reput.tasks import SerialRunner
from reput.verify.check import check_store
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


@pytest.fixture
def store(golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a store whose files are on a file system that reports changes, and long enough to be remembered."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(stamps, "_REPORTING", frozenset([*stamps._REPORTING, "tmpfs", "overlay"]))
    monkeypatch.setattr(known_ranges, "_LEAST_RANGE_BYTES", 1)
    monkeypatch.setattr(known_ranges, "_LEAST_GROWTH_BYTES", 1)
    path = tmp_path / "store"
    copy_store(golden("basic").path, path)
    return path


def rebuild(store: Path) -> None:
    rebuild_store(SerialRunner(), store, output=store.parent / "output", split_size=20_000)


def check(store: Path) -> None:
    assert not list(check_store(store, runner=SerialRunner()))


def check_without_queues(store: Path) -> None:
    """Check a store in a slow pass, which explains missing files."""
    (store / "consumequeue").rename(store.parent / "away")
    assert list(check_store(store, runner=SerialRunner()))


@pytest.mark.parametrize("scan", [rebuild, check, check_without_queues])
def test_facts_are_those_of_a_scan(
    store: Path, scan: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan(store)
    with closing(CommitLogReader(StoreLog(str(store)))) as log:
        found = [KnownRanges(log).known(file) for file in log.files]
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
        fresh = KnownRanges(log)
        assert list(map(facts, found)) == [
            facts(fresh.learn(file, with_queues=True)) for file in log.files
        ]


@pytest.mark.parametrize("scan", [rebuild, check])
def test_a_search_in_all_topics_need_not_read_the_log(
    store: Path, scan: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    scan(store)
    monkeypatch.setattr(KnownRanges, "learn", lambda *_, **__: pytest.fail("scanned"))
    monkeypatch.setattr(log_topics, "_MOST_READ", 0)
    with reput.open_store(store) as opened:
        found = opened.query(None, "K25")
    assert len(found) == 19
    assert found.notes == ()


@pytest.mark.parametrize("scan", [rebuild, check_without_queues])
def test_a_damaged_file_is_not_remembered(store: Path, scan: Callable[[Path], None]) -> None:
    with closing(CommitLogReader(StoreLog(str(store)))) as log:
        file = log.files[1]
        with open(file.path, "r+b") as damaged:
            damaged.seek(file.size // 2)
            damaged.write(bytes(300))
        scan(store)
        known = KnownRanges(log)
        assert known.known(file) is None
        assert known.known(log.files[0]) is not None


def facts(known: KnownFile | None) -> object:
    assert known is not None
    assert known.queues is not None
    times = joined(known.pieces)
    return known.start, known.stop, times, sorted(known.queues), bool(known.stamp)
