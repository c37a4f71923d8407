"""The ends of a log: for readers, for a rebuild, and of its bytes.

They are equal for a log that was written whole. Otherwise commands report the difference with the findings of
`LogEnds`. A plain walk over the last few MiB finds them, without a kernel. Where a broker that starts now
would end the log depends on how the store was shut down: `reput.recovery.log`.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from reput.findings import Finding, Kind
from reput.log.files import CommitLogFile
from reput.log.reader import CommitLogReader, LocatedRecord
from reput.log.record_search import find_record, is_copied_whole
from reput.log.sources import LogSource
from reput.log.walk import LogWalk

_LOOKED_BACK_BYTES = (8 << 20, 64 << 20)  # a record has 4 MiB at most, by default


@dataclass(frozen=True, slots=True)
class LogEnds:
    """Physical offsets.

    Attributes:
        reader: after the last record that is whole; the last of all may be in the making
        rebuild: after the last record that can be read, as a broker dispatches it
        data: after the last byte that is not zero; at most `rebuild` for a log without a torn end
        file: the last with data, None for a log without any
    """

    reader: int
    rebuild: int
    data: int
    file: CommitLogFile | None = None

    def findings(self) -> list[Finding]:
        """Why they are not one."""
        found = []
        file = self.file
        if file is not None and self.reader < self.rebuild:
            detail = (
                "the last record of the log is not whole: its CRC is wrong, or its last byte is zero; "
                "the table and exports end before it, a rebuild after it"
            )
            found.append(file.lost(self.reader, self.rebuild, detail, Kind.TORN_LOG_END))
        if file is not None and self.data > self.rebuild:
            detail = "what follows the last record is not a record"
            found.append(file.lost(self.rebuild, self.data, detail, Kind.TORN_LOG_END))
        return found


def find_log_ends(source: LogSource) -> LogEnds:
    """Walk the end of a log. Raises StoreError."""
    with closing(CommitLogReader(source)) as log:
        return _find(log)


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
        walk = LogWalk(log, start, file.end)
        for record in walk:
            newest = record.alone()
        end, start = walk.position, None
        if walk.damage and walk.damage[-1].stop == file.end == end:
            # The walk skipped the rest of the file: continue at the next verifiable record, if any.
            end = walk.damage[-1].start
            start = _record_from(log, file, end + 1)
    reader_end = end
    if newest is not None and not is_copied_whole(newest.record()):
        stop = newest.physical_offset + newest.layout.total_bytes + file.gap
        reader_end = newest.physical_offset if stop == end else end
    return LogEnds(reader_end, end, data, file)


def _record_near(log: CommitLogReader, file: CommitLogFile, data: int) -> int:
    """Where to begin: at a verifiable record some MiB before the last byte of the file, or at its beginning."""
    for length in _LOOKED_BACK_BYTES:
        if data - length > file.start and not file.gap:
            found = _record_from(log, file, data - length)
            if found is not None:
                return found
    return file.start


def _record_from(log: CommitLogReader, file: CommitLogFile, start: int) -> int | None:
    with closing(log.source.open(file.path)) as reader:
        return find_record(reader, file, start, file.end)
