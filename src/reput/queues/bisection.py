"""Bisection over the entries of a ConsumeQueue, of which pre-blank ones say nothing of where they stand."""

from __future__ import annotations

from collections.abc import Callable

from reput.format.consume_queue import PRE_BLANK, ConsumeQueueEntry


def first_at(
    physical_offset: int,
    low: int,
    high: int,
    entry_of: Callable[[int], ConsumeQueueEntry],
    next_entry: Callable[[int, int], int],
) -> int:
    """The first place from `low` to `high` of a message at or after that offset, or of nothing; else `high`.

    Args:
        physical_offset: In the log.
        low: The first place.
        high: The place after the last. Entries between the two are in order.
        entry_of: Reads an entry.
        next_entry: Finds the first place, from one on and before another, whose entry is not pre-blank; else the other.
    """
    begin, stop = low, high
    while begin < stop:
        at = middle = (begin + stop) // 2
        entry = entry_of(middle)
        if entry == PRE_BLANK:
            at = next_entry(middle, stop)
            if at < stop:
                entry = entry_of(at)
        if at == stop or not entry.is_written or entry.physical_offset >= physical_offset:
            stop = middle
        else:
            begin = at + 1
    return next_entry(max(begin, low), high)
