"""Where a broker finds the end of a log.

Mirrors `CommitLog.recoverNormally` and `.recoverAbnormally` (tag rocketmq-all-4.9.3), as far as they look for the end.
"""

from __future__ import annotations

from reput.format.commit_log import crc_matches
from reput.log.files import CommitLogFile
from reput.log.reader import CommitLogReader
from reput.log.verdict import end_for_broker
from reput.log.walk import LogWalk

_WALKED_BYTES = 8 << 20


def recovered_end(log: CommitLogReader, start: int) -> int:
    """Where a broker finds the end of the log that checks its records from `start` on.

    Raises StoreAccessError, StoreChangedError.
    """
    for file in log.files:
        if file.end > start:
            end = _end_within(log, file, max(start, file.start))
            if end < file.end:
                return end
    return log.files_end


def _end_within(log: CommitLogReader, file: CommitLogFile, start: int) -> int:
    """Where the records of one file end that can be read and have the right CRC."""
    walk = LogWalk(log, start, min(file.end, start + _WALKED_BYTES))
    for record in walk:
        if walk.damage:
            break
        if not crc_matches(record.data, record.layout):
            return record.physical_offset
    if walk.damage or walk.at_end or walk.position >= file.end:
        return end_for_broker(walk.verdict())
    from reput.recovery.kernel_crc import end_within

    return end_within(file, walk.position, log.source.open)
