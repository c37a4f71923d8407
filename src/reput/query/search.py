"""Exact queries: every candidate is read and compared, and what no index covers is scanned.

Segments are searched newest first until there is enough. Where the index shows itself wrong (a
broken chain, an entry whose record is not what the entry says), the segment's range is scanned
instead, and the result says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from reput.errors import CorruptMessageError, FormatError, MessageNotFoundError, UsageError
from reput.format.commit_log import MessageExt
from reput.query.plan import Segment
from reput.query.result import Coverage, IndexedRange, OffsetRange, QueryResult
from reput.query.scan import Found, Scanner
from reput.query.wanted import Wanted, WantedNothing, indexed_offsets
from reput.store.commit_log import CommitLog
from reput.store.damage import Damage
from reput.store.index_file_reader import IndexFileReader
from reput.store.keyed_record import KeyedRecord, read_keyed_record

_UNBOUNDED = 2**63


class StaleEntryError(FormatError):
    """An index entry whose record is not there, or not the entry's; `offset` is physical."""


class Search:
    """One query over the segments of a plan."""

    def __init__(
        self,
        log: CommitLog,
        wanted: Wanted,
        *,
        begin: int | None = None,
        end: int | None = None,
        limit: int | None = None,
        after: int | None = None,
    ) -> None:
        if limit is not None and limit < 1:
            raise UsageError(f"limit (--limit) must be at least 1, not {limit}")
        self._log, self._wanted = log, wanted
        self._begin = -_UNBOUNDED if begin is None else begin
        self._end = _UNBOUNDED if end is None else end
        self._limit = _UNBOUNDED if limit is None else limit
        self._before = _UNBOUNDED if after is None else after
        self._scanner = Scanner(log, wanted)
        self._messages: list[MessageExt] = []
        self._indexed: list[IndexedRange] = []
        self._scanned: list[OffsetRange] = []
        self._damage: list[Damage] = []
        self._problems: list[str] = []
        self._log_end = log.files_end

    def run(self, segments: Sequence[Segment], problems: Iterable[str] = ()) -> QueryResult:
        """Raises StoreAccessError, StoreChangedError."""
        self._problems += problems
        for segment in segments:
            if segment.start < self._before:
                if segment.file is not None:
                    self._look_up(segment, segment.file)
                else:
                    self._scan(segment)
            if self._is_enough:
                break
        return self._result()

    @property
    def _is_enough(self) -> bool:
        return len(self._messages) > self._limit

    def _result(self) -> QueryResult:
        cursor = None
        if self._is_enough:
            del self._messages[self._limit :]
            cursor = self._messages[-1].physical_offset
        start = self._log.min_offset if cursor is None else cursor
        answered = OffsetRange(start, max(min(self._log_end, self._before), start))
        self._damage += self._log.holes()
        coverage = Coverage(
            log=answered,
            indexed=tuple(self._indexed),
            scanned=tuple(_joined(self._scanned)),
            unreadable=tuple(_within(self._damage, answered)),
            problems=tuple(self._problems),
        )
        return QueryResult(tuple(self._messages), cursor, coverage)

    def _look_up(self, segment: Segment, file: IndexFileReader) -> None:
        mark, previous = len(self._messages), -1
        stop = min(segment.stop, self._before)
        seen = []
        try:
            for offset in indexed_offsets(file, self._wanted):
                if offset < segment.start:
                    break
                if offset < stop and offset != previous:
                    seen.append(offset)
                    previous = offset
                    self._take_indexed(offset, file.path)
                    if self._is_enough:
                        break
        except FormatError as error:
            del self._messages[mark:]
            scanned = f"offsets {segment.start} to {segment.stop} were scanned"
            self._problems.append(f"{error}; {scanned}")
            self._scan_range(segment.start, segment.stop, seen)
        else:
            self._indexed.append(IndexedRange(segment.start, segment.stop, file.name))

    def _take_indexed(self, offset: int, path: str) -> None:
        try:
            record = read_keyed_record(self._log.locate(offset))
        except MessageNotFoundError:
            if self._log.file_at(offset) is None:  # expired, or in a file that is lost
                return
            raise StaleEntryError(
                path, offset, "an entry points there, but no message begins there"
            ) from None
        except CorruptMessageError as error:
            raise StaleEntryError(path, offset, f"an entry's message: {error.reason}") from None
        if self._wanted.matches(record) and record.stated_offset == offset:
            self._take(record)
        elif record.stated_offset != offset or not any(
            map(record.has_key_hash, self._wanted.hashes)
        ):
            raise StaleEntryError(path, offset, "an entry points to a message that is not its own")

    def _take(self, record: KeyedRecord) -> None:
        if not self._begin <= record.store_timestamp <= self._end:
            return
        message = self._log.get(record.physical_offset)
        if message.physical_offset != record.physical_offset:
            message = replace(message, physical_offset=record.physical_offset)
        self._messages.append(message)

    def _scan(self, segment: Segment) -> None:
        if segment.records is None:
            self._scan_range(segment.start, segment.stop)
            return
        for record in segment.records:
            if record.physical_offset < self._before and self._wanted.matches(record):
                self._take(record)
        self._damage += segment.damage
        self._scanned.append(OffsetRange(segment.start, segment.stop))

    def _scan_range(self, start: int, stop: int, seen: Sequence[int] = ()) -> None:
        """Scan file by file, newest first, until there is enough; `seen` are further candidates."""
        stop = min(stop, self._before)
        for file in reversed(self._log.files):
            begin, end = max(start, file.start), min(stop, file.end)
            if begin < end and not self._is_enough:
                found = self._scanner.scan(begin, end)
                self._take_found(found, [offset for offset in seen if begin <= offset < end])
                self._scanned.append(OffsetRange(begin, max(min(found.position, end), begin)))

    def _take_found(self, found: Found, seen: Sequence[int]) -> None:
        self._damage += found.damage
        if found.at_end:
            self._log_end = min(self._log_end, found.position)
        for offset in sorted({*found.offsets, *seen}, reverse=True):
            try:
                record = read_keyed_record(self._log.locate(offset))
            except (MessageNotFoundError, CorruptMessageError):
                continue  # a `seen` one: the scan has told what it met there
            if offset < self._before and self._wanted.matches(record):
                self._take(record)


def _joined(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """The same ranges, newest first, adjacent ones as one."""
    joined: list[OffsetRange] = []
    for part in ranges:
        if joined and part.stop == joined[-1].start:
            joined[-1] = OffsetRange(part.start, joined[-1].stop)
        elif part.start < part.stop:
            joined.append(part)
    return joined


def _within(damage: Iterable[Damage], answered: OffsetRange) -> list[Damage]:
    """Damage in the range answered for, newest first."""
    inside = {
        lost
        for lost in damage
        if lost.physical_offset < answered.stop
        and answered.start < lost.physical_offset + lost.length
    }
    return sorted(inside, reverse=True)


def find_end(log: CommitLog, segments: Sequence[Segment]) -> int:
    """Where the log ends. Raises StoreAccessError, StoreChangedError."""
    end = log.files_end
    for segment in segments:
        if segment.file is not None:
            break
        found = Scanner(log, WantedNothing()).scan(segment.start, segment.stop)
        if not found.at_end:
            break
        end = found.position
    return end
