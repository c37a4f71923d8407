"""Inspect one IndexFile: header, load of the slots, lengths of the chains, damage.

A slot leads to its newest item, and each item to the next older item of the slot. These items are the slot's chain.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from reput.base import Finding, Kind
from reput.format.dtypes import ITEM_DTYPE
from reput.format.index_file import (
    HEADER_BYTES,
    ITEM_BYTES,
    SLOT_BYTES,
    IndexHeader,
    decode_header,
    item_position,
    slot_position,
)
from reput.io import LOCAL, RangeReader, Storage, size_of

_BLOCK_ITEMS = 1 << 20
_LONGEST = 5


@dataclass(slots=True)
class LongChain:
    """One of the longest chains: its slot, its number of items, and the number of different hashes among them."""

    slot: int
    entries: int
    hashes: int


@dataclass(slots=True)
class IndexInspection:
    """The result of an inspection. Times are in ms, offsets are physical.

    entries        number of items, without the unused first one
    chain_lengths  distribution of chain lengths: least length, greatest length and number of slots of each class
    unreachable    items to which no slot and no other item leads
    """

    path: str
    size_bytes: int
    kind: str = "IndexFile"
    hash_slots: int = 0
    index_items: int = 0
    header: IndexHeader = field(default_factory=lambda: IndexHeader(0, 0, 0, 0, 0, 0))
    entries: int = 0
    used_slots: int = 0
    distinct_hashes: int = 0
    messages: int = 0
    chain_lengths: list[tuple[int, int, int]] = field(default_factory=list)
    longest_chains: list[LongChain] = field(default_factory=list)
    unreachable: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def slot_load(self) -> float:
        """Share of the slots that are used, from 0 to 1."""
        return self.used_slots / self.hash_slots

    @property
    def fill(self) -> float:
        """Share of the items that are used, from 0 to 1."""
        return self.entries / max(self.index_items - 1, 1)


def inspect_index_file(
    path: str, hash_slots: int, index_items: int, storage: Storage = LOCAL
) -> IndexInspection:
    """Inspect an IndexFile by reading every slot and item. Needs 5 bytes of memory per item and 20 per slot.

    Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    found = IndexInspection(
        path, size_of(path, storage), hash_slots=hash_slots, index_items=index_items
    )
    with storage.open(path) as reader:
        found.header = decode_header(reader.read(0, HEADER_BYTES))
        count = _checked_count(found)
        slots = np.frombuffer(reader.read(HEADER_BYTES, SLOT_BYTES * hash_slots), ">i4")
        hashes = np.zeros(count, np.int32)
        reached = np.zeros(count, np.bool_)
        found.entries = count - 1
        _read_items(reader, found, hashes, reached)
    _check_slots(found, slots.astype(np.int32), hashes, reached)
    _measure_chains(found, hashes)
    return found


def _checked_count(found: IndexInspection) -> int:
    """Return the header's count, limited to the number of items for which the file has room."""
    count = found.header.next_item
    if found.header.index_count < 0 or count > found.index_items:
        reason = f"index count {found.header.index_count}, but the file has room for {found.index_items} items"
        found.findings.append(Finding(Kind.INDEX_HEADER, found.path, reason, HEADER_BYTES - 4))
    return min(count, found.index_items)


def _read_items(
    reader: RangeReader,
    found: IndexInspection,
    hashes: npt.NDArray[np.int32],
    reached: npt.NDArray[np.bool_],
) -> None:
    """Fill `hashes`, and mark in `reached` the items to which another item leads."""
    last_offset = -1
    for first in range(1, len(hashes), _BLOCK_ITEMS):
        count = min(_BLOCK_ITEMS, len(hashes) - first)
        at = item_position(found.hash_slots, first)
        block = np.frombuffer(reader.read(at, count * ITEM_BYTES), ITEM_DTYPE)
        number = np.arange(first, first + count)
        hashes[first : first + count] = block["key_hash"]
        offsets, previous = (
            block["physical_offset"].astype(np.int64),
            block["previous"].astype(np.int64),
        )
        found.messages += int(np.count_nonzero(np.diff(offsets, prepend=last_offset)))
        last_offset = int(offsets[-1])
        _note(found, number, block["key_hash"] < 0, "the key hash of item {} is negative")
        _note(found, number, offsets < 0, "the physical offset of item {} is negative")
        linked = np.flatnonzero(previous)
        older = (previous[linked] > 0) & (previous[linked] < number[linked])
        _note(
            found,
            number[linked],
            ~older,
            "item {} leads to a later item, itself or none; the chain is cut here",
        )
        linked = linked[older]
        slot, its = (
            hashes[previous[linked]] % found.hash_slots,
            block["key_hash"][linked] % found.hash_slots,
        )
        _note(found, number[linked], slot != its, "item {} leads to an item of another slot")
        reached[previous[linked]] = True


