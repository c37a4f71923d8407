"""Which ConsumeQueue entries the broker would take, and what a run of them looks like from outside."""

from __future__ import annotations

import numpy as np
from numba import njit

MAX_QUEUE_OFFSET = (2**63 - 1) // 20  # beyond it, the byte position of an entry is no int64


@njit(cache=True, nogil=True)
def accept_entries(messages, rows, queue_offset, position, max_physical_offset, accepted):
    """Mark the entries that `ConsumeQueue.putMessagePositionInfo` (4.9.3) appends; return its state after.

    messages             rows with physical_offset and size; `rows`, `queue_offset` int64 per entry
    position             entries the queue has, that is, where the next is appended
    max_physical_offset  end of the last message it has, or -1
    accepted             uint8 per entry, set here
    """
    for entry in range(len(rows)):
        message = messages[rows[entry]]
        offset = queue_offset[entry]
        accepted[entry] = 0
        if message.physical_offset + message.size <= max_physical_offset:
            continue  # built already
        if offset > MAX_QUEUE_OFFSET or (offset != 0 and offset < position):
            continue
        accepted[entry] = 1
        position += 1  # even where a gap was skipped: the broker logs it, and appends here
        max_physical_offset = message.physical_offset + message.size
    return position, max_physical_offset


@njit(cache=True, nogil=True)
def summarize_runs(bounds, queue_offset, first, slack, highest):
    """For each group of entries: its first queue offset, how far ahead its queue offsets stay, its highest.

    A queue that holds p entries takes a whole group, each entry where p says, if and only if p <= slack.
    bounds int64[g + 1]; first, slack, highest int64[g], set here. Offsets of 0 are always taken.
    """
    for group in range(len(bounds) - 1):
        start, stop = bounds[group], bounds[group + 1]
        first[group] = queue_offset[start]
        least, most = np.int64(MAX_QUEUE_OFFSET), np.int64(0)
        for entry in range(start, stop):
            offset = queue_offset[entry]
            most = max(most, offset)
            if offset != 0:
                least = min(least, offset - (entry - start))
        slack[group], highest[group] = least, most
