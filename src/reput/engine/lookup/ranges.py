"""Plan the look-up in one store: ranges that an IndexFile covers, and ranges that are scanned in parallel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from reput.base import Finding, Kind
from reput.core import (
    CommitLogFile,
    CommitLogReader,
    Coverage,
    Evidence,
    IndexPart,
    Judge,
    LogWalk,
    NamedKey,
    OffsetRange,
    Segment,
    StoreReader,
    TimeWindow,
    WalkVerdict,
    batch_topics,
    within_range,
    without_keys,
)
from reput.engine.compare import Proved
from reput.engine.lookup.candidates import CandidateRun, StorePlace
from reput.engine.lookup.coverage import LostSegment, PartlyRead
from reput.engine.lookup.index_task import IndexFound
from reput.engine.lookup.key_parts import KeyPart
from reput.engine.lookup.match_task import MatchTask, RunSlice
from reput.engine.lookup.scan_task import LookupScanTask, ScanFound
from reput.engine.rebuild import DEFAULT_SPLIT_BYTES

# A cell is a range of the log. Each task reads the candidates in some cells. Cells are small enough to balance the
# tasks, and few enough for the driver's memory.
_CELL_BYTES = 16 << 20
_MOST_CELLS = 4096
# Minimum and maximum number of candidates per task.
_LEAST_TASK_CANDIDATES = 1 << 14
_MOST_TASK_CANDIDATES = 1 << 19
# At most this many stale entries of an index part are examined for records that have lost a key.
_MOST_STALE = 1 << 12


@dataclass(slots=True)
class ScannedRange:
    """A range to scan for records that begin in [begin, stop) of one file. A record is known to begin at `begin`.

    The range is scanned in splits, one per task.

    is_read      True if damage in the range must not be reported: an earlier scan has found it, or no message of the
                 range is in the time window
    segment      None if no IndexFile covers the range; the range is then scanned for all keys. Otherwise, the number of
                 the segment (range of one IndexFile) that contains the range; the range is then scanned only for the
                 keys for which the IndexFile is not trusted
    position     physical offset up to which the range has been read
    known        damage that a scan cannot find (`KeyIndex.compared`)
    at_end       whether `position` is the end of the log
    """

    file: CommitLogFile
    begin: int
    stop: int
    is_read: bool = False
    segment: int | None = None
    position: int = 0
    at_end: bool = False
    damage: list[Finding] = field(default_factory=list)
    known: tuple[Finding, ...] = ()
    runs: list[CandidateRun] = field(default_factory=list)
    _splits: list[LookupScanTask] = field(default_factory=list)
    _found: dict[int, ScanFound] = field(default_factory=dict)

    @property
    def scanned(self) -> OffsetRange:
        return OffsetRange(self.begin, max(min(self.position, self.stop), self.begin))

    def cut(
        self,
        store: StorePlace,
        first_number: int,
        wanted: str,
        parts: Sequence[tuple[int, KeyPart]],
        only: npt.NDArray[np.int64] | None = None,
    ) -> list[LookupScanTask]:
        """Return tasks that scan the range, numbered from `first_number` on."""
        pieces = self.file.cut(self.begin, self.stop, DEFAULT_SPLIT_BYTES)
        self._splits = [
            LookupScanTask(
                store, self.file, wanted, tuple(parts), number, begin, stop,
                begin if begin == self.begin else None, only,
            )
            for number, (begin, stop) in enumerate(pieces, first_number)
        ]  # fmt: skip
        return self._splits

    @property
    def splits(self) -> Sequence[LookupScanTask]:
        return self._splits

    def take(self, result: ScanFound) -> None:
        self._found[result.number] = result

    def rescan(self) -> LookupScanTask | None:
        """Return the first split whose beginning was guessed wrong. The split must be scanned again.

        Return None if all guesses are right. A guess is right if the split begins where the previous split ended.
        """
        expected = self.begin
        self.runs, damage = [], self.damage if self.is_read else []
        for split in self._splits:
            if expected >= split.stop:
                # No record begins in this split: the last record of an earlier split reaches beyond it.
                continue
            result = self._found[split.number]
            # The split guessed a wrong beginning, or found no record. Scan it again from the end of the previous split,
            # where a record certainly begins.
            if result.start != expected:
                return replace(split, start=expected)
            self.runs += result.runs
            damage += [] if self.is_read else result.damage
            self.position = expected = result.end
            if result.finished:
                if result.unreadable and not self.is_read:
                    # `finish` decides whether the log ends before the unreadable bytes, or these bytes are damaged.
                    rest = self.file.lost(result.end, self.file.end, result.unreadable)
                    verdict = WalkVerdict(rest.stop, [*damage, rest], is_unreadable=True)
                    self.position = verdict.tail_start
                    damage = [lost for lost in damage if lost.start < self.position]
                break
        self.damage = damage if self.is_read else [*self.known, *damage]
        return None

    def finish(self, log: CommitLogReader) -> None:
        """Walk over the unreadable bytes at the end, to find out whether they are damage or the end of the log."""
        if self.is_read:
            self.position = self.stop
        if self.position < self.stop:
            walk = LogWalk(log, self.position, self.stop)
            for _ in walk:
                pass
            self.damage += walk.damage
            self.position, self.at_end = walk.position, walk.at_end


class LogCells:
    """Divides the log into cells: ranges of equal size. A task reads the candidates in some adjacent cells.

    edges  int64, physical offsets at which cells begin, and the end of the last cell
    """

    def __init__(self, files: Sequence[CommitLogFile]) -> None:
        total = sum(file.size for file in files)
        # For each run (file of candidates), the driver remembers at which row of the file the candidates of each cell
        # begin. The number of cells is limited, so that these row numbers need little memory. Therefore, a large log
        # has larger cells.
        step = max(_CELL_BYTES, -(-total // _MOST_CELLS))
        begins = [begin for file in files for begin in range(file.start, file.end, step)]
        edges = sorted({*begins, *(file.end for file in files)})
        self.edges: npt.NDArray[np.int64] = np.array(edges, np.int64)
        self._files = files
        starts = np.array([file.start for file in files])
        place = np.searchsorted(starts, self.edges[:-1], side="right") - 1
        # If a log file is missing, a cell (range of the log) covers its place. This cell gets the number of the
        # preceding file, and `tasks` skips the cell.
        self._file_of = place.tolist()

    def tasks(
        self,
        store: StorePlace,
        runs: Iterable[CandidateRun],
        parallelism: int,
        first_number: int,
    ) -> list[MatchTask]:
        """Divide the candidates in `runs` (files of candidates) among tasks of about the same size.

        Return the tasks, numbered from `first_number` on.
        """
        by_cell: dict[int, list[RunSlice]] = defaultdict(list)
        total = 0
        for run in runs:
            bounds = run.bounds.tolist()
            total += bounds[-1] - bounds[0]
            for cell, (start, stop) in enumerate(pairwise(bounds)):
                if start < stop:
                    by_cell[run.first_cell + cell].append(
                        RunSlice(run.path, run.segment, start, stop)
                    )
        # Four tasks per processor, so that a slow task does not delay the end.
        share = total // (4 * parallelism) + 1
        share = min(max(share, _LEAST_TASK_CANDIDATES), _MOST_TASK_CANDIDATES)
        tasks: list[MatchTask] = []
        files: dict[CommitLogFile, list[RunSlice]] = defaultdict(list)
        taken = 0
        for cell in sorted(by_cell):
            file = self._files[self._file_of[cell]]
            # The log file at this place is missing, so the candidates here cannot be compared with records.
            if file.end <= self.edges[cell]:
                continue
            files[file] += by_cell[cell]
            taken += sum(part.stop - part.start for part in by_cell[cell])
            if taken >= share:
                tasks.append(_task(first_number + len(tasks), store, files))
                files, taken = defaultdict(list), 0
        if files:
            tasks.append(_task(first_number + len(tasks), store, files))
        return tasks


def _task(number: int, store: StorePlace, files: dict[CommitLogFile, list[RunSlice]]) -> MatchTask:
    parts = tuple((file, tuple(_joined(slices))) for file, slices in files.items())
    return MatchTask(number, store, parts)


def _joined(slices: list[RunSlice]) -> list[RunSlice]:
    """Join slices of the same run (file of candidates) if their rows are adjacent."""
    joined: dict[str, list[RunSlice]] = defaultdict(list)
    for part in slices:
        of_run = joined[part.path]
        if of_run and of_run[-1].stop == part.start:
            of_run[-1] = of_run[-1]._replace(stop=part.stop)
        else:
            of_run.append(part)
    return [part for of_run in joined.values() for part in of_run]


class StorePlan:
    """The plan for one store: its segments, and their results.

    runs    staged files of candidates (offsets at which messages with requested keys may be)
    broken  maps the number of a segment to the numbers of the keys whose chains are broken in this segment
    ranges  the ranges to scan for all keys
    batch_topics  topics (5.x) whose records may be inner batches
    has_replaced_ids  whether a record (5.x) may have several UNIQ_KEYs, of which the index has only the last one
    """

    def __init__(
        self, number: int, store: StoreReader, judge: Judge | None = None, name: str | None = None
    ) -> None:
        """Plan the look-up in a store.

        `judge` decides for which ranges of the log each IndexFile can be trusted. Without a judge, the constructor
        compares all IndexFiles with the log: by a proof (`Proved`) in a local store, by spot checks in a remote store.
        `name` is the value of the column `store`, by default the path.
        """
        self.number, self.path, self.log = number, store.path, store.commit_log
        self.place = StorePlace(number, name or store.path, store.log_storage, self.log.source)
        # A proof that an IndexFile covers its range of the log has to read much of that log. In a remote store, reading
        # the log would take too long, so IndexFiles are only spot-checked.
        if judge is None and store.storage.is_local:
            judge = Proved(store.own_log, store.index.current())
        planner = self._planner = store.key_planner(judge)
        self.segments = planner.segments()
        self.batch_topics = batch_topics(store.path, store.storage)
        self.has_replaced_ids = store.may_have_replaced_ids
        self._known_ranges = store.known_ranges
        self._files_end = self.log.files_end
        self.problems = planner.problems
        self.cells = LogCells(self.log.files)
        self.runs: list[CandidateRun] = []
        self.broken: dict[int, npt.NDArray[np.int64]] = {}
        self.ranges = [self._range(segment) for segment in self.segments if segment.part is None]

    def _range(self, segment: Segment) -> ScannedRange:
        file = self.log.file_at(segment.start)
        # A segment to scan lies within one file.
        assert file is not None
        is_read = segment.records is not None
        known = () if is_read else tuple(self._planner.without_keys(*segment.range))
        damage = list(segment.damage)
        return ScannedRange(file, segment.start, segment.stop, is_read, damage=damage, known=known)

    def lost_records(self, names: Collection[NamedKey]) -> list[tuple[NamedKey, Finding]]:
        """See `Planner.lost_records`."""
        return self._planner.lost_records(names)

    def indexed(self, window: TimeWindow | None) -> Iterator[tuple[int, IndexPart, OffsetRange]]:
        """Yield for each segment that an index covers: its number, its part of the index, and the range to search.

        The range has all messages of the segment that may be in the time window. Segments without such messages are
        skipped.

        Raises StoreAccessError, StoreChangedError.
        """
        for number, segment in enumerate(self.segments):
            if (part := segment.part) is not None:
                within = segment.range
                if window is not None:
                    within = part.at_times(self.log, window, within)
                if within.start < within.stop:
                    yield number, part, within

    def to_scan(self, window: TimeWindow | None) -> Iterator[ScannedRange]:
        """Yield the ranges to scan that may have messages of a time window (`reput.core.log.known_ranges`).

        The other ranges need no scan, and are marked as read.
        """
        for part in self.ranges:
            times = None
            if window is not None:
                times = self._known_ranges.times(OffsetRange(part.begin, part.stop))
            if window is not None and times is not None and times.is_outside(*window):
                part.is_read = True
            else:
                yield part

    def ranges_of(self, number: int) -> list[ScannedRange]:
        """Return the ranges to scan instead of a segment's untrusted index, newest file first."""
        parts = list(self.log.parts(*self.segments[number].range))
        return [ScannedRange(file, *part, segment=number) for file, part in reversed(parts)]

    def take(self, result: IndexFound) -> None:
        self.runs += result.runs
        numbers = self.broken.get(result.segment, np.empty(0, np.int64))
        self.broken[result.segment] = np.append(numbers, result.lost)

    def partly_read(
        self, lost: Iterable[tuple[Finding, npt.NDArray[np.int64]]]
    ) -> Iterator[PartlyRead]:
        """Yield the unreadable ranges that affect only some keys, each with the numbers that identify these keys."""
        coverage = self.coverage()
        keys: dict[Finding, list[npt.NDArray[np.int64]]] = {}
        for finding, numbers in lost:
            keys.setdefault(finding, []).append(numbers)
        for finding in within_range(keys, coverage.log):
            # `coverage` already reports the ranges that are unreadable for all keys.
            if finding not in coverage.unreadable:
                numbers = np.unique(np.concatenate(keys[finding]))
                yield PartlyRead(self.number, numbers, (finding,))

    def coverage(self) -> Coverage:
        """Return how each range of the log was searched: through its index, or message by message.

        This coverage applies to each key whose index entries can all be trusted.

        Call this method only after all ranges have been scanned.
        """
        evidence = Evidence(self.log.source.name)
        evidence.problems += self.problems
        evidence.damage += self.log.holes()
        for part in self.ranges:
            evidence.scanned(*part.scanned)
            evidence.damage += part.damage
        for segment in self.segments:
            if segment.part is not None:
                evidence.indexed(segment.start, segment.stop, segment.part)
        # If a scan reached the end of the log, the log ends at the scan's position. Otherwise, it ends with the last
        # file.
        ends = [part.position for part in self.ranges if part.at_end]
        start = self.log.min_offset
        answered = OffsetRange(start, max(min([self._files_end, *ends]), start))
        if lost := self._planner.lost_end(answered.stop):
            evidence.damage.append(lost)
        return evidence.coverage(answered)

    def _damaged_records(
        self, part: IndexPart, offsets: npt.NDArray[np.int64]
    ) -> Iterator[Finding]:
        """Yield a finding for each record at an offset that has lost a key (`IndexPart.lost_record`)."""
        stale = np.unique(offsets[offsets >= 0])
        # More stale entries are of another state of the log.
        for offset in stale.tolist() if len(stale) <= _MOST_STALE else ():
            if lost := part.lost_record(self.log, offset):
                yield from without_keys(self.log, [lost])

    def lost_segment(
        self, number: int, keys: npt.NDArray[np.int64], ranges: Iterable[ScannedRange]
    ) -> LostSegment:
        """Return the coverage of a segment whose index has stale entries or broken chains for some keys.

        `keys` has pairs (number of the key, offset of its newest stale entry or -1). `ranges` were scanned for these
        keys.
        """
        segment, known = self.segments[number], self.coverage()
        evidence = Evidence(self.log.source.name)
        parts, part = list(ranges), segment.part
        assert part is not None
        for scanned in parts:
            evidence.scanned(*scanned.scanned)
            evidence.damage += scanned.damage
        evidence.damage += self._damaged_records(part, keys[:, 1])
        evidence.damage += known.unreadable
        stop = min(segment.stop, known.log.stop)
        coverage_of_rest = evidence.coverage(OffsetRange(min(segment.start, stop), stop))
        return LostSegment(
            self.number, number, keys[:, 0].copy(), keys[:, 1].copy(),
            Finding(
                Kind.STALE_INDEX_ENTRY, part.path,
                "entries of this key are damaged; "
                f"offsets {segment.start} to {segment.stop} were scanned",
            ),
            indexed_bytes=segment.stop - segment.start,
            scanned_bytes=sum(scanned.scanned.size_bytes for scanned in parts),
            unreadable_bytes=sum(lost.length for lost in set(coverage_of_rest.unreadable) - set(known.unreadable)),
        )  # fmt: skip
