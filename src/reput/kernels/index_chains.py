"""Put many keys into the slots and items of an IndexFile, and look up many keys.

Mirrors `IndexFile.putKey` (tag rocketmq-all-4.9.3), whose rules `reput.format.index_file` describes.
`reput.core.index.reader` specifies the look-ups. An IndexFile consists of 32-bit words. So slots are a `uint32` array
and items are `RawEntries`. Both hold the file's bytes unchanged (big endian); see `entry_words`.
"""

from __future__ import annotations

import numpy as np

from reput.format.index_file import HEADER
from reput.kernels.entry_words import (
    ITEM_HASH,
    ITEM_OFFSET,
    ITEM_PREVIOUS,
    ITEM_SECONDS,
    item_offset,
    signed_word,
    slot_of,
    write_long,
)
from reput.kernels.integers import prefetch, swap32, wrapped_difference
from reput.kernels.jit import njit

# Indexes of the fields of a header.
BEGIN_TIMESTAMP, END_TIMESTAMP, BEGIN_OFFSET, END_OFFSET, SLOT_COUNT, INDEX_COUNT = range(
    len(HEADER.codes)
)
# Number of chains that are followed in lockstep, so that their cache misses overlap.
LANES = 32
CHAIN_END = -1
CHAIN_BROKEN = -2
_BLOCK = 1024
_INT32_MAX = 2147483647
_INT64_MAX = 9223372036854775807


