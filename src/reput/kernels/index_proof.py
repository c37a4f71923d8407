"""Test whether look-ups reach all items of an IndexFile, and find consecutive items whose messages lie far apart.

A look-up starts at a slot and follows a chain of the slot's items, with ever smaller numbers, until a pointer of 0 ends
the chain (`reput.core.index.reader`). The slot has one pointer, and so has each of its items. Look-ups reach all items
of a slot if and only if each item is the target of exactly one of these pointers, and exactly one pointer is 0. To test
this condition for all slots, each pointer adds the hash of the pair (slot, target) to a sum. Each item subtracts the
hash of the pair (slot, item), and each slot the hash of (slot, 0). If the sum is 0, look-ups reach every item. The test
reads the items sequentially, whereas following the chains would miss the processor's cache at each item.

If the messages of consecutive items lie far apart (`find_wide_gaps`), items between them may have been lost.
"""

from __future__ import annotations

import numpy as np

from reput.kernels.entry_words import (
    ITEM_HASH,
    ITEM_PREVIOUS,
    ITEM_SECONDS,
    item_offset,
    signed_word,
    slot_of,
)
from reput.kernels.integers import swap32
from reput.kernels.jit import njit


@njit(inline="always")
def _mixed(slot, item, seed):
    """Return a hash of a slot and an item (murmur3's finisher with one round less)."""
    word = (np.uint64(slot) << np.uint64(32) | np.uint64(item)) ^ seed
    word = (word ^ (word >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    word = (word ^ (word >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return word ^ (word >> np.uint64(33))


@njit(cache=True, nogil=True)
def check_slots(slots, seed):
    """Return the sum of hashes (see the module) over a file's slots. `check_items` adds the file's items to this sum.

    Each slot adds the hash of (slot, pointer), and subtracts the hash of (slot, 0). An empty slot has the pointer 0, so
    it does not change the sum.

    slots  uint32[hash_slots], the file's bytes
    seed   uint64, unknown to the writer of the file

    Returns (sum, number of slots that are not 0, highest item number to which a slot points).
    """
    total, used, newest = np.uint64(0), 0, 0
    for slot in range(len(slots)):
        word = slots[slot]
        if word != 0:
            target = swap32(word)
            total += _mixed(slot, target, seed) - _mixed(slot, np.uint64(0), seed)
            used += 1
            newest = max(newest, signed_word(word))
    return total, used, newest


@njit(cache=True, nogil=True)
def check_items(items, first, last, slot_total, seed, total, before):
    """Continue the sum of `check_slots` with items, and check their order.

    If look-ups reach every item, the sum over all slots and items is 0.

    items   RawEntries, the file's bytes from item `first` on
    last    the newest item that is counted
    total   the sum so far; for the first items, the sum of `check_slots`
    before  physical offset of the previous item; -1 at first

    Returns the sum, three counts, and the physical offset of the last item. The counts are: the number of pointers that
    do not lead to an older item; the number of items with a negative hash, or with an offset that is negative or below
    the previous item's; and the number of distinct messages. Damage goes undetected with a probability of 1 in 2**64,
    unless the damage was crafted by someone who knows the seed.
    """
    forwards, disordered, messages = 0, 0, 0
    for row in range(len(items)):
        item = np.int64(first) + row
        hashed = signed_word(items[np.uint64(row), ITEM_HASH])
        previous = np.uint64(swap32(items[np.uint64(row), ITEM_PREVIOUS]))
        slot = slot_of(hashed, slot_total)
        total += _mixed(slot, previous, seed) - _mixed(slot, np.uint64(item), seed)
        forwards += previous >= np.uint64(item)
        if item <= last:
            offset = item_offset(items, row)
            messages += offset != before
            disordered += (offset < max(before, 0)) | (hashed < 0)
            before = offset
    return total, forwards, disordered, messages, before


@njit(cache=True, nogil=True)
def count_falls(items, first, last, before):
    """Count the items up to `last` whose time in seconds is negative, or smaller than the previous item's.

    Item 1 is skipped, because its seconds count from the end of the previous file (`IndexFile.putKey`).

    items, first  as in `check_items`
    before        seconds of the previous item; 0 at first

    Returns (their number, seconds of the last item).
    """
    falls = 0
    for row in range(len(items)):
        item = np.int64(first) + row
        if 1 < item <= last:
            seconds = signed_word(items[np.uint64(row), ITEM_SECONDS])
            falls += seconds < before
            before = seconds
    return falls, before


@njit(cache=True, nogil=True)
def find_lost_items(items, first, last, leads_to, offset_after, lost, found):
    """Find, in descending order, items that no look-up reaches, or whose offset is not between its neighbours' offsets.

    items, first, last  as in `check_items`
    leads_to            int32[hash_slots], the item to which each slot's chain leads next; the caller sets it to the
                        file's slots, and this function updates it
    offset_after        physical offset of the item after these items; the highest possible offset if no item follows
    lost                int64, set to the items' numbers, descending, some of them twice
    found               number of items that earlier calls have found

    Returns (number of items found by all calls, which may exceed the room in `lost`; physical offset of the first
    item).
    """
    for row in range(len(items) - 1, -1, -1):
        item = np.int64(first) + row
        hashed = signed_word(items[np.uint64(row), ITEM_HASH])
        slot = slot_of(hashed, len(leads_to))
        is_reached = leads_to[slot] == item
        # Items are visited from the newest to the oldest. For each slot, `leads_to` has the next item of the slot's
        # chain.
        if is_reached:
            previous = signed_word(items[np.uint64(row), ITEM_PREVIOUS])
            # A look-up stops at a pointer that does not lead to an older item, so it reaches no further item.
            leads_to[slot] = np.int32(previous if previous < item else -1)
        if item > last:
            continue
        offset = item_offset(items, row)
        is_late = offset > offset_after
        if not is_reached or is_late or offset < 0 or hashed < 0:
            if found < len(lost):
                lost[found] = item
            found += 1
        # Either this item or the next one has a wrong offset, so report both.
        if is_late:
            if found < len(lost):
                lost[found] = item + 1
            found += 1
        offset_after = offset
    return found, offset_after


@njit(cache=True, nogil=True)
def find_wide_gaps(items, first, least, gaps, widths, found):
    """Find items, except the last, whose message lies more than `least` bytes before the next item's message.

    items         as in `check_items`
    gaps, widths  int64, set to the items' numbers, ascending, and to the widths of their gaps in bytes
    found         number of gaps that are already in `gaps`

    Returns (number of gaps in `gaps`, least). If there is no room for all gaps, `least` is doubled until they fit.
    """
    offset = item_offset(items, 0)
    for row in range(len(items) - 1):
        following = item_offset(items, row + 1)
        # There is no room for another gap: double `least`, and keep only the gaps that are wider.
        while following - offset > least and found == len(gaps):
            least *= 2
            found = 0
            for index in range(len(gaps)):
                if widths[index] > least:
                    gaps[found], widths[found] = gaps[index], widths[index]
                    found += 1
        if following - offset > least:
            gaps[found], widths[found] = np.int64(first) + row, following - offset
            found += 1
        offset = following
    return found, least
