"""Find the ends of a log: the end for readers, the end for a rebuild, and the end of its data.

The ends are equal if the last record was written completely. Otherwise commands report the findings of `LogEnds`, which
explain the difference. A walk in plain Python over the last few MiB finds the ends. The end that a broker would find at
its next start depends on how the store was shut down: see `reput.core.store.broker_start`.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reput.base import Finding, Kind
from reput.core.log.files import CommitLogFile, find_record
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.core.log.record import LocatedRecord
from reput.core.log.sources import LogListing, LogSource
from reput.core.log.verdict import FileEnd, end_of_file, end_of_whole
from reput.core.log.walk import WALKED_BYTES, LogWalk
from reput.format.commit_log import crc_matches, has_right_record_crc

# Imported only for type checkers, so that commands that need no kernel do not wait for numba.
if TYPE_CHECKING:
    from reput.core.log.scan import ScanBuffers

# A record is searched for in the last 8 MiB before the end. If no record begins there, the last 64 MiB are searched.
# With the default settings, a record has at most 4 MiB, so 8 MiB are enough.
_LOOKED_BACK_BYTES = (8 << 20, 64 << 20)
_PAGE_BYTES = 64 << 10
# A page of memory. A write without mmap ends with a page.
_WRITTEN_BYTES = 4 << 10


@dataclass(frozen=True, slots=True)
class LogEnds:
    """Ends of a log, as physical offsets.

    Attributes:
        reader: end of the last complete record; a broker may still be writing the next one
        rebuild: end of the last readable record; a broker dispatches all records before this end. Greater than `reader`
            only if the last readable record is incomplete: its lengths are valid, but its CRC is wrong, or its last
            byte is zero
        data: end of the last byte that is not zero; greater than `rebuild` only if the log has a torn end
        file: the last file with data; None for a log without data
    """

    reader: int
    rebuild: int
    data: int
    file: CommitLogFile | None = None

    @classmethod
    def of(cls, source: LogSource) -> LogEnds:
        """Find the end of a log for readers, the end for a rebuild, and the end of the log's data.

        A walk over the last bytes of the log finds the three ends. Raises StoreError.
        """
        with closing(CommitLogReader(source)) as log:
            return _find(log)

    def findings(self, *, is_padded: bool = False) -> list[Finding]:
        """Return findings that explain why the end for readers, the end for a rebuild and the end of the data differ.

        Return an empty list if the three ends are equal.

        Args:
            is_padded: Whether the rest of the last record's page may have any content. A broker that writes without
                mmap (`writeWithoutMmap`, 5.4) writes whole pages from a buffer that contained other messages before.
        """
        findings = []
        file = self.file
        if file is not None and self.reader < self.rebuild:
            detail = (
                "the last record of the log is incomplete: its CRC is wrong, or its last byte is "
                "zero; the table and exports end before it, a rebuild after it"
            )
            findings.append(file.lost(self.reader, self.rebuild, detail, Kind.TORN_LOG_END))
        padding = -(self.rebuild - file.start) % _WRITTEN_BYTES if is_padded and file else 0
        if file is not None and self.data > self.rebuild + padding:
            detail = "the bytes after the last record are not a record"
            findings.append(file.lost(self.rebuild, self.data, detail, Kind.TORN_LOG_END))
        return findings


def find_log_end(source: LogListing, buffers: ScanBuffers) -> int:
    """Find the end of a log for readers, by a walk over the last records.

    The walk runs in compiled functions (`reput.kernels`). All callers have already loaded these functions, so the walk
    starts at once. Raises StoreError.
    """
    from reput.core.log.growing import first_record, walk_on

    file = source.last_with_data()
    if file is None:
        return source.begin
    with source.open_file(file.path) as reader:
        # In most files the unwritten part is zeros. A binary search finds where they begin, and the walk starts well
        # before that.
        pages = bisect_left(
            range(file.size // _PAGE_BYTES),
            True,
            key=lambda page: not any(reader.read(page * _PAGE_BYTES, _PAGE_BYTES)),
        )
    near = file.start + max(pages * _PAGE_BYTES - _LOOKED_BACK_BYTES[0], 0)
    start = first_record(source.open_file, file, near, file.end, buffers)
    return walk_on(source, start, buffers).end


def first_record_of(source: LogListing, position: int, buffers: ScanBuffers) -> int:
    """Return the physical offset of the first record from a position on, or else the log's end. Raises StoreError."""
    from reput.core.log.growing import first_record

    end = find_log_end(source, buffers)
    for file in source.files:
        if file.start <= position < min(file.end, end):
            record_start = first_record(source.open_file, file, position, file.end, buffers)
            return min(record_start, end)
        if file.start > position:
            return min(file.start, end)
    return end


