"""Find where a starting broker ends its log: at the first record that is unreadable or has a wrong CRC.

The record from which a broker checks its log depends on how the store was shut down: see
`reput.engine.writer.recovery.broker_start`. `reput.engine.writer.log_ends` has the ends for readers and for a rebuild.
"""

from __future__ import annotations

from reput.core.log.files import CommitLogFile
from reput.core.log.reader import CommitLogReader
from reput.core.log.record import LocatedRecord
from reput.core.log.verdict import FileEnd, end_of_file
from reput.core.log.walk import WALKED_BYTES, LogWalk
from reput.format.commit_log import crc_matches, has_right_record_crc


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


def first_readable_record(
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
