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


def ranges_of(damage: Iterable[Finding]) -> list[OffsetRange]:
    """Return the log ranges of findings. Raises ValueError for a finding that is not about a range."""
    return [OffsetRange(lost.start, lost.stop) for lost in damage]


def merged(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Merge adjacent and overlapping ranges, and return all ranges in order. The given ranges must ascend by start."""
    found: list[OffsetRange] = []
    for part in ranges:
        if found and part.start <= found[-1].stop:
            found[-1] = OffsetRange(found[-1].start, max(found[-1].stop, part.stop))
        elif part.start < part.stop:
            found.append(part)
    return tuple(found)


def newest_first(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Merge adjacent and overlapping ranges, and return all ranges in descending order."""
    return merged(sorted(ranges))[::-1]


def without(whole: OffsetRange, holes: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the parts of a range outside the holes, in ascending order. The holes may overlap."""
    left, start = [], whole.start
    for hole in sorted(holes):
        if start < min(hole.start, whole.stop):
            left.append(OffsetRange(start, min(hole.start, whole.stop)))
        start = max(start, hole.stop)
    if start < whole.stop:
        left.append(OffsetRange(start, whole.stop))
    return left


def common(first: Iterable[OffsetRange], *others: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the ranges that are in every one of these sets of ranges, in ascending order."""
    left = list(merged(sorted(first)))
    for other in others:
        parts = merged(sorted(other))
        left = [
            OffsetRange(max(one.start, part.start), min(one.stop, part.stop))
            for one in left
            for part in parts
            if one.start < part.stop and part.start < one.stop
        ]
    return left
