"""Where a broker finds the end of a log.

Mirrors `CommitLog.recoverNormally` and `.recoverAbnormally` (tag rocketmq-all-4.9.3), as far as they look for the end,
and what `CommitLog.checkMessageAndReturnSize` of 5.3.3 compares with `forceVerifyPropCRC`.
"""

from __future__ import annotations

from reput.format.commit_log import crc_matches
from reput.format.record_crc import has_right_record_crc
from reput.log.files import CommitLogFile
from reput.log.reader import CommitLogReader, LocatedRecord
from reput.log.verdict import end_for_broker
from reput.log.walk import LogWalk

_WALKED_BYTES = 8 << 20


def recovered_end(log: CommitLogReader, start: int, *, whole_records: bool = False) -> int:
    """Where a broker finds the end of the log that checks its records from `start` on.

    It compares the CRCs of bodies; with `whole_records` (`StoreConfig.check_record_crc`) those of records, and ends the
    log at one without. Raises StoreAccessError, StoreChangedError.
    """
    for file in log.files:
        if file.end > start:
            end = _end_within(log, file, max(start, file.start), whole_records)
            if end < file.end:
                return end
    return log.files_end


def _end_within(log: CommitLogReader, file: CommitLogFile, start: int, whole_records: bool) -> int:
    """Where the records of one file end that can be read and have the right CRC."""
    walk = LogWalk(log, start, min(file.end, start + _WALKED_BYTES))
    for record in walk:
        if walk.damage:
            break
        if not _has_right_crc(record, whole_records):
            return record.physical_offset
    if walk.damage or walk.at_end or walk.position >= file.end:
        return end_for_broker(walk.verdict())
    from reput.recovery.kernel_crc import end_within

    return end_within(file, walk.position, log.source.open, whole_records=whole_records)


def _has_right_crc(record: LocatedRecord, whole_records: bool) -> bool:
    if whole_records:
        return has_right_record_crc(record.record())
    return crc_matches(record.data, record.layout)
