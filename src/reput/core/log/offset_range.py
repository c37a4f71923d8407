"""Ranges of the CommitLog."""

from __future__ import annotations

from collections.abc import Iterable
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
        found: list[OffsetRange] = []
        for part in ranges:
            if found and part.start <= found[-1].stop:
                found[-1] = OffsetRange(found[-1].start, max(found[-1].stop, part.stop))
            elif part.start < part.stop:
                found.append(part)
        return tuple(found)

    def without(self, holes: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Return the parts of this range outside the holes, in ascending order. The holes may overlap."""
        left, start = [], self.start
        for hole in sorted(holes):
            if start < min(hole.start, self.stop):
                left.append(OffsetRange(start, min(hole.start, self.stop)))
            start = max(start, hole.stop)
        if start < self.stop:
            left.append(OffsetRange(start, self.stop))
        return left


def newest_first(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Merge adjacent and overlapping ranges, and return all ranges in descending order."""
    return OffsetRange.merged(sorted(ranges))[::-1]


def common(first: Iterable[OffsetRange], *others: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the ranges that are in every one of these sets of ranges, in ascending order."""
    left = list(OffsetRange.merged(sorted(first)))
    for other in others:
        parts = OffsetRange.merged(sorted(other))
        left = [
            OffsetRange(max(one.start, part.start), min(one.stop, part.stop))
            for one in left
            for part in parts
            if one.start < part.stop and part.start < one.stop
        ]
    return left
