"""Recover the CommitLog: end it where a broker would end it, and clear the bytes after the end.

Mirrors `MappedFileQueue.load`, `CommitLog.recoverNormally`, `.recoverAbnormally` and
`MappedFileQueue.truncateDirtyFiles` (tags rocketmq-all-4.9.3, rocketmq-all-5.3.3). A broker leaves the bytes after the
end. They are cleared here, because they could become records again if a new message ends exactly where they begin.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from reput.core import (
    CommitLogFile,
    CommitLogReader,
    FileScan,
    ListedLog,
    LocatedRecord,
    LogListing,
    ScanMode,
    StoreLog,
    recovered_end,
)
from reput.engine.writer.recovery.broker_start import DispatchPoint, checked_from
from reput.engine.writer.recovery.report import RecoveryReport
from reput.errors import CorruptMessageError, MessageNotFoundError, StoreError, StoreNotFoundError
from reput.format.commit_log import (
    BLANK_BYTES,
    BLANK_MAGIC,
    crc_matches,
    read_size_and_magic,
    stated_record_crc,
)
from reput.format.file_names import COMMIT_LOG_FOLDER, offset_file_name, parse_offset_file_name
from reput.format.properties import PROPERTY_SEPARATOR
from reput.io import Disk, FileReader


def log_files(store: Path, disk: Disk) -> list[CommitLogFile]:
    """Check that a broker could continue a log, and return its files; an empty list for a new log.

    Delete an unused last file.

    Raises StoreError for files that a broker would refuse: unequal sizes, gaps between names, a missing first file.
    Also raises StoreError if a file contains messages but does not have the name of a log file.
    """
    try:
        files = list(StoreLog(store).list().files)
    except StoreNotFoundError:
        files = []
    check_none_renamed(store, files)
    for file in files:
        if not os.path.isfile(file.path):
            raise StoreError(f"{file.path}: is not a regular file; move it out of the store")
    # A crash while the next file was created leaves a short file without a record.
    if len(files) > 1 and files[-1].size < files[0].size and _is_empty(files[-1]):
        disk.delete(Path(files[-1].path))
        disk.sync_folder(store / COMMIT_LOG_FOLDER)
        files.pop()
    # In a new store, a crash while the first file was created leaves a single empty file.
    if len(files) == 1 and files[0].size == 0:
        disk.delete(Path(files[0].path))
        return []
    if files and files[0].size == 0:
        raise StoreError(
            f"{files[0].path}: is empty, but {files[1].path} comes after it; restore the file, "
            f"or move it away"
        )
    for number, file in enumerate(files):
        if file.size != files[0].size:
            raise StoreError(
                f"{file.path}: {file.size} bytes, but {files[0].path} has {files[0].size}: "
                "all files of a log must have one size; restore the file, or move it and all "
                "later files away"
            )
        if file.start != files[0].start + number * file.size or file.start % file.size:
            raise StoreError(
                f"{file.path}: does not begin where the previous file ends; "
                "restore the missing files, or move the later files away"
            )
    return files


def stated_start(file: CommitLogFile) -> int | None:
    """Return the physical offset of a file's first byte, derived from the offsets that its records state.

    Returns None if it has no record, or if records imply different offsets. Raises StoreAccessError.
    """
    starts: set[int] = set()
    for piece in FileScan(file, file.start, file.end, ScanMode.SALVAGE).pieces():
        shifts = piece.batch.messages["physical_offset"] - (piece.positions + piece.base)
        starts.update((np.unique(shifts) + file.start).tolist())
        if len(starts) > 1:
            return None
    return min(starts) if starts and min(starts) >= 0 else None


def check_none_renamed(store: Path, files: Sequence[CommitLogFile]) -> None:
    """Raise StoreError if a file without the name of a log file contains messages that the log lacks.

    Continuing the log, or rebuilding its indexes, would lose these messages for good.
    """
    folder = store / COMMIT_LOG_FOLDER
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        is_named = parse_offset_file_name(path.name) is not None
        if is_named or path.is_symlink() or not path.is_file():
            continue
        start = stated_start(CommitLogFile(0, path.stat().st_size, str(path)))
        if start is not None and not any(file.start <= start < file.end for file in files):
            raise StoreError(
                f"{path}: is not named as a file of the log, but contains messages from physical "
                f"offset {start} onwards that the log lacks; rename it to "
                f"{offset_file_name(start)}, or move it out of the store"
            )


def find_log_end(
    store: Path,
    files: list[CommitLogFile],
    point: DispatchPoint,
    report: RecoveryReport,
) -> int:
    """Return the end of the log, and set the report's `checked_from`.

    Raises:
        StoreError: `point.whole_records` is set, but an intact record lacks the property with the CRC
            of the whole record. A broker with forceVerifyPropCRC would cut off the record and everything after it.
        StoreAccessError: The log cannot be read.
    """
    log = CommitLogReader(ListedLog(LogListing(str(store), tuple(files))))
    try:
        report.log_begin, report.checked_from = files[0].start, checked_from(log, point)
        end = recovered_end(log, report.checked_from, whole_records=point.whole_records)
        if point.whole_records:
            _refuse_without_crc(log, end)
        return end
    finally:
        log.close()


def _refuse_without_crc(log: CommitLogReader, physical_offset: int) -> None:
    """Raise StoreError if the recovered log ends before an intact record that has no record CRC.

    A record CRC is a property with the CRC of the whole record (enabledAppendPropCRC, 5.x). A broker with
    forceVerifyPropCRC would cut off a record without this property, and everything after the record. Nothing is raised
    if the record is damaged, because then the log rightly ends before the record. A record without the property counts
    as damaged if a crash tore it, or if the following record has the property. `physical_offset` is the end of the
    recovered log.
    """
    record = _located(log, physical_offset)
    if record is None or _has_crc(record) or not crc_matches(record.data, record.layout):
        return
    data, layout = record.record(), record.layout
    if layout.properties_bytes and not data.endswith(PROPERTY_SEPARATOR.encode()):
        return
    next_record = _located(log, physical_offset + layout.total_bytes)
    if next_record is None or not _has_crc(next_record):
        raise StoreError(
            f"{log.source.name}: offset {physical_offset}: this record has no CRC, so a broker "
            f"with forceVerifyPropCRC would end the log here; recover without this setting"
        )


def _located(log: CommitLogReader, physical_offset: int) -> LocatedRecord | None:
    try:
        return log.locate(physical_offset, in_place=False)
    except (MessageNotFoundError, CorruptMessageError):
        return None


def _has_crc(record: LocatedRecord) -> bool:
    return stated_record_crc(record.record()) is not None


def truncate_log(files: list[CommitLogFile], end: int, disk: Disk, report: RecoveryReport) -> None:
    """Delete the files after `end`, and clear the bytes after `end` in its file, durably."""
    # Delete the newest file first, so that the remaining files have no hole between them after a power cut.
    while files[-1].start > end:
        file = files.pop()
        if _is_empty(file):
            report.empty_files.append(file.path)
        disk.delete(Path(file.path))
        # Sync after each deletion: the disk may otherwise reorder deletions, and leave a hole.
        disk.sync_folder(Path(file.path).parent)
        report.deleted_files.append(file.path)
    last = files[-1]
    if last.start <= end < last.end:
        report.truncated_bytes = _clear(last, end - last.start, disk)
    report.log_end = end


def sync_log(files: list[CommitLogFile], begin: int, disk: Disk) -> None:
    """Sync the log from `begin` on. Its writer died, so the data may exist only in the page cache."""
    for file in files:
        if file.end > begin:
            with disk.open(Path(file.path), file.size) as writer:
                writer.sync()


def _clear(file: CommitLogFile, position: int, disk: Disk) -> int:
    """From `position` on, overwrite nonzero bytes with zeros. Return how many bytes were cleared.

    If only a blank record was cleared, return 0.
    """
    with FileReader(file.path) as reader:
        head = reader.read(position, min(BLANK_BYTES, file.size - position))
    is_blank = len(head) == BLANK_BYTES and read_size_and_magic(head, 0)[1] == BLANK_MAGIC
    cleared = max(disk.clear(Path(file.path), position, file.size) - position, 0)
    return 0 if is_blank and cleared <= BLANK_BYTES else cleared


def _is_empty(file: CommitLogFile) -> bool:
    if file.size == 0:
        return True
    with FileReader(file.path) as reader:
        return reader.last_nonzero(file.size) is None
