"""List the parts of an IndexFile: used slots, items, the chain of a key. docs/format/index-file.md has a drawing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from reput.core import IndexFileReader, IndexGeometry
from reput.errors import FormatError
from reput.format import index_file
from reput.format.dtypes import ITEM_DTYPE
from reput.format.index_file import key_hash
from reput.io import LOCAL, Storage

_BLOCK = 1 << 16


class SlotRow(NamedTuple):
    """A used slot. `position` is its offset in the file; `newest_item` is the number of the item that it points to.

    In RocketMQ: slotPos.
    """

    slot: int
    position: int
    newest_item: int


class ItemRow(NamedTuple):
    """An item. `position` is its offset in the file.

    `store_timestamp` (ms) is derived as a broker does it: begin time of the header plus `time_diff_s`.

    In RocketMQ: timeRead.
    """

    item: int
    position: int
    key_hash: int
    slot: int
    physical_offset: int
    time_diff_s: int
    store_timestamp: int
    previous: int


class Chain(NamedTuple):
    """The chain of a key's slot. `items` yields the newest item first, and raises FormatError at a broken link."""

    key_hash: int
    slot: SlotRow
    items: Iterator[ItemRow]


def list_slots(path: str, geometry: IndexGeometry, storage: Storage = LOCAL) -> Iterator[SlotRow]:
    """Yield the used slots in ascending order. An unused slot is 0.

    Raises:
        StoreNotFoundError, StoreAccessError, StoreChangedError: the file cannot be read.
    """
    with storage.open(path) as reader:
        for first in range(0, geometry.hash_slots, _BLOCK):
            count = min(_BLOCK, geometry.hash_slots - first)
            block = np.frombuffer(
                reader.read(index_file.slot_position(first), index_file.SLOT_BYTES * count), ">i4"
            )
            used = np.flatnonzero(block)
            for slot, newest in zip(used.tolist(), block[used].tolist(), strict=True):
                yield SlotRow(first + slot, index_file.slot_position(first + slot), newest)


def list_items(path: str, geometry: IndexGeometry, storage: Storage = LOCAL) -> Iterator[ItemRow]:
    """Yield the items, oldest first: from item 1 to the index count of the header, or to the end of the file.

    Raises:
        StoreNotFoundError, StoreAccessError, StoreChangedError: the file cannot be read.
    """
    slots = geometry.hash_slots
    with storage.open(path) as reader:
        header = index_file.decode_header(reader.read(0, index_file.HEADER_BYTES))
        end = header.last_item(geometry.index_items) + 1
        for first in range(1, end, _BLOCK):
            count = min(_BLOCK, end - first)
            data = reader.read(
                index_file.item_position(slots, first), index_file.ITEM_BYTES * count
            )
            for number, item in enumerate(np.frombuffer(data, ITEM_DTYPE).tolist(), first):
                yield _row(number, slots, header.begin_timestamp, *item)


def chain_of(
    path: str, geometry: IndexGeometry, topic: str, key: str, storage: Storage = LOCAL
) -> Chain:
    """Return the chain for a key of a topic. An item with the key's hash may still belong to another key.

    Raises:
        StoreNotFoundError, StoreAccessError, StoreChangedError: the file cannot be read.
        FormatError: the size or the header is invalid. At a broken link, the iterator of items raises this error.
    """
    hashed = key_hash(index_file.index_key(topic, key))
    slot = hashed % geometry.hash_slots
    reader = IndexFileReader(path, *geometry, storage)
    newest = reader.slot(slot)
    row = SlotRow(slot, index_file.slot_position(slot), newest)
    return Chain(hashed, row, _walk(reader, row))


def _walk(reader: IndexFileReader, slot: SlotRow) -> Iterator[ItemRow]:
    """Yield the items of a chain, newest first.

    The newest item may be missing from the header's count, because a broker updates the count after it writes the item.
    """
    slots, begin = reader.hash_slots, reader.header().begin_timestamp
    position, before, number = slot.position, reader.index_items, slot.newest_item
    try:
        while number:
            # A link always leads to an older item, so numbers must decrease. This check also detects a cycle.
            if not 0 < number < before:
                reason = f"the chain of slot {slot.slot} leads to item {number}"
                raise FormatError(reader.path, position, reason)
            row = _row(number, slots, begin, *reader.item(number))
            yield row
            if row.slot != slot.slot:
                reason = f"item {number} is in the chain of slot {slot.slot}, its hash is of slot {row.slot}"
                raise FormatError(reader.path, row.position, reason)
            position, before, number = row.position, number, row.previous
    finally:
        reader.close()


def _row(
    number: int, slots: int, begin_ms: int, hashed: int, offset: int, diff_s: int, previous: int
) -> ItemRow:
    at, stored_ms = index_file.item_position(slots, number), begin_ms + 1000 * diff_s
    return ItemRow(number, at, hashed, hashed % slots, offset, diff_s, stored_ms, previous)