def not_whole(end: int) -> str:
    """Return a note for users: bytes follow the end of the log. This is normal only while a log is being written."""
    return f"the log ends at offset {end:,}; the bytes after it are not a valid record and are not read"


def _find(log: CommitLogReader) -> LogEnds:
    for file in reversed(log.files):
        with closing(log.source.open(file.path)) as reader:
            last = reader.last_nonzero(file.size)
        if last is not None:
            return _ends_in(log, file, file.start + last + 1)
    return LogEnds(log.min_offset, log.min_offset, log.min_offset)


def _ends_in(log: CommitLogReader, file: CommitLogFile, data: int) -> LogEnds:
    newest: LocatedRecord | None = None
    start: int | None = _record_near(log, file, data)
    end = file.start
    while start is not None:
        walk = LogWalk(log, start, file.end, in_place=False)
        for record in walk:
            newest = record
        end, start = walk.position, None
        if walk.damage and walk.damage[-1].stop == file.end == end:
            # The walk has skipped the rest of the file. Continue at the next verifiable record.
            end = walk.damage[-1].start
            start = _record_from(log, file, end + 1)
    reader_end = end
    if newest is not None:
        last = OffsetRange(
            newest.physical_offset, newest.physical_offset + newest.layout.total_bytes + file.gap
        )
        reader_end = end_of_whole(end, last, newest.record)
    return LogEnds(reader_end, end, data, file)


def _record_near(log: CommitLogReader, file: CommitLogFile, data: int) -> int:
    """Return the offset of a verifiable record some MiB before the last nonzero byte, or the beginning of the file."""
    for length in _LOOKED_BACK_BYTES:
        # The last file of a DLedger log is walked from its beginning, because a header precedes each of its records.
        if data - length > file.start and not file.gap:
            record_start = _record_from(log, file, data - length)
            if record_start is not None:
                return record_start
    return file.start


def _record_from(log: CommitLogReader, file: CommitLogFile, start: int) -> int | None:
    with closing(log.source.open(file.path)) as reader:
        return find_record(reader, file, start, file.end)


def recovered_end(log: CommitLogReader, start: int, *, whole_records: bool = False) -> int:
    """Return the end of the log that a broker finds if it checks records from `start` on.

    The broker compares the CRCs of bodies. With `whole_records` (`StoreConfig.check_record_crc`) it compares CRCs of
    records, and ends the log at a record without such a CRC. If the last file ends with a blank record, the log ends
    where this record begins, because the next file does not exist. Raises StoreAccessError, StoreChangedError.
    """
    end = log.files_end
    for file in log.files:
        if file.end > start:
            end, is_passed = _end_within(log, file, max(start, file.start), whole_records)
            if not is_passed:
                break
    return end


def first_record(
    log: CommitLogReader, file: CommitLogFile, *, whole_records: bool = False
) -> LocatedRecord | None:
    """Return the record at the beginning of a file; None if a recovering broker would not read it.

    For `whole_records` see `recovered_end`. Raises StoreAccessError, StoreChangedError.
    """
    walk = LogWalk(log, file.start, file.start + 1, in_place=False)
    record = next(iter(walk), None)
    return None if record is None or not _has_right_crc(record, whole_records) else record


def _end_within(
    log: CommitLogReader, file: CommitLogFile, start: int, whole_records: bool
) -> FileEnd:
    """Return the end of the readable records with the right CRC in one file."""
    walk = LogWalk(log, start, min(file.end, start + WALKED_BYTES), in_place=False)
    for record in walk:
        if walk.damage:
            break
        if not _has_right_crc(record, whole_records):
            return FileEnd(record.physical_offset, False)
    if walk.damage or walk.position >= file.end:
        return end_of_file(walk.verdict(), file)
    if walk.at_end:
        return FileEnd(walk.position, False)
    # Imported only if much of the file is left: the import of numba takes longer than the walk above.
    from reput.core.log.kernel_scan import end_within

    return end_within(file, walk.position, log.source.open, whole_records=whole_records)


def _has_right_crc(record: LocatedRecord, whole_records: bool) -> bool:
    if whole_records:
        return has_right_record_crc(record.record())
    return crc_matches(record.data, record.layout)
