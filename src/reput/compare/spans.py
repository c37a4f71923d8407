"""Assign the entries of an index to the files of the log, so that each file can be checked separately."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

BEFORE, BEYOND = -1, -2
"""In place of a file's number: for messages that have expired, and for offsets at or after the end of the log."""

_NO_OFFSET = 1 << 63


class Span(NamedTuple):
    """Numbers of the first and the last entry that lead into a file, and their count; other entries may lie between."""

    first: int
    last: int
    total: int


@dataclass(frozen=True, slots=True)
class LogEdges:
    """Physical offsets at which the files of a log begin, and at which the log ends."""

    starts: tuple[int, ...]
    end: int

    def files_of(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the number of the file for each offset, BEFORE or BEYOND."""
        numbers = np.searchsorted(np.array(self.starts, np.int64), offsets, side="right") - 1
        numbers[offsets >= self.end] = BEYOND
        return numbers.astype(np.int64)

    def file_and_end(self, offset: int) -> tuple[int, int]:
        """Return the number of the file for one offset, and the offset at which that file ends."""
        if offset >= self.end:
            return BEYOND, _NO_OFFSET
        number = bisect_right(self.starts, offset) - 1
        following = self.starts[number + 1] if number + 1 < len(self.starts) else self.end
        return number, min(following, self.end)


class Spans:
    """Collects the span of each file of the log. Entries may come in any order."""

    def __init__(self, edges: LogEdges) -> None:
        self._edges = edges
        self.by_file: dict[int, Span] = {}

    def add_ordered(self, count: int, first: int, offset_of: Callable[[int], int]) -> None:
        """Add `count` entries numbered from `first` on, which are in the order of the log.

        A bisection with `offset_of` reads few of their offsets.
        """
        begin = 0
        while begin < count:
            file, edge = self._edges.file_and_end(offset_of(begin))
            end = bisect_left(range(count), edge, begin, key=offset_of)
            self._note(file, first + begin, first + end - 1, end - begin)
            begin = end

    def add(self, offsets: npt.NDArray[np.int64], first: int) -> None:
        """Add the entries with these offsets, numbered from `first` on."""
        if not len(offsets):
            return
        files = self._edges.files_of(offsets)
        begins = np.concatenate([[0], np.flatnonzero(np.diff(files)) + 1])
        ends = np.concatenate([begins[1:], [len(files)]])
        for begin, end, file in zip(
            begins.tolist(), ends.tolist(), files[begins].tolist(), strict=True
        ):
            self._note(file, first + begin, first + end - 1, end - begin)

    def _note(self, file: int, low: int, high: int, count: int) -> None:
        known = self.by_file.get(file)
        if known is not None:
            low, high, count = min(known.first, low), max(known.last, high), count + known.total
        self.by_file[file] = Span(low, high, count)
