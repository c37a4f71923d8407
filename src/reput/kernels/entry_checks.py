"""Check entries of an IndexFile or a ConsumeQueue, many at a time, and prove that entries cover a range of the log."""

from __future__ import annotations

import numpy as np

from reput.format.consume_queue import ENTRY, ENTRY_BYTES
from reput.kernels.entry_words import (
    ENTRY_OFFSET,
    ENTRY_SIZE,
    ITEM_HASH,
    ITEM_PREVIOUS,
    item_offset,
    read_long,
)
from reput.kernels.integers import read_i32, read_i64, swap32
from reput.kernels.jit import njit

_BLOCK = 1024
_INT32_MAX = 2147483647
_INT64_MAX = 9223372036854775807
_SIZE_POSITION = ENTRY.positions["size"]
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


@njit(cache=True, nogil=True)
def check_items(items, stop, newest):
    """Check that a broker can have put the items 1 to `stop` - 1 in this order.

    Return the number of the first impossible item, or `stop`.

    items   RawEntries, the file's bytes from item 0 on
    newest  uint32[hash_slots], zeros; after the call, the number of the newest item of each slot

    An item must point to the previous item of its slot. Its message must not lie before the previous item's message.
    """
    slot_total = np.uint32(len(newest))
    slots = np.empty(_BLOCK, np.uint64)
    touched = np.uint32(0)
    before = np.int64(0)
    number = np.int64(1)
    while number < stop:
        block = min(_BLOCK, stop - number)
        # A block of slots is read at once, so that the cache misses overlap; see `put_keys`.
        for index in range(block):
            slot = np.uint64(swap32(items[np.uint64(number + index), ITEM_HASH]) % slot_total)
            slots[index] = slot
            touched ^= newest[slot]
        for index in range(block):
            item = items[np.uint64(number)]
            slot = slots[index]
            offset = item_offset(items, number)
            # The first item's offset is compared with 0, so no offset may be negative.
            if swap32(item[ITEM_HASH]) > _INT32_MAX or offset < before:
                return number
            if swap32(item[ITEM_PREVIOUS]) != newest[slot]:
                return number
            newest[slot] = number
            before = offset
            number += 1
    # Without a use of the read values, the compiler would drop the reads.
    slots[0] = touched
    return number


@njit(cache=True, nogil=True)
def written_entries(entries, before):
    """Count the ConsumeQueue entries before the first entry that is empty, invalid, or not in order.

    An entry is in order if its message comes after the previous entry's message. Pre-blank entries are counted too,
    although they have no message.

    entries  RawEntries, the file's bytes
    before   physical offset of the previous entry's message
    """
    for row in range(len(entries)):
        entry = entries[np.uint64(row)]
        offset, size = read_long(entry, ENTRY_OFFSET), np.int64(swap32(entry[ENTRY_SIZE]))
        if offset < 0 or size == 0 or size > _INT32_MAX:
            return row
        if offset == 0 and size == _INT32_MAX:
            continue
        if offset <= before:
            return row
        before = offset
    return len(entries)


@njit(cache=True, nogil=True)
def entries_follow(entries, before):
    """Count the ConsumeQueue entries before the first entry that is empty, invalid, pre-blank, or not in order.

    An entry is in order if its message does not begin before the end of the previous entry's message. Also return the
    physical offset at which the last message ends.

    entries  RawEntries, the file's bytes
    before   physical offset at which the previous entry's message ends
    """
    for row in range(len(entries)):
        entry = entries[np.uint64(row)]
        offset, size = read_long(entry, ENTRY_OFFSET), np.int64(swap32(entry[ENTRY_SIZE]))
        if offset < 0 or size == 0 or size > _INT32_MAX or offset < before:
            return row, np.int64(before)
        if (offset == 0 and size == _INT32_MAX) or offset > _INT64_MAX - size:
            return row, np.int64(before)
        before = offset + size
    return len(entries), np.int64(before)


@njit(inline="always")
def _mark(position, seed):
    """Return the mark of a position: a number that depends on position and seed, and looks random."""
    value = np.uint64(position) ^ seed
    value = (value ^ (value >> _30)) * _MIX_1
    value = (value ^ (value >> _27)) * _MIX_2
    return value ^ (value >> _31)


@njit(cache=True, nogil=True)
def sum_of_steps(entries, count, seed):
    """Return a sum over `count` entries, and the highest physical offset at which one of their messages ends.

    A mark is a hash of an offset and the seed. The sum adds the mark of the offset at which each message ends, and
    subtracts the mark of the offset at which it begins.

    entries  uint8, entries as stored
    seed     uint64, secret

    If the entries cover the range from a to b, in any order, the sum is mark(b) - mark(a). A gap, an overlap or a
    repetition leaves marks that do not cancel.
    """
    total = np.uint64(0)
    furthest = np.int64(-1)
    for entry in range(count):
        begin = read_i64(entries, entry * ENTRY_BYTES)
        end = begin + read_i32(entries, entry * ENTRY_BYTES + _SIZE_POSITION)
        total += _mark(end, seed) - _mark(begin, seed)
        furthest = max(furthest, end)
    return total, furthest


@njit(cache=True, nogil=True)
def step(begin, end, seed):
    """Return mark(end) - mark(begin), where mark(x) is a hash of the offset x and the seed.

    If the sum that `sum_of_steps` computes from some entries equals this number, the entries cover the range from
    `begin` to `end` exactly.
    """
    return _mark(end, seed) - _mark(begin, seed)
