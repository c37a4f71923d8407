"""Compare entries of ConsumeQueues and IndexFiles with the entries that dispatch would write now.

For each message, only the place where its entry must be is compared. Entries are not searched for in other places. So
the result states whether there is a difference, but not which one.
"""

from __future__ import annotations

import numpy as np

from reput.kernels.entry_words import (
    ENTRY_OFFSET,
    ENTRY_SIZE,
    ENTRY_TAGS_CODE,
    ITEM_HASH,
    ITEM_OFFSET,
    ITEM_SECONDS,
    has_long,
)
from reput.kernels.index_chains import item_seconds
from reput.kernels.integers import swap32
from reput.kernels.jit import njit
from reput.kernels.queue_entries import has_no_entry

ROW, KEY_OF_ROW, KEY, ITEM, FIRST_TIME, LAST_TIME = range(6)
ITEM_STATE_FIELDS = 6
ANY_TIME = -(2**63)


@njit(inline="always")
def _is_entry_of(message, queue_offset, queue, first, start, count, entries):
    place = queue_offset - first[queue]
    if place < 0 or place >= count[queue]:
        return False
    entry = entries[np.uint64(start[queue] + place)]
    return (
        has_long(entry, ENTRY_OFFSET, message.physical_offset)
        # In plain Python, `message.size` would be an attribute of NumPy's scalar, not the field.
        and entry[ENTRY_SIZE] == swap32(message["size"])
        and has_long(entry, ENTRY_TAGS_CODE, message.tags_code)
    )


@njit(cache=True, nogil=True)
def match_queue_entries(messages, multi, offsets, first, start, count, entries, matched):
    """Return whether all messages lie at their stated offsets, and have their entries at their queue offsets.

    messages, multi  columns of a DispatchBatch
    offsets          int64 per message: its actual physical offset
    first, start, count  int64 per queue of the batch: queue offset of its first entry in `entries`, row of this
                         entry, and number of its entries
    entries          RawEntries, the files' bytes
    matched          int64 per queue, increased here: entries that belong to a message
    """
    for row in range(len(messages)):
        message = messages[np.uint64(row)]
        # If a record states a wrong physical offset, a broker writes this wrong offset into the record's entries.
        if message.physical_offset != offsets[np.uint64(row)]:
            return False
        if has_no_entry(message):
            continue
        queue = message.queue
        if not _is_entry_of(message, message.queue_offset, queue, first, start, count, entries):
            return False
        matched[queue] += 1
    for further in range(len(multi)):
        other = multi[further]
        message = messages[np.uint64(other.row)]
        queue = other.queue
        if not _is_entry_of(message, other.queue_offset, queue, first, start, count, entries):
            return False
        matched[queue] += 1
    return True


@njit(cache=True, nogil=True)
def match_items(messages, key_hash, state, items, begin, first_begin):
    """Return whether items match the batch's keys in order, from a given key on, until keys or items end.

    messages, key_hash  columns of a DispatchBatch
    state        int64[ITEM_STATE_FIELDS], updated here. Four fields state where the next call continues: ROW is the row
                 of the message, KEY_OF_ROW the index of the key within this message, KEY the index of the key within
                 the batch, and ITEM the index of the item in `items`. Other fields are the message times of the first
                 and the last item so far
    items        RawEntries, the file's bytes
    begin        time (ms) from which the seconds of all items except items[0] are counted
    first_begin  time (ms) from which the seconds of items[0] are counted: the previous file's end timestamp if items[0]
                 is the file's first item, else `begin`; ANY_TIME if the seconds of items[0] are not compared
    """
    row, of_row, key, item = state[ROW], state[KEY_OF_ROW], state[KEY], state[ITEM]
    is_match = True
    while key < len(key_hash) and item < len(items):
        message = messages[np.uint64(row)]
        if of_row == message.key_count:
            row += 1
            of_row = 0
            continue
        found = items[np.uint64(item)]
        offset, stored = message.physical_offset, message.store_timestamp
        # The first item of a file states the seconds since the end timestamp of the previous file (`IndexFile.putKey`).
        from_ms = first_begin if item == 0 else begin
        if (
            found[ITEM_HASH] != swap32(key_hash[np.uint64(key)])
            or not has_long(found, ITEM_OFFSET, offset)
            or (
                from_ms != ANY_TIME and found[ITEM_SECONDS] != swap32(item_seconds(stored, from_ms))
            )
        ):
            is_match = False
            break
        if item == 0:
            state[FIRST_TIME] = stored
        state[LAST_TIME] = stored
        of_row += 1
        key += 1
        item += 1
    state[ROW], state[KEY_OF_ROW], state[KEY], state[ITEM] = row, of_row, key, item
    return is_match
