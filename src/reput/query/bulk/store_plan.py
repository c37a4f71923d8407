"""One store of a look-up: what an IndexFile covers, what is scanned, and what that covers in the end."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from reput.query.bulk.candidates import Run
from reput.query.bulk.cells import Cells
from reput.query.bulk.coverage import LostSegment
from reput.query.bulk.index_task import IndexFound
from reput.query.bulk.ranges import ScannedRange
from reput.query.plan import Planner, Segment
from reput.query.result import Coverage, IndexedRange, OffsetRange, joined_ranges, within_range
from reput.store.store_reader import StoreReader


class StorePlan:
    """One store: its segments as they are planned, and what comes of them.

    runs    candidates
    broken  by segment: numbers of keys whose chains are broken
    ranges  what is scanned for all keys
    """

    def __init__(self, number: int, store: StoreReader) -> None:
        self.number, self.path, self.log = number, store.path, store.commit_log
        planner = Planner(store.commit_log, store.index, store.checkpoint())
        self.segments = planner.segments()
        self.problems = [*store.index.problems, *planner.problems]
        self.cells = Cells(self.log.files)
        self.runs: list[Run] = []
        self.broken: dict[int, npt.NDArray[np.int64]] = {}
        self.ranges = [self._range(segment) for segment in self.segments if segment.file is None]

    def _range(self, segment: Segment) -> ScannedRange:
        file = self.log.file_at(segment.start)
        assert file is not None  # a segment to scan lies within a file
        is_read = segment.records is not None
        damage = list(segment.damage)
        return ScannedRange(file, segment.start, segment.stop, is_read, damage=damage)

    def ranges_of(self, number: int) -> list[ScannedRange]:
        """What to scan where a segment's index is not believed, newest file first."""
        segment = self.segments[number]
        return [
            ScannedRange(
                file, max(segment.start, file.start), min(segment.stop, file.end), segment=number
            )
            for file in reversed(self.log.files)
            if max(segment.start, file.start) < min(segment.stop, file.end)
        ]

    def take(self, found: IndexFound) -> None:
        self.runs += found.runs
        known = self.broken.get(found.segment, np.empty(0, np.int64))
        self.broken[found.segment] = np.append(known, found.lost)

    def coverage(self) -> Coverage:
        """For keys whose entries can all be believed; right when the ranges are finished."""
        damage = [lost for part in self.ranges for lost in part.damage] + self.log.holes()
        ends = [part.position for part in self.ranges if part.at_end]
        start = self.log.min_offset
        answered = OffsetRange(start, max(min([self.log.files_end, *ends]), start))
        return Coverage(
            log=answered,
            indexed=tuple(
                IndexedRange(segment.start, segment.stop, segment.file.name)
                for segment in self.segments
                if segment.file is not None
            ),
            scanned=tuple(joined_ranges(part.scanned for part in self.ranges)),
            unreadable=tuple(within_range(damage, answered)),
            problems=tuple(self.problems),
        )

    def lost_segment(
        self, number: int, keys: npt.NDArray[np.int64], ranges: Iterable[ScannedRange]
    ) -> LostSegment:
        """A segment that keys (number, newest stale offset) do not believe, and the ranges scanned for them."""
        segment, known = self.segments[number], self.coverage()
        parts = list(ranges)
        damage = within_range((lost for part in parts for lost in part.damage), known.log)
        assert segment.file is not None
        return LostSegment(
            self.number, number, keys[:, 0].copy(), keys[:, 1].copy(),
            f"{segment.file.path}: entries of this key are damaged; "
            f"offsets {segment.start} to {segment.stop} were scanned",
            indexed_bytes=segment.stop - segment.start,
            scanned_bytes=sum(part.scanned.size_bytes for part in parts),
            unreadable_bytes=sum(lost.length for lost in set(damage) - set(known.unreadable)),
        )  # fmt: skip
