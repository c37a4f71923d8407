"""Inspect one IndexFile: header, load of the slots, lengths of the chains, damage.

A slot leads to its newest item, and each item to the next older item of the slot. These items are the slot's chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from reput.base import Finding, Kind, counted
from reput.format.dtypes import ITEM_DTYPE
from reput.format.index_file import (
    HEADER,
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
    index = IndexInspection(
        path, size_of(path, storage), hash_slots=hash_slots, index_items=index_items
    )
    with storage.open(path) as reader:
        index.header = decode_header(reader.read(0, HEADER_BYTES))
        count = _checked_count(index)
        slots = np.frombuffer(reader.read(HEADER_BYTES, SLOT_BYTES * hash_slots), ">i4")
        hashes = np.zeros(count, np.int32)
        reached = np.zeros(count, np.bool_)
        index.entries = count - 1
        _read_items(reader, index, hashes, reached)
    _check_slots(index, slots.astype(np.int32), hashes, reached)
    _measure_chains(index, hashes)
    return index


def _checked_count(index: IndexInspection) -> int:
    """Return the header's count, limited to the number of items for which the file has room."""
    index.findings += item_count(index.path, index.header, index.index_items)
    return min(index.header.next_item, index.index_items)


def item_count(path: str, header: IndexHeader, index_items: int) -> Iterator[Finding]:
    """Yield the finding for a header that counts more items than the file has room for."""
    if not 0 <= header.index_count <= index_items:
        detail = f"index count {header.index_count}, but the file has room for {index_items} items"
        yield Finding(Kind.INDEX_HEADER, path, detail, HEADER.positions["index_count"])


def slot_count(path: str, header: IndexHeader, used_slots: int) -> Iterator[Finding]:
    """Yield the finding for a header that counts another number of used slots."""
    if header.hash_slot_count != used_slots:
        detail = f"the header counts {header.hash_slot_count} used slots, but {used_slots} are used"
        yield Finding(Kind.INDEX_HEADER, path, detail, HEADER.positions["hash_slot_count"])


def _read_items(
    reader: RangeReader,
    index: IndexInspection,
    hashes: npt.NDArray[np.int32],
    reached: npt.NDArray[np.bool_],
) -> None:
    """Fill `hashes`, and mark in `reached` the items to which another item leads."""
    last_offset = -1
    for first in range(1, len(hashes), _BLOCK_ITEMS):
        count = min(_BLOCK_ITEMS, len(hashes) - first)
        at = item_position(index.hash_slots, first)
        block = np.frombuffer(reader.read(at, count * ITEM_BYTES), ITEM_DTYPE)
        number = np.arange(first, first + count)
        hashes[first : first + count] = block["key_hash"]
        offsets, previous = (
            block["physical_offset"].astype(np.int64),
            block["previous"].astype(np.int64),
        )
        index.messages += int(np.count_nonzero(np.diff(offsets, prepend=last_offset)))
        last_offset = int(offsets[-1])
        _note(index, number, block["key_hash"] < 0, "the key hash of item {} is negative")
        _note(index, number, offsets < 0, "the physical offset of item {} is negative")
        linked = np.flatnonzero(previous)
        older = (previous[linked] > 0) & (previous[linked] < number[linked])
        _note(
            index,
            number[linked],
            ~older,
            "item {} leads to a later item, itself or none; the chain is cut here",
        )
        linked = linked[older]
        slot, own_slot = (
            hashes[previous[linked]] % index.hash_slots,
            block["key_hash"][linked] % index.hash_slots,
        )
        _note(index, number[linked], slot != own_slot, "item {} leads to an item of another slot")
        reached[previous[linked]] = True


def _check_slots(
    index: IndexInspection,
    slots: npt.NDArray[np.int32],
    hashes: npt.NDArray[np.int32],
    reached: npt.NDArray[np.bool_],
) -> None:
    used = np.flatnonzero(slots)
    inside = (slots[used] > 0) & (slots[used] < len(hashes))
    if not inside.all():
        slot = int(used[np.argmin(inside)])
        reason = f"slot {slot} leads to item {slots[slot]}, but the last item is {len(hashes) - 1}"
        index.findings.append(Finding(Kind.INDEX_SLOT, index.path, reason, slot_position(slot)))
    used = used[inside]
    is_of_slot = hashes[slots[used]] % index.hash_slots == used
    if not is_of_slot.all():
        slot = int(used[np.argmin(is_of_slot)])
        reason = f"slot {slot} leads to item {slots[slot]}, which is of another slot"
        index.findings.append(Finding(Kind.INDEX_SLOT, index.path, reason, slot_position(slot)))
    reached[slots[used]] = True
    index.used_slots = len(used)
    index.findings += slot_count(index.path, index.header, len(used))
    lost = np.flatnonzero(~reached[1:]) + 1
    index.unreachable = len(lost)
    if len(lost):
        more = f", and {counted(len(lost) - 1, 'other')}" if len(lost) > 1 else ""
        reason = f"item {lost[0]} is on no chain{more}"
        at = item_position(index.hash_slots, int(lost[0]))
        index.findings.append(Finding(Kind.UNREACHABLE_INDEX_ITEM, index.path, reason, at))


def _measure_chains(index: IndexInspection, hashes: npt.NDArray[np.int32]) -> None:
    """Count the items in each slot's chain, and group the counts by powers of two."""
    slot_of = np.abs(hashes[1:].astype(np.int64)) % index.hash_slots
    lengths = np.bincount(slot_of, minlength=index.hash_slots)
    index.distinct_hashes = len(np.unique(hashes[1:]))
    index.chain_lengths = slots_by_chain_length(np.bincount(lengths))
    longest = np.argsort(lengths, kind="stable")[::-1][:_LONGEST]
    for slot in longest[lengths[longest] > 0]:
        of_slot = np.unique(hashes[1:][slot_of == slot])
        index.longest_chains.append(LongChain(int(slot), int(lengths[slot]), len(of_slot)))


def slots_by_chain_length(slots: npt.NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Group slots by chain length: 0, 1, 2-3, 4-7 and so on. `slots[n]` is the number of slots with n items."""
    groups, low = [], 0
    while low < len(slots):
        high = max(2 * low - 1, low)
        groups.append((low, high, int(slots[low : high + 1].sum())))
        low = high + 1
    return groups


def _note(
    index: IndexInspection,
    number: npt.NDArray[np.int64],
    wrong: npt.NDArray[np.bool_],
    reason: str,
) -> None:
    """Report the first wrong item of a block, and the number of wrong items."""
    if wrong.any():
        item = int(number[np.argmax(wrong)])
        count = int(np.count_nonzero(wrong)) - 1
        text = reason.format(item) + (f", and {counted(count, 'other')}" if count else "")
        at = item_position(index.hash_slots, item)
        index.findings.append(Finding(Kind.INDEX_ITEM, index.path, text, at))
