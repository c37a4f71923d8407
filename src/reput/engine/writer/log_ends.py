"""Find the ends of a log: the end for readers, the end for a rebuild, and the end of its data.

The ends are equal if the last record was written completely. Otherwise commands report the findings of `LogEnds`, which
explain the difference. A walk in plain Python over the last few MiB finds the ends.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from reput.base import Finding, Kind
from reput.core import (
    CommitLogFile,
    CommitLogReader,
    LocatedRecord,
    LogSource,
    LogWalk,
    OffsetRange,
    end_of_whole,
    find_record,
)

# A record is searched for in the last 8 MiB before the end. If no record begins there, the last 64 MiB are searched.
# With the default settings, a record has at most 4 MiB, so 8 MiB are enough.
_LOOKED_BACK_BYTES = (8 << 20, 64 << 20)
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
