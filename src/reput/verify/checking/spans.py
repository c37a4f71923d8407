"""Which entries of an index are of messages in which file of the log: what lets each file be checked on its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

BEFORE, BEYOND = -1, -2
"""In place of a file's number: of messages that have expired, and from the end of the log on."""


class Span(NamedTuple):
    """Numbers of the first and last entry of a file's messages, and how many are; others may lie between."""

    first: int
    last: int
    total: int


@dataclass(frozen=True, slots=True)
class LogEdges:
    """Physical offsets at which the files of a log begin, and where the log ends."""

    starts: tuple[int, ...]
    end: int

    def files_of(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The number of the file that each offset lies in, or BEFORE, or BEYOND."""
        numbers = np.searchsorted(np.array(self.starts, np.int64), offsets, side="right") - 1
        numbers[offsets >= self.end] = BEYOND
        return numbers.astype(np.int64)


class Spans:
    """Collects the span of each file of the log; entries come in any order, mostly that of the log."""

    def __init__(self, edges: LogEdges) -> None:
        self._edges = edges
        self.by_file: dict[int, Span] = {}

    def add(self, offsets: npt.NDArray[np.int64], first: int) -> None:
        """Of entries numbered from `first` on."""
        if not len(offsets):
            return
        files = self._edges.files_of(offsets)
        begins = np.concatenate([[0], np.flatnonzero(np.diff(files)) + 1])
        ends = np.concatenate([begins[1:], [len(files)]])
        for begin, end, file in zip(
            begins.tolist(), ends.tolist(), files[begins].tolist(), strict=True
        ):
            known = self.by_file.get(file)
            low, high = first + begin, first + end - 1
            if known is not None:
                low, high = min(known.first, low), max(known.last, high)
            count = end - begin + (known.total if known is not None else 0)
            self.by_file[file] = Span(low, high, count)
