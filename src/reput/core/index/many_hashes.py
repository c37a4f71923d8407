"""Find out which of many hashes an IndexFile lacks, by reading all of their slots in one pass.

A search for a key in all topics of a store needs one hash per topic, and an IndexFile contains hardly any of them. A
hash is ruled out only if following its chain would find neither an entry nor damage. So its slot must be empty or
lead to a valid chain of items with other hashes, and the page that contains the slot must not seem to have lost slots
(`reput.core.index.spot_checks.SlotPages`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reput.core.index.entries import IndexEntries
from reput.core.index.reader import SLOT_PAGE_BYTES, IndexFileReader
from reput.core.index.spot_checks import LEAST_DOUBT, SlotPages
from reput.format.dtypes import ITEM_DTYPE, item_hashes
from reput.format.index_file import HEADER_BYTES, SLOT_BYTES

_PIECE_SLOTS = 1 << 16
_PIECE_PAGES = 1 << 6
# Size of a table of flags that discards most hashes before the exact comparison.
_SIEVE = np.uint32(1 << 18)
# A chain is followed for this many items at most. If it is longer, its hash must be looked up on its own.
_MOST_STEPS = 64
_NEIGHBOURS = np.dtype([(name, ITEM_DTYPE) for name in ("before", "item", "after")])

Hashes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def worth_following(
    file: IndexFileReader, hashes: npt.NDArray[np.int32], slots: SlotPages | None
) -> list[int]:
    """Return the hashes that the file may contain, ascending. For the other hashes, it has no items.

    Raises StoreAccessError, StoreChangedError.

    Args:
        file: The IndexFile.
        hashes: Ascending hashes.
        slots: The `SlotPages` object of the file, which detects pages that may have lost slots; None if every link of
            the file's chains was already checked.
    """
    values = hashes.astype(np.int64)
    # Sort the hashes by slot, so that the file is read from front to back.
    values = values[np.argsort(values % file.hash_slots)]
    numbers = values % file.hash_slots
    in_doubt = np.zeros(len(values), np.bool_)
    if slots is not None:
        in_doubt = _in_doubt(file, slots, values, numbers)
    items = _slots(file, numbers)
    in_doubt |= (items != 0) & ~_leads_to_others(file, values, items)
    chosen: list[int] = np.sort(values[in_doubt]).tolist()
    return chosen


def _in_doubt(file: IndexFileReader, slots: SlotPages, hashes: Hashes, numbers: Hashes) -> Mask:
    """Return a mask of the hashes whose slot is in a page that may have lost slots (`SlotPages`).

    Such a slot does not show whether the file contains the hash. A look-up of the hash calls `SlotPages.check`, which
    then searches all items of the file. If the file has too few items to judge a page, a hash of this page is included
    only if an item has the hash.

    `numbers` are the slots of the hashes, ascending.
    """
    pages = (HEADER_BYTES + SLOT_BYTES * numbers) // SLOT_PAGE_BYTES
    is_trusted = np.frombuffer(slots.is_trusted, np.bool_)
    unknown = pages[~is_trusted[pages]]
    unknown = unknown[np.diff(unknown, prepend=-1) > 0]
    in_doubt, few = np.zeros(len(is_trusted), np.bool_), np.zeros(len(is_trusted), np.bool_)
    for begin in range(0, len(unknown), _PIECE_PAGES):
        piece = unknown[begin : begin + _PIECE_PAGES]
        counts = _counts_of_pages(file, int(piece[0]), int(piece[-1]) + 1)
        counts = [column[piece - piece[0]] for column in counts]
        last = file.next_item - 1
        for length in np.unique(counts[0]):
            alike = np.flatnonzero(counts[0] == length)
            used, newest = counts[1][alike], counts[2][alike]
            # These pages have equally many slots. First test an imaginary page that combines the worst values of all
            # these pages: the fewest used slots, and the oldest items. If even the imaginary page does not seem to have
            # lost slots, all these pages can be trusted.
            doubt = slots.doubt(int(length), int(used.min()), int(newest.min()), last)
            if doubt is None:
                few[piece[alike]] = True
            elif doubt >= LEAST_DOUBT:
                each = zip(used.tolist(), newest.tolist(), strict=True)
                doubts = [slots.doubt(int(length), *page, last) or 0.0 for page in each]
                in_doubt[piece[alike]] = np.array(doubts) >= LEAST_DOUBT
    trusted = unknown[~(in_doubt | few)[unknown]]
    for page in trusted.tolist():
        slots.is_trusted[page] = True
    found = in_doubt[pages]
    rows = np.flatnonzero(few[pages])
    if len(rows):
        found[rows] = _have_items(file, hashes[rows])
    return found


def _counts_of_pages(file: IndexFileReader, first: int, stop: int) -> list[Hashes]:
    """Return three arrays about some pages: number of slots, number of used slots, highest item number."""
    begin = max(first * SLOT_PAGE_BYTES, HEADER_BYTES)
    end = min(stop * SLOT_PAGE_BYTES, HEADER_BYTES + SLOT_BYTES * file.hash_slots)
    values = file.read(begin, end - begin, np.uint32).byteswap().view(np.int32)
    starts = np.maximum(np.arange(first, stop) * SLOT_PAGE_BYTES, begin) - begin
    starts //= SLOT_BYTES
    lengths = np.diff(starts, append=len(values))
    used = np.add.reduceat((values != 0).view(np.int8), starts, dtype=np.int64)
    return [lengths, used, np.maximum.reduceat(values, starts)]


def _have_items(file: IndexFileReader, hashes: Hashes) -> Mask:
    """Return which hashes occur in an item of the file, even if no slot leads to the item."""
    present_hashes = np.zeros(len(hashes), np.bool_)
    order = np.argsort(hashes)
    ascending = hashes[order].astype(np.uint32)
    may_be = np.zeros(_SIEVE, np.bool_)
    may_be[ascending % _SIEVE] = True
    for _, items in IndexEntries(file).pieces(1, file.next_item):
        present = item_hashes(items).view(np.uint32)
        present = present[may_be[present % _SIEVE]]
        at = np.searchsorted(ascending, present)
        # A hash above all wanted hashes has no place among them. It gets place 0: the wanted hash there is a lower one,
        # so they do not match.
        at[at == len(ascending)] = 0
        present_hashes[order[at[ascending[at] == present]]] = True
    return present_hashes


def _slots(file: IndexFileReader, numbers: Hashes) -> Hashes:
    """Return the values of slots. Their numbers must ascend."""
    slot_values = np.empty(len(numbers), np.int64)
    for begin in range(0, file.hash_slots, _PIECE_SLOTS):
        first, stop = np.searchsorted(numbers, (begin, begin + _PIECE_SLOTS))
        if first < stop:
            low, high = int(numbers[first]), int(numbers[stop - 1]) + 1
            at, length = HEADER_BYTES + SLOT_BYTES * low, SLOT_BYTES * (high - low)
            values = file.read(at, length, np.uint32)[numbers[first:stop] - low]
            slot_values[first:stop] = values.byteswap().view(np.int32)
    return slot_values


def _leads_to_others(file: IndexFileReader, hashes: Hashes, items: Hashes) -> Mask:
    """Return for each hash whether the chain of its slot is valid up to its end, and has no item with this hash.

    `items` are the numbers of the items to which the slots point. `IndexFileReader.chain` has the rules for valid
    chains. The answer is false for chains longer than `_MOST_STEPS`.
    """
    ruled_out = np.zeros(len(hashes), np.bool_)
    counted = file.next_item - 1
    rows = np.flatnonzero(items > 0)
    items, last = items[rows], np.full(len(rows), min(counted, file.index_items - 2), np.int64)
    for _ in range(_MOST_STEPS):
        known = (items > 0) & (items <= last)
        rows, items = rows[known], items[known]
        if not len(rows):
            break
        read = np.frombuffer(file.with_neighbours(items.tolist()), _NEIGHBOURS)
        before, item, after = (read[name] for name in ("before", "item", "after"))
        ends, offset = item["previous"] == 0, item["physical_offset"]
        is_other = item["key_hash"] != hashes[rows]
        is_of_slot = item["key_hash"] % file.hash_slots == hashes[rows] % file.hash_slots
        in_order = ((items == 1) | (before["physical_offset"] <= offset)) & (
            (items == counted) | (offset <= after["physical_offset"])
        )
        ruled_out[rows[ends & is_other & is_of_slot & in_order]] = True
        on = ~ends & is_other & is_of_slot
        rows, last, items = rows[on], items[on] - 1, item["previous"][on].astype(np.int64)
    return ruled_out
