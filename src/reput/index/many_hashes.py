"""Rule out, of many hashes, those that an IndexFile does not have: the slots of all are read in one pass.

A search for a key in all topics of a store asks for as many hashes as there are topics. An IndexFile has hardly one of
them. A hash is ruled out only if following it one by one would find nothing, and nothing wrong: its page of slots is
not in doubt, and its slot is empty, or leads to a valid chain of other hashes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reput.format.dtypes import ITEM_DTYPE
from reput.format.index_file import HEADER_BYTES, SLOT_BYTES
from reput.index.entries import IndexEntries
from reput.index.reader import SLOT_PAGE_BYTES, IndexFileReader
from reput.index.spot_checks import LEAST_DOUBT, SlotPages

_PIECE_SLOTS = 1 << 16
_PIECE_PAGES = 1 << 6
_SIEVE = np.uint32(1 << 18)
_MOST_STEPS = 64
_NEIGHBOURS = np.dtype([(name, ITEM_DTYPE) for name in ("before", "item", "after")])

Hashes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def worth_following(
    file: IndexFileReader, hashes: npt.NDArray[np.int32], slots: SlotPages | None
) -> list[int]:
    """Return the hashes to follow one by one, ascending. Raises StoreAccessError, StoreChangedError.

    Args:
        file: The IndexFile.
        hashes: Ascending.
        slots: Its pages of slots if they are checked before a chain is followed.
    """
    wanted = hashes.astype(np.int64)
    wanted = wanted[np.argsort(wanted % file.hash_slots)]
    numbers = wanted % file.hash_slots
    left = np.zeros(len(wanted), np.bool_)
    if slots is not None:
        left = _in_doubt(file, slots, wanted, numbers)
    items = _slots(file, numbers)
    left |= (items != 0) & ~_leads_to_others(file, wanted, items)
    found: list[int] = np.sort(wanted[left]).tolist()
    return found


def _in_doubt(file: IndexFileReader, slots: SlotPages, hashes: Hashes, numbers: Hashes) -> Mask:
    """Return for which hashes, in slots of ascending numbers, `SlotPages.check` would have to look at the items."""
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
    """Return of some pages: number of slots, of used slots, and the newest item that one leads to."""
    begin = max(first * SLOT_PAGE_BYTES, HEADER_BYTES)
    end = min(stop * SLOT_PAGE_BYTES, HEADER_BYTES + SLOT_BYTES * file.hash_slots)
    values = file.read(begin, end - begin, np.uint32).byteswap().view(np.int32)
    starts = np.maximum(np.arange(first, stop) * SLOT_PAGE_BYTES, begin) - begin
    starts //= SLOT_BYTES
    lengths = np.diff(starts, append=len(values))
    used = np.add.reduceat((values != 0).view(np.int8), starts, dtype=np.int64)
    return [lengths, used, np.maximum.reduceat(values, starts)]


def _have_items(file: IndexFileReader, hashes: Hashes) -> Mask:
    """Return which hashes an item of the file has, whether or not a slot leads to it."""
    found = np.zeros(len(hashes), np.bool_)
    order = np.argsort(hashes)
    ascending = hashes[order].astype(np.uint32)
    may_be = np.zeros(_SIEVE, np.bool_)
    may_be[ascending % _SIEVE] = True
    for _, items in IndexEntries(file).pieces(1, file.next_item):
        present = items[:, 0].byteswap()
        present = present[may_be[present % _SIEVE]]
        at = np.searchsorted(ascending, present)
        at[at == len(ascending)] = 0
        found[order[at[ascending[at] == present]]] = True
    return found


def _slots(file: IndexFileReader, numbers: Hashes) -> Hashes:
    """Return the values of ascending slots."""
    found = np.empty(len(numbers), np.int64)
    for begin in range(0, file.hash_slots, _PIECE_SLOTS):
        first, stop = np.searchsorted(numbers, (begin, begin + _PIECE_SLOTS))
        if first < stop:
            low, high = int(numbers[first]), int(numbers[stop - 1]) + 1
            at, length = HEADER_BYTES + SLOT_BYTES * low, SLOT_BYTES * (high - low)
            values = file.read(at, length, np.uint32)[numbers[first:stop] - low]
            found[first:stop] = values.byteswap().view(np.int32)
    return found


def _leads_to_others(file: IndexFileReader, hashes: Hashes, items: Hashes) -> Mask:
    """Return for which hashes the chain from an item is valid, ends, and has only other hashes.

    The rules are those of `IndexFileReader.chain`. Where they need a closer look, the answer is false.
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
