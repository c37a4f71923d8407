"""Scans for other purposes remember the facts about log files that a scan for a question would find."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import reput
from reput.base.tasks import SerialRunner
from reput.core.log import known_ranges, log_topics
from reput.core.log.files import CommitLogFile
from reput.core.log.known_file import KnownFile, TimedPiece
from reput.core.log.known_ranges import KnownRanges
from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import StoreLog
from reput.engine.check.run import check_store
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.writer.put.message import Message
from reput.io import stamps
from tests.follow.following import GrowingLog, catch_up, open_follower
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.rebuild.rebuilding import SMALL

Golden = Callable[[str], GoldenStore]


@pytest.fixture
def _kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remember facts about short files, on file systems in memory as well."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(stamps, "_REPORTING", frozenset([*stamps._REPORTING, "tmpfs", "overlay"]))
    monkeypatch.setattr(CommitLogFile, "LEAST_KEPT_BYTES", 1)
    monkeypatch.setattr(known_ranges, "_LEAST_GROWTH_BYTES", 1)


@pytest.fixture
def store(golden: Golden, tmp_path: Path, _kept: None) -> Path:
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
    compare(store, tmp_path, monkeypatch)


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
    times = TimedPiece.joined(known.pieces)
    return known.start, known.stop, times, sorted(known.queues), bool(known.stamp)


@pytest.mark.usefixtures("_kept")
def test_an_owner_remembers_what_it_puts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(SMALL, commit_log_file_bytes=1 << 16)
    path = tmp_path / "store"
    for turn in range(3):
        with reput.open_store(path, mode="rw", config=config) as writable:
            for number in range(90):
                message = Message(f"T{number % 3}", bytes(1000), keys=[f"K{turn}"])
                writable.put(message)
    compare(path, tmp_path, monkeypatch)


def test_a_follower_remembers_complete_files(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = GrowingLog(tmp_path / "grows", [
        (int(path.name), path.read_bytes()) for path in sorted((store / "commitlog").iterdir())
    ])  # fmt: skip
    log.write_to(log.last // 2)
    follower = open_follower(log, tmp_path / "out", SMALL)
    catch_up(follower)
    log.write_to(log.last)
    catch_up(follower)
    follower.close()
    compare(tmp_path / "grows", tmp_path, monkeypatch, but_last=True)


def compare(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, but_last: bool = False
) -> None:
    """Compare the remembered facts of all files with the facts that scans find."""
    with closing(CommitLogReader(StoreLog(str(store)))) as log:
        files = log.files[:-1] if but_last else log.files
        assert len(files) > 1
        found = [KnownRanges(log).known(file) for file in files]
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
        fresh = KnownRanges(log)
        learned = [fresh.learn(file, with_queues=True) for file in files]
    assert list(map(facts, found)) == list(map(facts, learned))
