"""Ranges of the CommitLog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from reput.base import Finding


class OffsetRange(NamedTuple):
    """Physical offsets [start, stop)."""

    start: int
    stop: int

    @property
    def size_bytes(self) -> int:
        return self.stop - self.start

    @staticmethod
    def of(damage: Iterable[Finding]) -> list[OffsetRange]:
        """Return the log ranges of findings. Raises ValueError for a finding that is not about a range."""
        return [OffsetRange(lost.start, lost.stop) for lost in damage]

    @staticmethod
    def merged(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        """Merge adjacent and overlapping ranges, which must ascend by start, and return all ranges in order."""
        merged_ranges: list[OffsetRange] = []
        for part in ranges:
            if merged_ranges and part.start <= merged_ranges[-1].stop:
                merged_ranges[-1] = OffsetRange(
                    merged_ranges[-1].start, max(merged_ranges[-1].stop, part.stop)
                )
            elif part.start < part.stop:
                merged_ranges.append(part)
        return tuple(merged_ranges)

    def without(self, holes: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Return the parts of this range outside the holes, in ascending order. The holes may overlap."""
        parts, start = [], self.start
        for hole in sorted(holes):
            if start < min(hole.start, self.stop):
                parts.append(OffsetRange(start, min(hole.start, self.stop)))
            start = max(start, hole.stop)
        if start < self.stop:
            parts.append(OffsetRange(start, self.stop))
        return parts


def newest_first(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Merge adjacent and overlapping ranges, and return all ranges in descending order."""
    return OffsetRange.merged(sorted(ranges))[::-1]


def common(first: Iterable[OffsetRange], *others: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the ranges that are in every one of these sets of ranges, in ascending order."""
    ranges = list(OffsetRange.merged(sorted(first)))
    for other in others:
        ranges = list(_overlaps(ranges, list(OffsetRange.merged(sorted(other)))))
    return ranges


def _overlaps(first: Sequence[OffsetRange], second: Sequence[OffsetRange]) -> Iterator[OffsetRange]:
    """Yield what two lists of disjoint, ascending ranges have in common."""
    n = m = 0
    while n < len(first) and m < len(second):
        start, stop = max(first[n].start, second[m].start), min(first[n].stop, second[m].stop)
        if start < stop:
            yield OffsetRange(start, stop)
        if first[n].stop <= second[m].stop:
            n += 1
        else:
            m += 1
