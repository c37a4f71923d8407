"""The rule that numbers the messages of a queue by physical offset, so that no message's entry moves.

An entry that leads to a message keeps its number. Then the queue offset in the record does not matter, because no
checksum covers it. Entries that lead into unreadable parts of the log stay as well. A message without an entry gets the
number that it states, if that is free and between the entries of its neighbours in the log. Recovery applies the rule
to queues in files (`reput.recovery.queue_matching`), a rebuild also to queues in RocksDB
(`reput.pipeline.old_database`).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.log.offset_range import OffsetRange

Offsets = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Placement(NamedTuple):
    """Flags for messages whose stated physical offset is their place, as far as their neighbours show it.

    is_good    whether the message is at its stated offset
    bounds     physical offsets between which a bad message must lie. For n good messages before it: the end of the n-th
               and the start of the next
    elsewhere  the ranges of the log with bad messages
    """

    is_good: Flags
    bounds: tuple[Offsets, Offsets]
    elsewhere: list[OffsetRange]

    @classmethod
    def of(cls, messages: npt.NDArray[np.void], scanned: OffsetRange) -> Placement:
        """Return the placement of the messages of a batch that was scanned from the log range `scanned`."""
        offsets = messages["physical_offset"].astype(np.int64)
        ends = offsets + messages["size"]
        follows = offsets[1:] == ends[:-1]
        is_good = np.append(follows, False) | np.append(offsets[0] == scanned.start, follows)
        is_good &= (offsets >= scanned.start) & (ends <= scanned.stop)
        rows = np.flatnonzero(is_good)
        rows = rows[ascending(offsets[rows])]
        is_good[:] = False
        is_good[rows] = True
        stops, starts = np.append(scanned.start, ends[rows]), np.append(offsets[rows], scanned.stop)
        gaps = np.unique(np.searchsorted(rows, np.flatnonzero(~is_good)))
        elsewhere = [OffsetRange(int(stops[gap]), int(starts[gap])) for gap in gaps.tolist()]
        return cls(is_good, (stops, starts), elsewhere)

    def range_of(self, row: int) -> OffsetRange:
        """Return the log range of a bad message."""
        before = int(np.count_nonzero(self.is_good[:row]))
        return OffsetRange(int(self.bounds[0][before]), int(self.bounds[1][before]))


def entry_of_each(
    offsets: Offsets, stated: Offsets, found_offsets: Offsets, found_numbers: Offsets
) -> npt.NDArray[np.intp]:
    """Return the row of the entry of each message, or -1.

    If a message has several entries, the entry with the stated number counts, otherwise the first.

    Args:
        offsets: Physical offsets of messages.
        stated: Queue offsets that the messages state.
        found_offsets: Physical offsets in the entries, ascending.
        found_numbers: Numbers of the entries.
    """
    first = np.searchsorted(found_offsets, offsets)
    stop = np.searchsorted(found_offsets, offsets, side="right")
    rows = np.where(stop > first, first, -1)
    for message in np.flatnonzero(stop - first > 1).tolist():
        same = np.arange(first[message], stop[message])
        agrees = same[found_numbers[same] == stated[message]]
        rows[message] = agrees[0] if len(agrees) else first[message]
    return rows


def neighbours(
    offsets: Offsets, solid: Offsets, numbers: Offsets, before: int, after: int
) -> tuple[Offsets, Offsets]:
    """Return the numbers of the entries before and after messages at these offsets.

    Args:
        offsets: Physical offsets of messages.
        solid: Physical offsets of the entries that stay, ascending.
        numbers: Numbers of these entries.
        before, after: Values to return before the first entry and after the last.
    """
    edged = np.concatenate([[before], numbers, [after]])
    place = np.searchsorted(solid, offsets)
    return edged[place], edged[place + 1]


def between(stated: Offsets, low: Offsets, high: Offsets) -> Flags:
    """Return a flag per message: whether its stated number lies between the numbers of its neighbours."""
    return (stated > low) & (stated < high)


def ascending(numbers: Offsets) -> npt.NDArray[np.intp]:
    """Return the rows of a longest ascending subsequence, so that as few numbers as possible count as wrong."""
    if (np.diff(numbers) > 0).all():
        return np.arange(len(numbers))
    tails: list[int] = []  # The smallest number with which a run of each length ends.
    ends: list[int] = []  # The row of this number.
    before: list[int] = []
    for row, number in enumerate(numbers.tolist()):
        place = bisect_left(tails, number)
        before.append(ends[place - 1] if place else -1)
        tails[place : place + 1], ends[place : place + 1] = [number], [row]
    rows = []
    row = ends[-1]
    while row >= 0:
        rows.append(row)
        row = before[row]
    return np.array(rows[::-1], np.intp)
