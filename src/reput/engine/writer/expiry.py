"""Expire files: delete whole CommitLog files, oldest first, and index files that lead only into them.

Mirrors `MappedFileQueue.deleteExpiredFileByTime`, `.deleteExpiredFileByOffset` and `IndexService.deleteExpiredFile`
(tag rocketmq-all-4.9.3): the last file of the log, of a queue and of the index always stays.

Log files are deleted before index files. After a crash in between, entries lead to deleted messages, which readers and
recovery accept. If index files were deleted first, recovery after a crash would dispatch their messages again. Each
deletion is durable before the next one, so a power cut leaves no hole in the log or in a queue.

A broker uses the modification time of a file, which a copy or a restored backup loses. Here, the age of a file is the
age of its last message.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from reput import core
from reput.base import counted
from reput.errors import StoreError
from reput.format.file_names import INDEX_FOLDER
from reput.format.index_file import HEADER_BYTES, decode_header
from reput.io import Disk, FileReader

# Search for the last record in this many bytes at the end of the file. If no record begins there, search eight times as
# many.
_FIRST_BYTES = 64 << 10
_GROWTH = 8


def newest_timestamp(log: core.CommitLogReader, file: core.CommitLogFile) -> int:
    """Return the store timestamp (ms) of the file's last message, or the file's modification time if it has no message.

    Raises StoreNotFoundError, StoreAccessError.
    """
    length = _FIRST_BYTES
    while True:
        start = max(file.end - length, file.start)
        first: int | None = start
        if start > file.start:
            with FileReader(file.path) as reader:
                first = core.find_record(reader, file, start, file.end)
        timestamp = None if first is None else _last_timestamp(log, file, first)
        if timestamp is not None:
            return timestamp
        if start == file.start:
            return os.stat(file.path).st_mtime_ns // 1_000_000
        length *= _GROWTH


def _last_timestamp(log: core.CommitLogReader, file: core.CommitLogFile, start: int) -> int | None:
    """Return the store time of the last message, or None if no message begins at `start`.

    Reads the file from `start` on. A damaged file is as young as the last message before or after one of its damaged
    places: repair can salvage the messages after them.
    """
    times: list[int] = []
    position: int | None = start
    while position is not None:
        walk, last = core.LogWalk(log, position, file.end, in_place=False), None
        for record in walk:
            last = record.store_timestamp()
        times += [] if last is None else [last]
        # Damage may mean that `start` was inside a message. Search from an earlier offset.
        if walk.damage and start > file.start:
            return None
        position = None
        if walk.damage and walk.damage[-1].stop >= file.end:
            with FileReader(file.path) as reader:
                position = core.find_record(reader, file, walk.damage[-1].start + 1, file.end)
    return max(times, default=None)


@dataclass(frozen=True, slots=True)
class ExpiryReport:
    """The paths of deleted files, or of files to delete, in the order of deletion.

    Attributes:
        log_begin: Physical offset at which the log begins after the deletion.
        freed_bytes: Disk space of these files.
    """

    log_begin: int
    log_files: tuple[str, ...] = ()
    queue_files: tuple[str, ...] = ()
    index_files: tuple[str, ...] = ()
    freed_bytes: int = 0

    def __str__(self) -> str:
        return (
            f"{len(self.log_files)} CommitLog files, {len(self.queue_files)} ConsumeQueue files, "
            f"{counted(len(self.index_files), 'IndexFile')}, {self.freed_bytes:,} bytes; "
            f"the log begins at {self.log_begin}"
        )


def files_before(
    log: core.CommitLogReader,
    timestamp: int,
    until: int,
    age: Callable[[core.CommitLogReader, core.CommitLogFile], int],
) -> list[core.CommitLogFile]:
    """Return the files, oldest first, whose last message was stored before a time (ms).

    Excludes the last file, and files that end after physical offset `until`. `age` returns the store time of a file's
    last message: callers pass `newest_timestamp`, or a method that caches the results of `newest_timestamp`.

    Raises StoreNotFoundError, StoreAccessError.
    """
    candidates = deletable_files(log, until)
    return list(takewhile(lambda file: age(log, file) < timestamp, candidates))


def deletable_files(log: core.CommitLogReader, until: int) -> Iterator[core.CommitLogFile]:
    """Yield the files that end at or before `until`, oldest first, except the last file of the log."""
    return takewhile(lambda file: file.end <= until, log.files[:-1])


def plan_expiry(
    store: Path, log: core.CommitLogReader, expired: Sequence[core.CommitLogFile]
) -> ExpiryReport:
    """Plan the deletion of the log files `expired`, which are the oldest, and of their indexes.

    Raises StoreAccessError.
    """
    return _plan(store, log.files[len(expired)].start, tuple(file.path for file in expired))


def expire_indexes(folder: Path, log_begin: int, disk: Disk) -> ExpiryReport:
    """Delete, durably, the queue files and IndexFiles that lead only before `log_begin`. Raises StoreAccessError."""
    report = _plan(folder, log_begin, ())
    carry_out(report, disk)
    return report


def _plan(store: Path, log_begin: int, log_files: tuple[str, ...]) -> ExpiryReport:
    queue_files = tuple(_expired_queue_files(store, log_begin))
    index_files = tuple(_expired_index_files(store / INDEX_FOLDER, log_begin))
    freed_bytes = sum(map(_allocated_bytes, (*log_files, *queue_files, *index_files)))
    return ExpiryReport(log_begin, log_files, queue_files, index_files, freed_bytes)


def carry_out(
    report: ExpiryReport, disk: Disk, turn: AbstractContextManager[object] | None = None
) -> None:
    """Delete the planned files, durably. If this raises StoreAccessError, the next run deletes the remaining files.

    `turn` is a lock that each deletion takes: others may hold it to keep the files that they name.
    """
    turn = turn or nullcontext()
    for path in map(Path, (*report.log_files, *report.queue_files)):
        with turn:
            disk.delete(path)
            disk.sync_folder(path.parent)
    # After a power cut, any of these IndexFiles may still exist. Readers accept such files, so one sync for all
    # deletions suffices.
    for path in map(Path, report.index_files):
        with turn:
            disk.delete(path)
    if report.index_files:
        disk.sync_folder(Path(report.index_files[0]).parent)


def plan_by_time(store: Path, before: int, until: int | None = None) -> ExpiryReport:
    """Plan the expiry of files whose last message was stored before a time (ms), without opening the store for writing.

    The owner of the store may delete files meanwhile. `until` limits the plan to files that end at or before this
    physical offset. Raises StoreNotFoundError, StoreAccessError, FormatError.
    """
    log = core.CommitLogReader(core.StoreLog(store))
    try:
        while True:
            files, most = log.files, log.files_end if until is None else until
            try:
                return plan_expiry(store, log, files_before(log, before, most, newest_timestamp))
            except (OSError, StoreError):
                # The owner of the store may have deleted a file in between.
                log.refresh()
                if log.files == files:
                    raise
    finally:
        log.close()


def _expired_queue_files(store: Path, log_begin: int) -> Iterator[str]:
    for form in (core.FILE_FORM, *core.queue_forms(str(store))):
        yield from form.expired_files(str(store), log_begin)


def _expired_index_files(folder: Path, log_begin: int) -> Iterator[str]:
    for path in core.index_paths(folder)[:-1]:
        if path.stat().st_size < HEADER_BYTES:
            return
        with FileReader(str(path)) as reader:
            header = decode_header(reader.read(0, HEADER_BYTES))
        if header.end_physical_offset >= log_begin:
            return
        yield str(path)


def _allocated_bytes(path: str) -> int:
    try:
        return 512 * os.stat(path).st_blocks
    except FileNotFoundError:
        return 0
