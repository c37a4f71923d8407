"""Group scattered records of a CommitLog file into ranges that are read together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.log.files import CommitLogFile

Offsets = npt.NDArray[np.int64]

# Smaller gaps are read as well, because this takes no longer than another read.
_GAP_BYTES = 8 << 10


class Window(NamedTuple):
    """Records to be read into one buffer.

    first   number of the first record
    ranges  (position in the buffer, physical offset, length)
    begins, ends  int64, beginning of each record and end of its range, as positions in the buffer
    ends_at       int64, physical offset of the end of each record's range
    """

    first: int
    data: npt.NDArray[np.uint8]
    ranges: list[tuple[int, int, int]]
    begins: Offsets
    ends: Offsets
    ends_at: Offsets


def windows(
    offsets: Offsets, needed: Offsets, file: CommitLogFile, window_bytes: int
) -> Iterator[Window]:
    """Group records at ascending offsets into windows of about `window_bytes`. Read `needed` bytes of each record."""
    stops = np.minimum(offsets + needed, file.end)
    # The range of one record may end after the ranges of the following records, so compare with the farthest end so
    # far.
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
        last = range_first[ranges[-1] + 1] if ranges[-1] + 1 < len(range_first) else len(offsets)
        own = range_of[first:last] - ranges[0]
        begins = positions[own] + offsets[first:last] - range_begin[ranges[own]]
        ends = positions[own] + lengths[ranges[own]]
        triples = zip(
            positions.tolist(), range_begin[ranges].tolist(), lengths[ranges].tolist(), strict=True
        )
        data = np.empty(int(lengths[ranges].sum()), np.uint8)
        yield Window(int(first), data, list(triples), begins, ends, range_end[ranges[own]])
