"""Assign queue offsets to the messages of a queue, so that no existing entry moves.

The number of an entry is its queue offset. The rule:

1. An entry that leads to a message keeps its number. The queue offset in the record is ignored, because no
   checksum covers it.
2. An entry that points into an unreadable part of the log stays: its message may be restored.
3. A message without an entry gets the number that it states, if this number is free and lies between the entries of
   its neighbours in the log.

Recovery applies the rule to queues in files (`reput.engine.writer.recovery.queue_matching`), a rebuild also to queues
in RocksDB (`reput.engine.five.old_database`).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.core import OffsetRange

Offsets = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Placement(NamedTuple):
    """Shows which messages of a batch are at the physical offset that they state, judged by their neighbours.

    A message is good if it is at its stated offset. All other messages are bad.

    is_good: for each message, whether it is good
    bounds: two arrays, begins and ends. If n good messages precede a bad message, then the bad message lies between
        bounds[0][n] and bounds[1][n]
    elsewhere: the ranges of the log in which the bad messages lie
    """

    is_good: Flags
    bounds: tuple[Offsets, Offsets]
    elsewhere: list[OffsetRange]

    @classmethod
    def of(cls, messages: npt.NDArray[np.void], scanned: OffsetRange) -> Placement:
        """Find out which messages of a batch are at the physical offset that they state.

        The batch was read from the log range `scanned`.
        """
        offsets = messages["physical_offset"].astype(np.int64)
        ends = offsets + messages["size"]
        follows = offsets[1:] == ends[:-1]
        is_good = np.append(follows, False) | np.append(offsets[0] == scanned.start, follows)
        is_good &= (offsets >= scanned.start) & (ends <= scanned.stop)
        # A message looks good if its stated offset fits the stated offset of a neighbour. Two wrong offsets can
        # fit each other by chance, but are usually out of order among the others. So of all offsets that look good,
        # keep only a longest ascending sequence.
        rows = np.flatnonzero(is_good)
        rows = rows[ascending(offsets[rows])]
        is_good[:] = False
        is_good[rows] = True
        stops, starts = np.append(scanned.start, ends[rows]), np.append(offsets[rows], scanned.stop)
        gaps = np.unique(np.searchsorted(rows, np.flatnonzero(~is_good)))
        elsewhere = [OffsetRange(int(stops[gap]), int(starts[gap])) for gap in gaps.tolist()]
        return cls(is_good, (stops, starts), elsewhere)

    def range_of(self, row: int) -> OffsetRange:
        """Return the log range in which message number `row` of the batch lies.

        Call this method only for a message that is not at its stated offset.
        """
        before = int(np.count_nonzero(self.is_good[:row]))
        return OffsetRange(int(self.bounds[0][before]), int(self.bounds[1][before]))


def entry_of_each(
    offsets: Offsets, queue_offsets: Offsets, entry_offsets: Offsets, entry_numbers: Offsets
) -> npt.NDArray[np.intp]:
    """Return for each message the row of its entry, or -1 if it has none.

    If a message has several entries, use the entry at the queue offset that the message states. If that queue
    offset has no such entry, use the first entry.

    Args:
        offsets: Physical offsets of messages.
        queue_offsets: Those that the messages state.
        entry_offsets: Physical offsets in the entries, ascending.
        entry_numbers: Numbers of the entries.
    """
    first = np.searchsorted(entry_offsets, offsets)
    stop = np.searchsorted(entry_offsets, offsets, side="right")
    rows = np.where(stop > first, first, -1)
    for message in np.flatnonzero(stop - first > 1).tolist():
        rows_of_message = np.arange(first[message], stop[message])
        agrees = rows_of_message[entry_numbers[rows_of_message] == queue_offsets[message]]
        rows[message] = agrees[0] if len(agrees) else first[message]
    return rows


def neighbours(
    offsets: Offsets, solid: Offsets, numbers: Offsets, before: int, after: int
) -> tuple[Offsets, Offsets]:
    """Return for each message the numbers of the entries before and after it in the log.

    Args:
        offsets: Physical offsets of messages.
        solid: Physical offsets of the entries whose numbers are certain, ascending.
        numbers: Numbers of these entries.
        before, after: Values to return if a message has no entry before it, or none after it.
    """
    edged = np.concatenate([[before], numbers, [after]])
    place = np.searchsorted(solid, offsets)
    return edged[place], edged[place + 1]


def between(queue_offsets: Offsets, low: Offsets, high: Offsets) -> Flags:
    """Return a flag per message: whether its stated queue offset is between `low` and `high` (see `neighbours`)."""
    return (queue_offsets > low) & (queue_offsets < high)


def fitting(
    offsets: Offsets,
    firsts: Offsets,
    lasts: Offsets,
    solid: Offsets,
    numbers: tuple[Offsets, Offsets],
    after: int,
) -> npt.NDArray[np.intp]:
    """Return the rows of messages without an entry that get the queue offsets that they state.

    These queue offsets lie between those of the entries before and after the message in the log, and ascend. Of the
    messages whose queue offsets do not ascend, as few as possible are left out.

    Args:
        offsets: Physical offsets of messages, ascending.
        firsts, lasts: First and last queue offset of each message. They differ for an inner batch.
        solid: Physical offsets of the entries whose queue offsets are certain, ascending.
        numbers: First and last queue offset of each of these entries.
        after: Queue offset that limits those of a message with no entry after it.
    """
    low, _ = neighbours(offsets, solid, numbers[1], -1, 0)
    _, high = neighbours(offsets, solid, numbers[0], 0, after)
    rows = np.flatnonzero(between(firsts, low, high) & between(lasts, low, high))
    return rows[ascending(firsts[rows])]


def ascending(numbers: Offsets) -> npt.NDArray[np.intp]:
    """Return the rows of a longest ascending subsequence, so that as few numbers as possible count as wrong.

    This is the algorithm of patience sorting, O(n log n).
    """
    if (np.diff(numbers) > 0).all():
        return np.arange(len(numbers))
    # For each length, `tails` has the smallest number at which an ascending subsequence of this length ends. `ends` has
    # the rows of the numbers in `tails`.
    tails: list[int] = []
    ends: list[int] = []
    # For each row: the row before it in the longest ascending subsequence that ends at this row.
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
