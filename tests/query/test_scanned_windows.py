"""Windows of time without an index: complete for any clock, and no range is scanned twice without need."""

import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from reput.core.log import known_ranges
from reput.core.log.files import CommitLogFile
from reput.core.query import search
from reput.core.query.answers import QueryResult
from reput.core.query.message_store import MessageStore
from reput.core.query.search import Found, Scanner
from tests.oracle.forge import LogForge, RecordFields, forge_log, write_store

BEGIN = 1_700_000_000_000
FILE_BYTES = 1 << 13


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Save store times also for small files. Walk the first 1.5 files in Python, and let kernels scan the rest."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(CommitLogFile, "LEAST_KEPT_BYTES", 1000)
    monkeypatch.setattr(search, "WALKED_BYTES", 3 * FILE_BYTES // 2)


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the numbers of the files that are scanned from now on."""
    found: list[int] = []
    scan = Scanner.scan

    def recording(scanner: Scanner, start: int, stop: int) -> Found:
        found.append(start // FILE_BYTES)
        return scan(scanner, start, stop)

    monkeypatch.setattr(Scanner, "scan", recording)
    return found


def _log(times: Sequence[int]) -> LogForge:
    return forge_log(
        [
            RecordFields(properties={"KEYS": "hot", "UNIQ_KEY": f"u{n}"}, store_timestamp=time)
            for n, time in enumerate(times)
        ],
        file_bytes=FILE_BYTES,
    )


def _store(path: Path, times: Sequence[int]) -> LogForge:
    log = _log(times)
    write_store(path, log.files())
    return log


def _times(found: QueryResult) -> list[int]:
    return [message.store_timestamp for message in found.messages]


def _between(times: Sequence[int], begin: int, end: int) -> list[int]:
    return [time for time in reversed(times) if begin <= time <= end]


@pytest.mark.parametrize("steps_back", [(), (200,), (70, 210, 300), tuple(range(0, 400, 3))])
@pytest.mark.every_case
def test_any_clock(tmp_path: Path, steps_back: Sequence[int], scanned: list[int]) -> None:
    now, times = BEGIN, []
    for number in range(400):
        now += -40_000 if number in steps_back else 500
        times.append(now)
    _store(tmp_path / "store", times)
    random = Random(1)
    edges = sorted({min(times), max(times), *random.sample(times, 12)})
    with MessageStore(tmp_path / "store") as store:
        assert _times(store.query("T", "hot")) == times[::-1]
        for begin in edges:
            for end in (begin - 1, begin, begin + 20_000):
                found = store.query("T", "hot", begin=begin, end=end)
                assert _times(found) == _between(times, begin, end)
                assert found.is_complete
                assert found.coverage.scanned == (found.coverage.log,)
        if not steps_back:
            scanned.clear()
            store.query("T", "hot", begin=times[0], end=times[1])
            assert scanned == [len(store.commit_log.files) - 1, 0]


def test_what_a_window_scans_is_known_to_the_next_process(
    tmp_path: Path, scanned: list[int]
) -> None:
    times = [BEGIN + 500 * n for n in range(400)]
    _store(tmp_path / "store", times)
    for expected in ([5, 4, 3, 2, 1, 0], [5, 2]):
        scanned.clear()
        with MessageStore(tmp_path / "store") as store:
            found = store.query("T", "hot", begin=times[150], end=times[160])
        assert _times(found) == _between(times, times[150], times[160])
        assert scanned == expected


def _overwrite(log: LogForge, path: Path, times: Sequence[int]) -> None:
    """Overwrite the log in place with messages of other times, and restore the file's modification time."""
    status = os.stat(path)
    path.write_bytes(dict(_log(times).files())[0])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _truncate_stamp(stamp: Callable[..., tuple[int, ...]]) -> Callable[..., tuple[int, ...]]:
    return lambda file: stamp(file)[:3]


def test_a_log_that_was_written_over_is_scanned_again(
    tmp_path: Path, scanned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_ranges, "_stamp", _truncate_stamp(known_ranges._stamp))
    times = [BEGIN + 500 * n for n in range(400)]
    log = _store(tmp_path / "store", times)
    other = [*times[:60], *(time + 10**9 for time in times[60:])]
    with MessageStore(tmp_path / "store") as store:
        store.query("T", "hot")
        _overwrite(log, tmp_path / "store" / "commitlog" / f"{0:020d}", other)
        found = store.query("T", "hot", begin=times[-1] + 10**8)
        assert 0 in scanned
        assert len(found.messages) > 5
        assert min(_times(found)) >= times[60] + 10**9


def test_a_file_that_changed_is_scanned_again(tmp_path: Path, scanned: list[int]) -> None:
    times = [BEGIN + 500 * n for n in range(400)]
    log = _store(tmp_path / "store", times)
    with MessageStore(tmp_path / "store") as store:
        store.query("T", "hot")
        with open(tmp_path / "store" / "commitlog" / f"{0:020d}", "r+b") as file:
            file.seek(log.offsets[3] + 56)
            file.write(struct.pack(">q", times[-1] + 5))
        found = store.query("T", "hot", begin=times[-1] + 1)
        assert _times(found) == [times[-1] + 5]


def test_damage_is_reported_each_time(tmp_path: Path) -> None:
    times = [BEGIN + 500 * n for n in range(400)]
    log = _store(tmp_path / "store", times)
    with open(tmp_path / "store" / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(log.offsets[3] + 4)
        file.write(bytes(4))
    with MessageStore(tmp_path / "store") as store:
        for _ in range(3):
            found = store.query("T", "hot", begin=times[300])
            assert _times(found) == _between(times, times[300], times[-1])
            assert not found.is_complete
            assert found.coverage.unreadable


@pytest.mark.parametrize(
    "garbage", [b"", b"[]", b"{}", b'{"form": 1}', b'{"form": 1, "range": [0, "x"]}', b"\xff" * 100]
)
def test_a_cache_of_garbage_is_not_believed(tmp_path: Path, garbage: bytes) -> None:
    times = [BEGIN + 500 * n for n in range(400)]
    _store(tmp_path / "store", times)
    with MessageStore(tmp_path / "store") as store:
        store.query("T", "hot")
        files = list((tmp_path / "cache" / "reput" / "ranges").iterdir())
        assert len(files) == len(store.commit_log.files) - 1
        known = known_ranges.KnownRanges(store.commit_log)
        for path in files:
            known._cache.write(path.name, garbage)
        found = store.query("T", "hot", begin=times[10], end=times[20])
        assert _times(found) == _between(times, times[10], times[20])


def test_a_log_that_is_still_written_is_not_kept(tmp_path: Path, scanned: list[int]) -> None:
    log = _log([BEGIN + 500 * n for n in range(400)])
    files = log.files()
    write_store(tmp_path / "store", files[:3])
    with MessageStore(tmp_path / "store") as store:
        store.query("T", "hot")
        assert len(list((tmp_path / "cache" / "reput" / "ranges").iterdir())) == 2


def _set_time(path: Path, at: int, time: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at + 56)
        file.write(struct.pack(">q", time))


def _may_have(known: known_ranges.KnownRanges, time: int) -> list[int]:
    """Return the beginnings of the parts of the log that may have messages stored at that time or later."""
    return [piece.start for piece in known.pieces(time, time + 10**9)]


def test_a_file_that_changes_right_after_it_was_compared(tmp_path: Path) -> None:
    times = [BEGIN + 500 * n for n in range(400)]
    log = _store(tmp_path / "store", times)
    with MessageStore(tmp_path / "store") as store:
        known = store.known_ranges
        for _ in range(2):
            assert _may_have(known, times[-1] + 1) == []
        _set_time(tmp_path / "store" / "commitlog" / f"{0:020d}", log.offsets[3], times[-1] + 5)
        assert _may_have(known, times[-1] + 1) == [0]


@pytest.mark.parametrize("then_closed", [False, True])
@pytest.mark.every_case
def test_an_old_message_of_the_last_file_changes_and_others_are_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then_closed: bool
) -> None:
    monkeypatch.setattr(known_ranges, "_LEAST_GROWTH_BYTES", 1000)
    times = [BEGIN + 500 * n for n in range(100)]
    log = _log(times)
    (start, data), *more = log.files()
    cut = log.offsets[30]
    store = write_store(tmp_path / "store", [(start, data[:cut] + bytes(len(data) - cut))])
    with MessageStore(store) as opened:
        assert _may_have(opened.known_ranges, times[-1] + 1) == []
    assert list((tmp_path / "cache" / "reput" / "ranges").iterdir())
    with MessageStore(store) as opened:
        assert _may_have(opened.known_ranges, times[-1] + 1) == []
        file = store / "commitlog" / f"{start:020d}"
        with open(file, "r+b") as stream:
            stream.seek(cut)
            stream.write(data[cut:])
        _set_time(file, log.offsets[3], times[-1] + 5)
        if then_closed:
            for begin, rest in more:
                (store / "commitlog" / f"{begin:020d}").write_bytes(rest)
            opened.commit_log.refresh()
            assert _may_have(opened.known_ranges, times[-1] + 1) == [0]
    with MessageStore(store) as opened:
        assert _may_have(opened.known_ranges, times[-1] + 1) == [0]
