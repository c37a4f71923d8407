"""Group scattered records of a CommitLog file into ranges that are read together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.core.log.files import CommitLogFile

Offsets = npt.NDArray[np.int64]

# If the gap between two ranges is at most this long, one read covers both ranges and the gap: reading the gap takes no
# longer than a second read.
_GAP_BYTES = 8 << 10


class Window(NamedTuple):
    """Records to be read into one buffer.

    first    number of the first record
    ranges   the ranges that are read, each as (position in the buffer, physical offset, length). A range may contain
             several records
    begins   int64, position in the buffer at which each record begins
    ends     int64, position in the buffer at which the range with the record ends
    ends_at  int64, physical offset at which the range with the record ends
    """

    first: int
    data: npt.NDArray[np.uint8]
    ranges: list[tuple[int, int, int]]
    begins: Offsets
    ends: Offsets
    ends_at: Offsets

    @classmethod
    def group(
        cls, offsets: Offsets, needed: Offsets, file: CommitLogFile, window_bytes: int
    ) -> Iterator[Window]:
        """Group records at ascending offsets into windows of about `window_bytes`. Read `needed` bytes of each."""
        stops = np.minimum(offsets + needed, file.end)
        # The needed bytes of one record may end after the needed bytes of the following records. So compare the
        # beginning of each record with the farthest end of all earlier records.
        reach = np.maximum.accumulate(stops)
        apart = np.append(True, offsets[1:] > reach[:-1] + _GAP_BYTES)
        # A range is never split between windows, so a long range would make its window too large. So end a range after
        # about a quarter of `window_bytes`, even if the next record is adjacent.
        apart |= np.append(True, np.diff(offsets // (window_bytes // 4)) > 0)
        range_first = np.flatnonzero(apart)
        range_of = np.cumsum(apart) - 1
        range_begin = offsets[range_first]
        range_end = np.maximum.reduceat(stops, range_first)
        lengths = range_end - range_begin
        filled = np.cumsum(lengths)
        window_of = (filled - lengths) // window_bytes
        for ranges in np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(window_of)) + 1):
            positions = np.cumsum(lengths[ranges]) - lengths[ranges]
            first = range_first[ranges[0]]
            last = (
                range_first[ranges[-1] + 1] if ranges[-1] + 1 < len(range_first) else len(offsets)
            )
            own = range_of[first:last] - ranges[0]
            begins = positions[own] + offsets[first:last] - range_begin[ranges[own]]
            ends = positions[own] + lengths[ranges[own]]
            triples = zip(
                positions.tolist(),
                range_begin[ranges].tolist(),
                lengths[ranges].tolist(),
                strict=True,
            )
            data = np.empty(int(lengths[ranges].sum()), np.uint8)
            yield cls(int(first), data, list(triples), begins, ends, range_end[ranges[own]])