def _check_slots(
    found: IndexInspection,
    slots: npt.NDArray[np.int32],
    hashes: npt.NDArray[np.int32],
    reached: npt.NDArray[np.bool_],
) -> None:
    used = np.flatnonzero(slots)
    inside = (slots[used] > 0) & (slots[used] < len(hashes))
    if not inside.all():
        slot = int(used[np.argmin(inside)])
        reason = f"slot {slot} leads to item {slots[slot]}, but the last item is {len(hashes) - 1}"
        found.findings.append(Finding(Kind.INDEX_SLOT, found.path, reason, slot_position(slot)))
    used = used[inside]
    own = hashes[slots[used]] % found.hash_slots == used
    if not own.all():
        slot = int(used[np.argmin(own)])
        reason = f"slot {slot} leads to item {slots[slot]}, which is of another slot"
        found.findings.append(Finding(Kind.INDEX_SLOT, found.path, reason, slot_position(slot)))
    reached[slots[used]] = True
    found.used_slots = len(used)
    if len(used) != found.header.hash_slot_count:
        reason = (
            f"the header counts {found.header.hash_slot_count} used slots, but {len(used)} are used"
        )
        found.findings.append(Finding(Kind.INDEX_HEADER, found.path, reason, HEADER_BYTES - 8))
    lost = np.flatnonzero(~reached[1:]) + 1
    found.unreachable = len(lost)
    if len(lost):
        others = f", and {len(lost) - 1} others" if len(lost) > 1 else ""
        reason = f"item {lost[0]} is on no chain{others}"
        at = item_position(found.hash_slots, int(lost[0]))
        found.findings.append(Finding(Kind.UNREACHABLE_INDEX_ITEM, found.path, reason, at))


def _measure_chains(found: IndexInspection, hashes: npt.NDArray[np.int32]) -> None:
    """Count the items in each slot's chain, and group the counts by powers of two."""
    slot_of = np.abs(hashes[1:].astype(np.int64)) % found.hash_slots
    lengths = np.bincount(slot_of, minlength=found.hash_slots)
    found.distinct_hashes = len(np.unique(hashes[1:]))
    low, most = 0, int(lengths.max(initial=0))
    while low <= most:
        high = max(2 * low - 1, low)
        slots = int(np.count_nonzero((lengths >= low) & (lengths <= high)))
        found.chain_lengths.append((low, high, slots))
        low = high + 1
    longest = np.argsort(lengths, kind="stable")[::-1][:_LONGEST]
    for slot in longest[lengths[longest] > 0]:
        of_slot = np.unique(hashes[1:][slot_of == slot])
        found.longest_chains.append(LongChain(int(slot), int(lengths[slot]), len(of_slot)))


def _note(
    found: IndexInspection,
    number: npt.NDArray[np.int64],
    wrong: npt.NDArray[np.bool_],
    reason: str,
) -> None:
    """Report the first wrong item of a block, and the number of wrong items."""
    if wrong.any():
        item = int(number[np.argmax(wrong)])
        others = int(np.count_nonzero(wrong)) - 1
        text = reason.format(item) + (f", and {others} others" if others else "")
        at = item_position(found.hash_slots, item)
        found.findings.append(Finding(Kind.INDEX_ITEM, found.path, text, at))
