"""The saved state of an open store: after a crash only the rest is compared with the log, never less."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from reput.core import BatchEnd
from reput.core.log.dispatch_batch import Queue
from reput.core.log.files import CommitLogFile
from reput.engine.writer.put.message import Message
from reput.engine.writer.recovery import recovery_point
from reput.engine.writer.recovery.queue_files import QueueFiles
from reput.engine.writer.recovery.recovery_point import (
    Look,
    RecoveryPoint,
    RecoveryPointWriter,
    _files_that_grow,
    _last_files,
    _queue_is_good,
    _same_but_expired,
    expired_unindexed,
    read_recovery_point,
)
from reput.engine.writer.store_writer import StoreWriter, WriterSettings
from reput.errors import StoreError
from reput.format.consume_queue import ENTRY_BYTES, PRE_BLANK, ConsumeQueueEntry, encode_entry
from reput.io import Disk
from tests.alive import copy_alive
from tests.rebuild.rebuilding import tree
from tests.recovery.checking import check_store
from tests.small import SMALL_16K

QUIET = WriterSettings(
    flush_interval_commit_log_s=60,
    flush_consume_queue_thorough_interval_s=60,
    flush_interval_consume_queue_s=60,
)


def crashed(folder: Path) -> tuple[Path, int]:
    """Return a store whose process died, and the physical offset up to which it was verified."""
    writer = StoreWriter(folder / "alive", SMALL_16K, QUIET)
    messages = [Message("T", b"body" * 9, [str(n)], queue_id=n % 3) for n in range(500)]
    writer.put_many(messages)
    writer.dispatcher.wait(writer.end_offset, None)
    writer.flush()
    writer._index_sync.run()
    known = writer.end_offset
    with writer.dispatcher.between_batches:  # no message put during this is dispatched
        writer.put_many(messages)
        copy_alive(folder / "alive", folder / "store")
    writer.close()
    return folder / "store", known


def reopened(store: Path) -> int:
    """Open, close and check a store. Return the physical offset from which recovery compared indexes with the log."""
    writer = StoreWriter(store, SMALL_16K)
    compared_from = writer.recovery.compared_from
    writer.put(Message("T", b"more"))
    writer.close()
    check_store(store, SMALL_16K)
    return compared_from


def test_only_what_came_after_is_compared(tmp_path: Path) -> None:
    store, known = crashed(tmp_path)
    assert reopened(store) == known > 0


def test_each_full_queue_file_is_recorded_with_its_last_entry(tmp_path: Path) -> None:
    store, _ = crashed(tmp_path)
    queues = json.loads((store / "reput.known").read_text())["queues"]
    assert len(queues) == 3
    for topic, queue_id, position, _, looks, _ in queues:
        folder = store / "consumequeue" / topic / str(queue_id)
        assert len(looks) == position // SMALL_16K.queue_entries > 1
        for (start, _, last), path in zip(looks, sorted(folder.iterdir()), strict=False):
            data = path.read_bytes()
            assert start * ENTRY_BYTES == int(path.name)
            assert last == int.from_bytes(data[-ENTRY_BYTES:][:8], "big")


def newest(folder: Path) -> Path:
    return sorted(folder.iterdir())[-1]


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
    # A change within one tick of the clock would not change the file's time, so set a later time.
    later = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(later, later))


def hole_in_the_last_queue_file(store: Path) -> None:
    path = sorted((store / "consumequeue" / "T" / "1").iterdir())[3]
    overwrite(path, 5 * ENTRY_BYTES, bytes(ENTRY_BYTES))


def other_tags_in_a_full_queue_file(store: Path) -> None:
    overwrite(sorted((store / "consumequeue" / "T" / "1").iterdir())[0], ENTRY_BYTES - 1, b"\x07")


def other_time_in_a_full_index_file(store: Path) -> None:
    path = sorted((store / "index").iterdir())[0]
    data = path.read_bytes()
    overwrite(path, 100, data[100:])


def other_hash_in_the_last_index_file(store: Path) -> None:
    path = sorted((store / "index").iterdir())[3]
    overwrite(path, 40 + 4 * SMALL_16K.hash_slots + 20 * 3 + 3, b"\xa5")


def a_queue_less(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "T" / "2")


def a_queue_file_less(store: Path) -> None:
    sorted((store / "consumequeue" / "T" / "2").iterdir())[1].unlink()


def an_index_file_less(store: Path) -> None:
    sorted((store / "index").iterdir())[1].unlink()


def the_last_index_file_less(store: Path) -> None:
    for path in sorted((store / "index").iterdir())[3:]:
        path.unlink()


def a_broker_was_here(store: Path) -> None:
    later = (store / "lock").stat().st_mtime_ns + 1_000_000_000
    os.utime(store / "lock", ns=(later, later))


def nothing_noted(store: Path) -> None:
    (store / "reput.known").unlink()


def nonsense_noted(store: Path) -> None:
    (store / "reput.known").write_text('{"form": 1, "end": [], "lock": 0}')


HARMS = (
    hole_in_the_last_queue_file, other_tags_in_a_full_queue_file, other_time_in_a_full_index_file,
    other_hash_in_the_last_index_file, a_queue_less, a_queue_file_less, an_index_file_less,
    the_last_index_file_less, a_broker_was_here, nothing_noted, nonsense_noted,
)  # fmt: skip


@pytest.mark.parametrize("harm", HARMS)
def test_what_does_not_look_as_it_did_is_compared_from_the_beginning(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    store, _ = crashed(tmp_path)
    harm(store)
    assert reopened(store) == 0


def test_a_log_that_ends_before_what_was_noted(tmp_path: Path) -> None:
    store, known = crashed(tmp_path)
    for path in sorted((store / "commitlog").iterdir()):
        if int(path.name) >= known - SMALL_16K.commit_log_file_bytes:
            path.unlink()
    writer = StoreWriter(store, SMALL_16K)
    end = writer.recovery.log_end
    assert writer.recovery.compared_from == end < known
    assert not (store / "reput.known").exists()  # until it is written again, it must not be trusted
    writer.put_many([Message("T", b"other", [str(n)]) for n in range(300)])
    copy_alive(store, tmp_path / "again")
    writer.close()
    check_store(store, SMALL_16K)
    assert reopened(tmp_path / "again") == 0


def test_a_queue_with_an_entry_too_many(tmp_path: Path) -> None:
    """Each entry after the additional one is one place too far. The store cannot move them, so it refuses to open."""
    store, _ = crashed(tmp_path)
    nothing_noted(store)
    folder = store / "consumequeue" / "T" / "1"
    entries = b"".join(path.read_bytes() for path in sorted(folder.iterdir())).rstrip(b"\0")
    places = range(0, len(entries), ENTRY_BYTES)
    offsets = [int.from_bytes(entries[at : at + 8], "big") for at in places]
    first = next(n for n, at in enumerate(offsets) if at >= SMALL_16K.commit_log_file_bytes)
    cut = first * ENTRY_BYTES
    twice = entries[:cut] + entries[cut - ENTRY_BYTES : cut] + entries[cut:]
    size = SMALL_16K.queue_file_bytes
    for number in range(0, len(twice), size):
        (folder / f"{number:020d}").write_bytes(twice[number : number + size].ljust(size, b"\0"))
    before = tree(store)
    with pytest.raises(
        StoreError, match=r"no place for this message in queue 1 of T.*reput repair"
    ):
        StoreWriter(store, SMALL_16K)
    assert tree(store) == before


@pytest.mark.every_case
@pytest.mark.parametrize("folder", ["consumequeue/T/1", "index", "commitlog"])
def test_a_file_that_changed_after_a_clean_shutdown_is_read_again(
    tmp_path: Path, folder: str
) -> None:
    store = tmp_path / "store"
    with closing(StoreWriter(store, SMALL_16K, QUIET)) as writer:
        writer.put_many([Message("T", b"body", [str(n)], queue_id=n % 3) for n in range(100)])
    config, log_begin = SMALL_16K, 0
    queues = {
        Queue("T", number): QueueFiles(store / "consumequeue" / "T" / str(number), 50)
        for number in range(3)
    }
    assert read_recovery_point(store, config, log_begin, queues)[1]
    last = max((store / folder).iterdir())
    os.utime(last, ns=(0, last.stat().st_mtime_ns + 1))
    assert not read_recovery_point(store, config, log_begin, queues)[1]


def _close_with_equal_times(store: Path) -> None:
    """Close a store cleanly. The files of its queues 0 and 1 have the same modification time."""
    with closing(StoreWriter(store, SMALL_16K, QUIET)) as writer:
        writer.put_many([Message("T", b"body", [str(n)], queue_id=n % 3) for n in range(60)])
    for queue_id in range(2):
        for path in (store / f"consumequeue/T/{queue_id}").iterdir():
            os.utime(path, ns=(0, 10**18))
    with closing(StoreWriter(store, SMALL_16K, QUIET)) as writer:
        writer.put(Message("T", b"body", queue_id=2))


def zero_with_the_same_time(store: Path) -> None:
    path = store / "consumequeue/T/0" / f"{0:020d}"
    path.write_bytes(bytes(path.stat().st_size))
    os.utime(path, ns=(0, 10**18))


def exchange_folders(store: Path) -> None:
    topic = store / "consumequeue/T"
    for source, target in (("0", "x"), ("1", "0"), ("x", "1")):
        (topic / source).rename(topic / target)


@pytest.mark.every_case
@pytest.mark.parametrize("harm", [zero_with_the_same_time, exchange_folders])
@pytest.mark.parametrize("by", ["this version", "an earlier version"])
def test_a_queue_file_that_was_exchanged_after_a_clean_shutdown_is_noticed(
    tmp_path: Path, harm: Callable[[Path], None], by: str
) -> None:
    store = tmp_path / "store"
    _close_with_equal_times(store)
    point = json.loads((store / "reput.known").read_text())
    assert point.pop("last_files")[1]
    if by == "an earlier version":
        (store / "reput.known").write_text(json.dumps(point))
    assert read_recovery_point(store, SMALL_16K, 0, QueueFiles.all_of(store, SMALL_16K))[1]
    harm(store)
    queues = QueueFiles.all_of(store, SMALL_16K)
    assert read_recovery_point(store, SMALL_16K, 0, queues) == (None, False)


def test_a_zeroed_queue_file_with_the_same_time_is_written_anew(tmp_path: Path) -> None:
    store = tmp_path / "store"
    _close_with_equal_times(store)
    zero_with_the_same_time(store)
    assert reopened(store) == 0


def test_a_copy_of_a_closed_store_is_not_compared(tmp_path: Path) -> None:
    _close_with_equal_times(tmp_path / "store")
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    assert reopened(tmp_path / "copy") > 0


def test_only_the_oldest_files_may_be_missing_and_only_if_they_have_expired() -> None:
    # For each recorded file: its name, its time, and the physical offset of its last entry.
    looks: list[Look] = [("a", 1, 90), ("b", 2, 190), ("c", 3, 290)]
    assert _same_but_expired({"a": 1, "b": 2, "c": 3}, looks, 0)
    assert _same_but_expired({"b": 2, "c": 3}, looks, 91)
    assert _same_but_expired({"c": 3}, looks, 191)
    assert _same_but_expired({}, looks, 291)
    assert not _same_but_expired({"b": 2, "c": 3}, looks, 90)
    assert not _same_but_expired({"c": 3}, looks, 190)
    assert not _same_but_expired({"a": 1, "c": 3}, looks, 1000)
    assert not _same_but_expired({"a": 1, "b": 2}, looks, 1000)
    assert not _same_but_expired({"b": 2, "c": 4}, looks, 91)
    assert not _same_but_expired({"a": 1, "b": 2, "c": 3, "d": 4}, looks, 0)


def test_no_queue_is_untouched_where_changes_do_not_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "consumequeue" / "T" / "0" / f"{1000:020d}"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"entries")
    queue, later_ns = Queue("T", 0), file.stat().st_mtime_ns + (1 << 40)
    point = RecoveryPoint(100, {queue: (52, 100)})
    for has_stamps, queues in ((True, {queue}), (False, set())):
        monkeypatch.setattr(recovery_point, "has_stamps", lambda path, shows=has_stamps: shows)
        digest, untouched = _last_files(tmp_path, point, SMALL_16K, later_ns)
        assert (bool(digest), untouched) == (has_stamps, queues)


@pytest.mark.parametrize(("entries", "file"), [(1, 0), (356, 0), (357, 1), (712, 1)])
def test_the_last_file_of_a_batch_queue_is_one_that_has_entries(
    tmp_path: Path, entries: int, file: int
) -> None:
    config = replace(SMALL_16K, batch_queue_file_bytes=356 * 46)
    point = RecoveryPoint(100, {}, batches={Queue("B", 0): BatchEnd(entries, 9, 90)})
    (path,) = _files_that_grow(tmp_path, point, config)
    assert path == f"{tmp_path}/batchconsumequeue/B/0/{file * 356 * 46:020d}"


def test_a_queue_may_end_with_a_full_file(tmp_path: Path) -> None:
    count, folder = SMALL_16K.queue_entries, tmp_path / "consumequeue" / "T" / "0"
    path = folder / f"{0:020d}"
    path.parent.mkdir(parents=True)
    entries = (ConsumeQueueEntry(100 * n, 100, 0) for n in range(count))
    path.write_bytes(b"".join(map(encode_entry, entries)))
    queue, changed = QueueFiles(folder, count), path.stat().st_mtime_ns
    for time_ns, is_good in ((changed, True), (changed + 1, False)):
        looks: list[Look] = [(0, time_ns, 4900)]
        is_same = _queue_is_good(queue, count, 100 * count, looks, 0, SMALL_16K, True, False)
        assert is_same == is_good
    writer = RecoveryPointWriter(tmp_path, SMALL_16K, Disk())
    assert writer._full_queue_files(Queue("T", 0), count) == [(0, changed, 4900)]
    assert writer._full_queue_files(Queue("T", 0), count - 1) == []


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("places", "is_good"),
    [
        ((1, 2, 3, 4, 5, 6), True),
        ((1, 2, 4, 3, 5, 6), False),  # it leads back at the beginning of a piece
        ((1, 2, 3, 5, 4, 6), False),
        ((1, 2, None, 3, 4, 5), True),
        ((1, 2, 3, 0, 0, 6), False),
    ],
)
def test_entries_before_the_recovery_point_must_be_in_order(
    tmp_path: Path,
    places: tuple[int | None, ...],
    is_good: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery_point, "_PIECE_ENTRIES", 3)
    entries = [
        PRE_BLANK if place is None else ConsumeQueueEntry(100 * place, 100 if place else 0, 0)
        for place in places
    ]
    data = b"".join(map(encode_entry, entries))
    (tmp_path / f"{0:020d}").write_bytes(data.ljust(SMALL_16K.queue_file_bytes, b"\0"))
    queue = QueueFiles(tmp_path, SMALL_16K.queue_entries)
    end = queue.end_before(6)
    assert _queue_is_good(queue, 6, end, [], 0, SMALL_16K, False, False) == is_good
    assert not _queue_is_good(queue, 6, end + 1, [], 0, SMALL_16K, False, False)
    # After a clean shutdown, the last entry suffices, or no entry if the file is certainly the same.
    assert _queue_is_good(queue, 6, end, [], 0, SMALL_16K, True, False)
    assert not _queue_is_good(queue, 6, end + 1, [], 0, SMALL_16K, True, False)
    assert _queue_is_good(queue, 6, end, [], 0, SMALL_16K, True, True)


@pytest.mark.every_case
@pytest.mark.parametrize(("end", "is_lost"), [(299, True), (300, False), (301, False)])
def test_messages_expired_unindexed_if_the_indexes_end_before_the_log(
    tmp_path: Path, end: int, is_lost: bool
) -> None:
    first = CommitLogFile(300, 100, str(tmp_path / "log"))
    entry = encode_entry(ConsumeQueueEntry(end - 100, 100, 0))
    (tmp_path / f"{0:020d}").write_bytes(entry.ljust(SMALL_16K.queue_file_bytes, b"\0"))
    queue = QueueFiles(tmp_path, SMALL_16K.queue_entries)
    finding = expired_unindexed(first, None, [queue])
    assert (finding is not None) == is_lost
    if finding is not None:
        assert (finding.start, finding.stop) == (end, 300)
    assert expired_unindexed(first, None, []) is None
