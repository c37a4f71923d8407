"""Group ConsumeQueue entries by queue, accept or drop them as the broker does, and lay them out as in the file."""

from __future__ import annotations

import numpy as np

from reput.format.commit_log import MIN_RECORD_BYTES, SYS_FLAG_PREPARED
from reput.format.consume_queue import MAX_QUEUE_OFFSET
from reput.kernels.entry_words import ENTRY_OFFSET, ENTRY_SIZE, ENTRY_TAGS_CODE, write_long
from reput.kernels.integers import swap32, wrapped_sum
from reput.kernels.jit import njit
from reput.kernels.narrow_columns import BLOCK_ROWS, widen_block

# The columns from which `lay_out_by_queue` makes entries.
_PHYSICAL_OFFSET, _SIZE, _TAGS_CODE, _SYS_FLAG, _QUEUE, _QUEUE_OFFSET = range(6)


@njit(inline="always")
def has_no_entry(message):
    """Return whether a message gets no ConsumeQueue entry, because it is prepared or rolled back."""
    # Rolled-back messages have this bit, too.
    return message.sys_flag & SYS_FLAG_PREPARED != 0


@njit(cache=True, nogil=True)
def group_entries(messages, multi, bounds, rows, queue_offset):
    """Sort a batch's entries by queue, in CommitLog order within each queue; return their number.

    messages, multi  columns of a DispatchBatch; `multi` is sorted by its field `row`
    bounds           int64[queues + 1], set here: queue q has rows[bounds[q]:bounds[q + 1]]
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
def find_key_rows(messages, rows):
    """Set the row of the message of each index entry. `rows`: int32, as many as the key counts of all messages."""
    entry = 0
    for row in range(len(messages)):
        stop = min(entry + messages[row].key_count, len(rows))
        while entry < stop:
            rows[entry] = row
            entry += 1


@njit(inline="always")
def _write_entry(words, physical_offset, size, tags_code):
    write_long(words, ENTRY_OFFSET, physical_offset)
    words[ENTRY_SIZE] = swap32(size)
    write_long(words, ENTRY_TAGS_CODE, tags_code)


@njit(inline="always")
def _lay_out(words, message):
    # In plain Python, `message.size` would be an attribute of NumPy's scalar, not the field.
    _write_entry(words, message.physical_offset, message["size"], message.tags_code)


@njit(cache=True, nogil=True)
def lay_out_entries(messages, rows, entries):
    """Write the entries of messages[rows] to entries, RawEntries, in the form of a ConsumeQueue file."""
    for entry in range(len(rows)):
        _lay_out(entries[np.uint64(entry)], messages[np.uint64(rows[np.uint64(entry)])])


@njit(cache=True, nogil=True)
def lay_out_by_queue(data, places, count, multi, bounds, entries, first, end):
    """Write the entries of `count` messages, grouped by queue, in the form of a ConsumeQueue file.

    This is `group_entries` and `lay_out_entries` in one pass over stored columns, for queues that accept every entry.

    data, places      the columns physical_offset, size, tags_code, sys_flag, queue and queue_offset, as
                      `narrow_columns.narrow` stored them
    multi             as in `group_entries`
    bounds            int64[queues + 1], set here: queue q has entries[bounds[q]:bounds[q + 1]]
    entries           RawEntries, room for all entries, set here
    first, end        int64[queues], set here for queues with entries: the queue offset of the first entry, and the
                      physical offset at which the message of the last entry ends
    """
    columns = np.empty((len(places), BLOCK_ROWS), np.int64)
    bounds[:] = 0
    for begin in range(0, count, BLOCK_ROWS):
        rows = min(BLOCK_ROWS, count - begin)
        for column in range(_SYS_FLAG, _QUEUE + 1):
            widen_block(data, places[column], begin, columns[column], rows)
        for row in range(rows):
            if columns[_SYS_FLAG, row] & SYS_FLAG_PREPARED == 0:
                bounds[columns[_QUEUE, row] + 1] += 1
    for further in range(len(multi)):
        bounds[multi[further].queue + 1] += 1
    for queue in range(1, len(bounds)):
        bounds[queue] += bounds[queue - 1]
    place = bounds[:-1].copy()
    further = 0
    for begin in range(0, count, BLOCK_ROWS):
        rows = min(BLOCK_ROWS, count - begin)
        for column in range(len(places)):
            widen_block(data, places[column], begin, columns[column], rows)
        for row in range(rows):
            offset, size = columns[_PHYSICAL_OFFSET, row], columns[_SIZE, row]
            tags_code = columns[_TAGS_CODE, row]
            if columns[_SYS_FLAG, row] & SYS_FLAG_PREPARED == 0:
                queue = columns[_QUEUE, row]
                at = place[queue]
                if at == bounds[queue]:
                    first[queue] = columns[_QUEUE_OFFSET, row]
                _write_entry(entries[np.uint64(at)], offset, size, tags_code)
                place[queue], end[queue] = at + 1, offset + size
            while further < len(multi) and multi[further].row == begin + row:
                queue = np.int64(multi[further].queue)
                at = place[queue]
                if at == bounds[queue]:
                    first[queue] = multi[further].queue_offset
                _write_entry(entries[np.uint64(at)], offset, size, tags_code)
                place[queue], end[queue] = at + 1, offset + size
                further += 1


@njit(cache=True, nogil=True)
def _lost_between(lost, start, stop):
    """Return how many bytes of the ranges `lost`, int64[k, 2], lie between two physical offsets."""
    total = 0
    for part in range(len(lost)):
        total += max(min(lost[part, 1], stop) - max(lost[part, 0], start), 0)
    return total


@njit(cache=True, nogil=True)
def append_entries(
    messages, rows, queue_offset, position, max_physical_offset, lost, room, entries, numbers
):
    """Lay out the entries that `ConsumeQueue.putMessagePositionInfo` (4.9.3) accepts.

    If an entry's queue offset n lies after the queue's end, the broker closes this gap: it appends the entry at the
    end. This kernel keeps the gap if lost messages can explain the gap: between the messages of the previous entry and
    of this entry, the log must have enough bytes for one record per missing queue offset. Usually, only unreadable
    bytes count, and bytes of messages whose entries this kernel has refused. But if the entry's message is followed in
    the queue by a message with the queue offset n + 1, that message confirms n. Then all bytes count.

    messages             rows with physical_offset, size and tags_code
    rows, queue_offset   int64 per entry; `queue_offset` may have one more element: the queue offset of the message that
                         follows the last entry in the queue
    position             number of entries in the queue, which is the index of the next entry
    max_physical_offset  end of the last message in the queue, or -1
    lost                 int64[k, 2], the k ranges of the log that cannot be read
    room                 bytes of the messages that were refused since the last accepted one; -1 if all gaps must be
                         closed
    entries              RawEntries, one for each row, set to the accepted entries, in the form of a ConsumeQueue file
    numbers              int64[len(rows)], set to the index in the queue of each accepted entry

    Returns the number of accepted entries; position, max_physical_offset and room after them; and whether an entry
    whose queue offset lies before the queue's end was refused since the last accepted entry.
    """
    taken = 0
    refused = False
    for entry in range(len(rows)):
        message = messages[np.uint64(rows[np.uint64(entry)])]
        offset = queue_offset[np.uint64(entry)]
        size = message["size"]
        begin = message.physical_offset
        end = wrapped_sum(begin, size)
        # After a crash, messages that the queue already has are dispatched again.
        if end <= max_physical_offset:
            continue
        # The broker drops an entry whose queue offset lies before the queue's end. If the queue offset lies after the
        # end, it appends the entry without a gap, and only logs "[BUG]logic queue order maybe wrong".
        if offset > MAX_QUEUE_OFFSET or (offset != 0 and offset < position):
            refused = refused or offset <= MAX_QUEUE_OFFSET
            if room >= 0:
                room += size
            continue
        # Each record takes at least MIN_RECORD_BYTES. So the number of bytes between the previous entry's message and
        # this message limits how many messages can be missing.
        gap = offset - position
        if gap > 0 and room >= 0 and max_physical_offset >= 0:
            between = begin - max_physical_offset
            continues = (
                entry + 1 < len(queue_offset) and queue_offset[np.uint64(entry + 1)] == offset + 1
            )
            explained = _lost_between(lost, max_physical_offset, begin) + room
            if gap <= (between if continues else min(explained, between)) // MIN_RECORD_BYTES:
                position = offset
        _lay_out(entries[np.uint64(taken)], message)
        numbers[np.uint64(taken)] = position
        position += 1
        max_physical_offset = end
        taken += 1
        refused = False
        if room >= 0:
            room = 0
    return taken, position, max_physical_offset, room, refused


@njit(inline="always")
def _extend_run(run, offset):
    """Add an entry with this queue offset to a run."""
    index = run.entries
    if index == 0:
        run.first, run.slack, run.ahead, run.highest = offset, MAX_QUEUE_OFFSET, 0, 0
    run.highest = max(run.highest, offset)
    if offset != 0:
        distance = max(offset, -1) - index
        run.slack, run.ahead = min(run.slack, distance), max(run.ahead, distance)
    run.entries = index + 1


@njit(cache=True, nogil=True)
def extend_runs(messages, multi, runs):
    """Add the entries of a batch to the runs of their queues.

    A run has the number of entries, the first queue offset, `slack`, `ahead` and the highest queue offset. A queue with
    p entries accepts all entries of a run, each at its queue offset, if and only if p <= slack. No queue offset is
    skipped if p >= ahead. Entries with the queue offset 0 do not affect `slack` and `ahead`, because a broker accepts
    them always.

    messages, multi  columns of a DispatchBatch; `multi` is sorted by its field `row`
    runs             rows with int64 fields, one for each queue; a run without entries is all zeros
    """
    further = 0
    for row in range(len(messages)):
        message = messages[row]
        if not has_no_entry(message):
            _extend_run(runs[message.queue], message.queue_offset)
        while further < len(multi) and multi[further].row == row:
            _extend_run(runs[multi[further].queue], multi[further].queue_offset)
            further += 1
