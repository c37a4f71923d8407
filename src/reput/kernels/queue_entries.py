"""ConsumeQueue entries: grouped by queue, taken or dropped as the broker does, laid out as in the file."""

from __future__ import annotations

import numpy as np

from reput.kernels.integers import swap32, wrapped_sum
from reput.kernels.jit import njit

MAX_QUEUE_OFFSET = (2**63 - 1) // 20  # beyond it, the byte position of an entry is no int64
_PREPARED = 4  # bit of the two transaction types that have no entries: prepared and rollback


@njit(inline="always")
def has_no_entry(message):
    """Whether a message gets no ConsumeQueue entry of its own: it is prepared, or rolled back."""
    return message.sys_flag & _PREPARED != 0


@njit(cache=True, nogil=True)
def group_entries(messages, multi, bounds, rows, queue_offset):
    """Sort a batch's entries by queue, in CommitLog order within each; return how many there are.

    messages, multi  columns of a DispatchBatch; `multi` is in order of its rows
    bounds           int64[queues + 1], set here: queue q owns rows[bounds[q]:bounds[q + 1]]
    rows, queue_offset  int64, room for len(messages) + len(multi), set here
    """
    bounds[:] = 0
    for row in range(len(messages)):
        if not has_no_entry(messages[row]):
            bounds[messages[row].queue + 1] += 1
    for further in range(len(multi)):
        bounds[multi[further].queue + 1] += 1
    for queue in range(1, len(bounds)):
        bounds[queue] += bounds[queue - 1]
    place = bounds[:-1].copy()
    further = 0
    for row in range(len(messages)):
        message = messages[row]
        if not has_no_entry(message):
            at = place[message.queue]
            rows[at], queue_offset[at] = row, message.queue_offset
            place[message.queue] = at + 1
        while further < len(multi) and multi[further].row == row:
            at = place[multi[further].queue]
            rows[at], queue_offset[at] = row, multi[further].queue_offset
            place[multi[further].queue] = at + 1
            further += 1
    return bounds[-1]


@njit(cache=True, nogil=True)
def append_entries(messages, rows, queue_offset, position, max_physical_offset, entries):
    """Lay out the entries that `ConsumeQueue.putMessagePositionInfo` (4.9.3) takes.

    messages             rows with physical_offset, size and tags_code
    rows, queue_offset   int64 per entry
    position             entries the queue has, that is, where the next is appended
    max_physical_offset  end of the last message it has, or -1
    entries              uint32[n, 5], the file's bytes, set here
    Returns position and max_physical_offset after, and whether an entry from before the end was refused since
    the last was taken; position tells how many were taken.
    """
    taken = 0
    refused = False
    for entry in range(len(rows)):
        message = messages[np.uint64(rows[np.uint64(entry)])]
        offset = queue_offset[np.uint64(entry)]
        size = message["size"]  # not as an attribute: to plain Python that is the record's own
        end = wrapped_sum(message.physical_offset, size)
        if end <= max_physical_offset:
            continue  # built already
        if offset > MAX_QUEUE_OFFSET:
            continue
        if offset != 0 and offset < position + taken:
            refused = True
            continue
        # Appended here even where queue offsets were skipped: the broker only logs that.
        words = entries[np.uint64(taken)]
        words[np.uint64(0)] = swap32((message.physical_offset >> 32) & 0xFFFFFFFF)
        words[np.uint64(1)] = swap32(message.physical_offset & 0xFFFFFFFF)
        words[np.uint64(2)] = swap32(size)
        words[np.uint64(3)] = swap32((message.tags_code >> 32) & 0xFFFFFFFF)
        words[np.uint64(4)] = swap32(message.tags_code & 0xFFFFFFFF)
        max_physical_offset = end
        taken += 1
        refused = False
    return position + taken, max_physical_offset, refused


@njit(cache=True, nogil=True)
def summarize_runs(bounds, queue_offset, first, slack, highest):
    """For each group of entries: its first queue offset, how far ahead its queue offsets stay, its highest.

    A queue that holds p entries takes a whole group, each entry where p says, if and only if p <= slack.
    bounds int64[g + 1]; first, slack, highest int64[g], set here. Offsets of 0 are always taken.
    """
    for group in range(len(bounds) - 1):
        start, stop = bounds[group], bounds[group + 1]
        first[group] = queue_offset[start] if start < stop else 0
        least, most = np.int64(MAX_QUEUE_OFFSET), np.int64(0)
        for entry in range(start, stop):
            offset = queue_offset[entry]
            most = max(most, offset)
            if offset != 0:
                least = min(least, max(offset, -1) - (entry - start))
        slack[group], highest[group] = least, most
