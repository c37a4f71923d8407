"""The log cut into segments: those that an IndexFile covers, and those that must be scanned.

Between two IndexFiles lies at least the message whose keys may fall into both, so there are many
tiny segments to scan; their records are read once and kept. What lies behind the last entry of the
index is read for every query, for a broker may be writing there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from reput.format.checkpoint import Checkpoint
from reput.query.result import OffsetRange
from reput.query.verified import chains_hold, covered_ranges, entry_holds
from reput.store.commit_log import CommitLog
from reput.store.commit_log_files import CommitLogFile
from reput.store.damage import Damage
from reput.store.index_file_reader import IndexFileReader
from reput.store.index_service import IndexService
from reput.store.keyed_record import KeyedRecord, read_keyed_record
from reput.store.log_walk import LogWalk

_KEPT_BYTES = 64 << 10
_TAIL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Segment:
    """Messages that begin at physical offsets [start, stop).

    file     the IndexFile that covers them, None where they must be scanned
    records  of a scanned segment that is read already, newest first, with the damage in it
    """

    start: int
    stop: int
    file: IndexFileReader | None = None
    records: tuple[KeyedRecord, ...] | None = None
    damage: tuple[Damage, ...] = ()


@dataclass(frozen=True, slots=True)
class _Checked:
    """What an IndexFile with items 1 to `last` covers; `is_whole` when that is all of one piece."""

    last: int
    ranges: list[OffsetRange]
    problem: str = ""
    is_whole: bool = False


class Planner:
    """Keeps the plan for a store that may be growing.

    problems  one line for each IndexFile that is not believed
    """

    def __init__(self, log: CommitLog, index: IndexService, checkpoint: Checkpoint) -> None:
        self._log, self._index, self._checkpoint = log, index, checkpoint
        self._checked: dict[IndexFileReader, _Checked] = {}
        self._kept: dict[tuple[int, int], Segment] = {}
        self._log_files: list[CommitLogFile] = []
        self._planned_index: list[tuple[IndexFileReader, int]] = []
        self._segments: tuple[Segment, ...] | None = None
        self._trusted_until = 0
        self.problems: list[str] = []

    def segments(self) -> tuple[Segment, ...]:
        """Segments of the log as it is now, newest first; those to scan lie within one file each.

        Raises StoreNotFoundError, StoreAccessError, FormatError, UsageError.
        """
        self._log.refresh()
        self._index.refresh()
        if self._log.files != self._log_files:  # whoever noticed it first
            self._segments = None
        if self._segments is None:
            self._checked.clear()
            self._kept.clear()
        counts = [file.next_item for file in self._index.files]
        index = [*zip(self._index.files, counts, strict=True)]
        if self._segments is None or index != self._planned_index:
            is_new, self._segments = self._segments is None, None  # until the plan is whole
            self._log_files = self._log.files
            if is_new:
                self._trusted_until = self._log.files_end
                self._trusted_until = self._find_trusted_until(counts)
            segments = tuple(self._cut(counts))
            self._segments, self._planned_index = segments, index
        return self._segments

    def _cut(self, counts: list[int]) -> Iterator[Segment]:
        parts: list[Segment] = []
        position = self._log.min_offset
        for start, stop, file in self._covered_parts(counts):
            start = max(start, position)
            if start < stop:
                parts += self._scanned(position, start, keep=True)
                parts.append(Segment(start, stop, file))
                position = stop
        parts += self._scanned(position, self._log.files_end, keep=False)
        return reversed(parts)

    def _covered_parts(self, counts: list[int]) -> list[tuple[int, int, IndexFileReader]]:
        found = []
        self.problems = []
        checked_before, self._checked = self._checked, {}
        for file, next_item in zip(self._index.files, counts, strict=True):
            checked = self._check(file, next_item - 1, checked_before.get(file))
            self._checked[file] = checked
            if checked.problem:
                self.problems.append(f"{file.path}: {checked.problem}")
            for start, stop in checked.ranges:
                found.append((start, min(stop, self._trusted_until), file))
        return sorted(found, key=lambda part: part[:2])

    def _check(self, file: IndexFileReader, last: int, before: _Checked | None) -> _Checked:
        """What the file covers; only its last entry is looked at when it has merely grown."""
        if not file.is_consistent():
            return _Checked(last, [], "header and entries do not begin and end alike")
        if before is not None and before.last == last:
            return before
        grown = before is not None and before.is_whole and before.last < last
        if before is not None and grown and entry_holds(file, self._log, last):
            whole = OffsetRange(before.ranges[0].start, file.item(last).physical_offset)
            return _Checked(last, [whole], is_whole=True)
        if not chains_hold(file, last):
            return _Checked(last, [], "its slots do not lead to its entries")
        ranges = covered_ranges(file, self._log, last)
        is_whole = len(ranges) == 1 and ranges[0].stop == file.item(last).physical_offset
        return _Checked(last, ranges, is_whole=is_whole)

    def _scanned(self, start: int, stop: int, *, keep: bool) -> Iterator[Segment]:
        """Segments to scan, one for each CommitLog file, oldest first."""
        files = self._log.files
        for number in range(bisect_right(files, start, key=lambda file: file.end), len(files)):
            begin, end = max(start, files[number].start), min(stop, files[number].end)
            if begin >= stop:
                return
            if begin < end:
                small = keep and end - begin <= _KEPT_BYTES
                yield self._read(begin, end) if small else Segment(begin, end)

    def _read(self, start: int, stop: int) -> Segment:
        segment = self._kept.get((start, stop))
        if segment is None:
            walk = LogWalk(self._log, start, stop)
            records = tuple(reversed([read_keyed_record(record) for record in walk]))
            segment = Segment(start, stop, records=records, damage=tuple(walk.damage))
            self._kept[start, stop] = segment
        return segment

    def _find_trusted_until(self, counts: list[int]) -> int:
        """How far to believe the index: to the end of the log, or not in the file that it ends in.

        A broker's checkpoint has the store time of the last message it dispatched. When the log
        ends, behind the last entry of the index, with an older one, then that entry points to what
        is left of a log that was cut short, and newer messages lie before it. A broker deletes the
        files behind such a cut, so all of this happens within one file.
        """
        tail = self._log.files_end
        for segment in self._cut(counts):
            if segment.file is not None:
                break
            tail = segment.start
        walk = LogWalk(self._log, tail, tail + _TAIL_BYTES)
        newest = max((read_keyed_record(record).store_timestamp for record in walk), default=0)
        last_file = self._log.file_at(walk.position - 1)
        if walk.at_end and last_file and newest < self._checkpoint.logics_msg_timestamp:
            return last_file.start
        return self._log.files_end