@njit(inline="always")
def item_seconds(stored, begin):
    """Return the field of an item that contains a time: whole seconds from `begin` to the store time `stored`.

    Both arguments are in ms. The result has at most 31 bits.
    """
    if begin <= 0:
        return np.int64(0)
    return min(max(wrapped_difference(stored, begin) // 1000, 0), _INT32_MAX)


@njit(cache=True, nogil=True)
def put_keys(
    header, slots, items, first_item, item_limit, key_hash, key_row, messages, start, stop
):
    """Put entries from `start` to `stop`, as `putKey` does, until the file has `item_limit` items.

    Return the first entry that was not put.

    header            int64[6], the fields of IndexHeader, changed in place; INDEX_COUNT is the number of the next item
    slots             uint32[hash_slots]
    items             RawEntries, a window of the items that begins with number `first_item`
    key_hash, key_row int32 per entry: hash of topic#key, and row of its message
    messages          rows with the fields physical_offset and store_timestamp

    In RocketMQ: incHashSlotCount, incIndexCount, setBeginTimestamp, setEndTimestamp, setBeginPhyOffset,
    setEndPhyOffset, updateByteBuffer.
    """
    slot_total = np.uint32(len(slots))
    limit = min(item_limit, first_item + len(items))
    count, used_slots = header[INDEX_COUNT], header[SLOT_COUNT]
    begin = header[BEGIN_TIMESTAMP]
    block_slots = np.empty(_BLOCK, np.uint64)
    touched = np.uint32(0)
    entry = start
    while entry < stop and count < limit:
        block = min(_BLOCK, stop - entry, limit - count)
        # The slots of a block are read first, so that their cache misses overlap. Otherwise each entry would wait for
        # its own slot. (A prefetch here is half as fast.)
        for index in range(block):
            slot = np.uint64(np.uint32(key_hash[np.uint64(entry + index)]) % slot_total)
            block_slots[index] = slot
            touched ^= slots[slot]
        for index in range(block):
            slot = block_slots[index]
            message = messages[np.uint64(key_row[np.uint64(entry)])]
            previous = swap32(slots[slot])
            # Like the broker, treat a slot as empty if it points after the last item. A crash can leave such slots.
            if previous > count:
                previous = 0
            stored = message.store_timestamp
            seconds = item_seconds(stored, begin)
            offset = message.physical_offset
            item = items[np.uint64(count - first_item)]
            item[ITEM_HASH] = swap32(key_hash[np.uint64(entry)])
            write_long(item, ITEM_OFFSET, offset)
            item[ITEM_SECONDS] = swap32(seconds)
            item[ITEM_PREVIOUS] = swap32(previous)
            slots[slot] = swap32(count)
            # Like IndexFile.putKey, set the begin fields of the header when the first item is put.
            if count <= 1:
                header[BEGIN_OFFSET] = offset
                header[BEGIN_TIMESTAMP] = stored
                begin = stored
            used_slots += previous == 0
            count += 1
            entry += 1
    if entry > start:
        last = messages[key_row[entry - 1]]
        header[INDEX_COUNT], header[SLOT_COUNT] = count, used_slots
        header[END_OFFSET] = last.physical_offset
        header[END_TIMESTAMP] = last.store_timestamp
    # Without a use of the read values, the compiler would drop the reads.
    block_slots[0] = touched
    return entry


@njit(inline="always")
def _is_in_order(items, row, item, offset, count):
    """Return whether an item's physical offset lies between its neighbours' offsets.

    If the item's bytes were lost, this is hardly ever true.
    """
    if item > 1 and item_offset(items, row - 1) > offset:
        return False
    return item >= count or offset <= item_offset(items, row + 1)


@njit(inline="always")
def _step(items, first, item, count, wanted, newest, slot, slot_total):
    """Read an item of a chain. Return (number of the next item in the chain, physical offset of `item`).

    The number is CHAIN_END or CHAIN_BROKEN if no valid item follows. The offset is -1 if `item` has another hash.

    items   items from number `first` on; they must include the items `item` - 1, `item` and `item` + 1
    item    number of the item to read
    newest  physical offset of the previous item with this hash in the chain; `item` must not have a higher offset
    """
    row = item - first
    found = signed_word(items[np.uint64(row), ITEM_HASH])
    offset = item_offset(items, row)
    following = np.int64(signed_word(items[np.uint64(row), ITEM_PREVIOUS]))
    if following == 0:
        following = np.int64(CHAIN_END)
    elif not 0 < following < item:
        following = np.int64(CHAIN_BROKEN)
    # Items after `count` are followed, but not returned, because another process may still be writing them.
    if item <= count and found == wanted:
        if 0 <= offset <= newest and _is_in_order(items, row, item, offset, count):
            return following, offset
        return np.int64(CHAIN_BROKEN), np.int64(-1)
    if slot_of(found, slot_total) != slot:
        following = np.int64(CHAIN_BROKEN)
    elif (
        following == CHAIN_END
        and item <= count
        and not _is_in_order(items, row, item, offset, count)
    ):
        # If a write was partly lost, an item in the middle of a chain can have the pointer 0, which ends chains.
        following = np.int64(CHAIN_BROKEN)
    return following, np.int64(-1)


@njit(cache=True, nogil=True)
def follow_chain(items, first, item, count, newest, begin, end, key_hash, slot_total, hits):
    """Follow the chain of one hash through a part of the items, by the rules of `IndexFileReader.offsets`.

    items       RawEntries, the items numbered `first` to `item` + 1. Each followed item is compared with the items
                directly before and after it, because the physical offsets of items must ascend
    item        number of the item that the chain has reached
    count, begin, end  as in `look_up_keys`
    newest      physical offset of the previous item with this hash in the chain; at first the highest possible offset
    key_hash    int64
    slot_total  uint32, the file's number of slots
    hits        int64[n], set to the physical offsets, without consecutive duplicates

    Returns (item, newest, number of items that were followed, number of hits). A chain leads to ever smaller numbers.
    The returned item is one of three: the next item to follow, if its number is `first` or lower; the item at which the
    chain breaks; CHAIN_END if the chain has no further hits. Item `first` itself cannot be followed here, because the
    item before it, with which it must be compared, is not in this part.
    """
    slot = np.uint32(np.uint32(key_hash) % slot_total)
    steps, found = 0, 0
    while item > first:
        following, offset = _step(items, first, item, count, key_hash, newest, slot, slot_total)
        if following == CHAIN_BROKEN and offset < 0:
            break
        steps += 1
        if offset >= 0:
            if offset < begin:
                return np.int64(CHAIN_END), offset, steps, found
            if offset < end and offset != newest:
                hits[found] = offset
                found += 1
            newest = offset
        if following == CHAIN_BROKEN:
            break
        item = following
    return item, newest, steps, found


@njit(cache=True, nogil=True)
def look_up_keys(
    slots, items, count, begin, end, key_hash, start, hits_key, hits_offset, broken
):  # fmt: skip
    """Find the physical offsets of many keys by hash, newest first for each, as `IndexFileReader.offsets` does.

    slots, items      as in `put_keys`; items from number 0 to the file's last
    count             highest number of an item to consider; items with higher numbers may not be linked yet
    begin, end        range of the physical offsets to return; offsets descend, so a search ends below `begin`
    key_hash          int32; keys from `start` on are looked up
    hits_key, hits_offset  int32 and int64, room for hits: index of the key, and offset; without consecutive duplicates
    broken            uint8 per key, set to 1 if a chain leads into another slot, or to an item that is not older

    Returns (keys done, hits). If the room for hits is too small, the function returns before all keys are done, and
    the hits of the other keys may be incomplete.
    """
    slot_total = np.uint32(len(slots))
    lane_key = np.full(LANES, -1, np.int64)
    lane_item = np.zeros(LANES, np.int64)
    lane_newest = np.zeros(LANES, np.int64)
    lane_slot = np.zeros(LANES, np.uint32)
    keys = len(key_hash)
    next_key, hits, active = start, 0, 0
    while active > 0 or next_key < keys:
        for lane in range(LANES):
            key = lane_key[lane]
            if key < 0:
                if next_key >= keys:
                    continue
                key = next_key
                next_key += 1
                ahead = min(key + LANES, keys - 1)
                prefetch(slots, np.int64(np.uint32(key_hash[ahead]) % slot_total))
                slot = np.uint32(key_hash[key]) % slot_total
                lane_slot[lane] = slot
                item = signed_word(slots[slot])
                if item != 0 and not 0 < item < len(items):
                    item = CHAIN_BROKEN
                elif item == 0:
                    item = CHAIN_END
                lane_newest[lane] = _INT64_MAX
                active += item >= 0
            else:
                item = lane_item[lane]
                wanted = np.int64(key_hash[key])
                newest = lane_newest[lane]
                following, offset = _step(
                    items, 0, item, count, wanted, newest, lane_slot[lane], slot_total
                )
                if offset >= 0:
                    if offset < begin:
                        following = CHAIN_END
                    elif offset < end and offset != newest:
                        # Several chains are followed at the same time, and end in any order. So return the first key
                        # whose chain has not ended, even if later keys are done.
                        if hits >= len(hits_key):
                            return _oldest(lane_key), hits
                        hits_key[hits], hits_offset[hits] = key, offset
                        hits += 1
                    lane_newest[lane] = offset
                item = np.int64(following)
                active -= item < 0
            if item == CHAIN_BROKEN:
                broken[key] = 1
            # Start loading the item and its neighbours. They are read when the loop returns to this chain.
            prefetch(items, max(item - 1, 0))
            prefetch(items, max(item + 1, 0))
            lane_item[lane] = item
            lane_key[lane] = key if item >= 0 else -1
    return next_key, hits


@njit(inline="always")
def _oldest(lane_key):
    oldest = np.int64(_INT32_MAX)
    for lane in range(LANES):
        if 0 <= lane_key[lane] < oldest:
            oldest = lane_key[lane]
    return oldest
