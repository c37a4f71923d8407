"""IndexFile, the reading side: from the hash of a key to physical offsets.

Mirrors `IndexFile.selectPhyOffset` (tag rocketmq-all-4.9.3) without its cap, time window and early
stops; those are `reput.query.compat`. The layout is told in `reput.format.index_file`.

What is trusted: nothing. An item's chain must lead from its slot to ever older items of that same
slot, and their physical offsets must not grow; a chain that does anything else is broken there,
and says so.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from pathlib import Path

from reput.errors import FormatError
from reput.files.mapped_file import MappedFile
from reput.format.file_names import is_index_file_name
from reput.format.index_file import (
    HEADER_BYTES,
    ITEM_BYTES,
    SLOT_BYTES,
    IndexHeader,
    IndexItem,
    decode_header,
    decode_item,
    file_bytes,
    item_position,
)

_SLOT = struct.Struct(">i")
_INDEX_COUNT = struct.Struct(">36xi")
_CHAINED_ITEM = struct.Struct(">iq4xi")  # key hash, physical offset, previous
_ITEM_OFFSET = struct.Struct(">4xq")
_OFFSET_MAX = 2**63 - 1
_READS_OF_HEADER = 5
_CHAIN_STEPS = 256
_UNCOUNTED_ITEMS = 1 << 12  # that another process may have put and not counted yet
_UNUSED = bytes(1 << 12)


class BrokenChainError(FormatError):
    """A chain of items that leads nowhere, in circles, or astray; `offset` is in the IndexFile."""


def index_paths(folder: Path) -> list[Path]:
    """The IndexFiles in a folder, oldest first; none where there is no such folder."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if is_index_file_name(path.name))


class IndexFileReader:
    """One IndexFile; another process may be putting keys into it meanwhile.

    Raises StoreNotFoundError, StoreAccessError, and FormatError for a file whose size or header
    cannot be right.
    """

    __slots__ = ("_data", "_file", "_items_at", "hash_slots", "index_items", "name", "path")

    def __init__(self, path: str, hash_slots: int, index_items: int) -> None:
        self.path, self.name = path, path.rpartition("/")[2]
        self.hash_slots, self.index_items = hash_slots, index_items
        self._file = MappedFile(path)
        self._data = self._file.data
        self._items_at = item_position(hash_slots, 0)
        try:
            self._check()
        except FormatError:
            self.close()
            raise

    def _check(self) -> None:
        size, wanted = self._file.size, file_bytes(self.hash_slots, self.index_items)
        if size != wanted:
            geometry = f"{self.hash_slots} slots and {self.index_items} items"
            raise FormatError(self.path, size, f"{size} bytes, but {geometry} take {wanted}")
        count = self.header().index_count
        if not 0 <= count <= self.index_items:
            raise FormatError(self.path, 36, f"index count {count} of {self.index_items} items")

    def close(self) -> None:
        self._file.close()

    def header(self) -> IndexHeader:
        """The header as it is now."""
        return decode_header(self._data)

    @property
    def next_item(self) -> int:
        """Number that the next item gets: items 1 to next_item - 1 are there."""
        count: int = _INDEX_COUNT.unpack_from(self._data)[0]
        return min(max(count, 1), self.index_items)

    def item(self, number: int) -> IndexItem:
        """Item 0 <= number < index_items."""
        return decode_item(self._data, self._items_at + number * ITEM_BYTES)

    def slot(self, number: int) -> int:
        """Number of the newest item of slot 0 <= number < hash_slots, <= 0 for none."""
        value: int = _SLOT.unpack_from(self._data, HEADER_BYTES + SLOT_BYTES * number)[0]
        return value

    def used_slots(self) -> int:
        """How many slots are not zero; reads them all."""
        used = 0
        for begin in range(HEADER_BYTES, self._items_at, len(_UNUSED)):
            part = bytes(self._data[begin : min(begin + len(_UNUSED), self._items_at)])
            if part != _UNUSED:  # in a file of few entries most are
                slots = array("i", part)
                used += len(slots) - slots.count(0)
        return used

    def is_consistent(self) -> bool:
        """Whether header and items begin and end alike, as they do unless a write was lost."""
        for _ in range(_READS_OF_HEADER):  # a broker sets count and end one after the other
            last, header = self.next_item - 1, self.header()
            if last == 0 or self.item(last).physical_offset == header.end_physical_offset:
                return last == 0 or self.item(1).physical_offset == header.begin_physical_offset
        return False

    def reaches(self, number: int) -> bool:
        """Whether an item is in the chain of the slot that its hash says; not checked very deep."""
        item = self.item(number)
        if item.key_hash < 0 or item.physical_offset < 0 or not 0 <= item.previous < number:
            return False
        reached = self.slot(item.key_hash % self.hash_slots)
        stop = min(self.next_item + _UNCOUNTED_ITEMS, self.index_items)
        for _ in range(_CHAIN_STEPS):
            if not number < reached < stop:
                return reached == number
            reached = self.item(reached).previous
        return True

    def offsets(self, key_hash: int) -> Iterator[int]:
        """Physical offsets of the items with this hash, newest first.

        Ends with BrokenChainError where the chain breaks; more items with this hash may be there.
        """
        data, items_at, slots = self._data, self._items_at, self.hash_slots
        read_item = _CHAINED_ITEM.unpack_from
        slot = key_hash % slots
        item: int = _SLOT.unpack_from(data, HEADER_BYTES + SLOT_BYTES * slot)[0]
        if item == 0:
            return
        # Items are counted after they were put into their slots: newer ones than are counted lead to those that are.
        count, last = self.next_item - 1, self.index_items - 1
        newest = _OFFSET_MAX
        position = HEADER_BYTES + SLOT_BYTES * slot
        while 0 < item <= last:
            position = items_at + ITEM_BYTES * item
            item_hash, offset, previous = read_item(data, position)
            if item > count:
                if item_hash % slots != slot:
                    break
            elif item_hash == key_hash:
                if not 0 <= offset <= newest or not self.is_in_order(item, count):
                    raise BrokenChainError(self.path, position, f"item {item} is damaged")
                newest = offset
                yield offset
            elif item_hash % slots != slot:
                raise BrokenChainError(self.path, position, f"item {item} is not of slot {slot}")
            if previous == 0:
                # A write that was lost in part leaves an end where there should be none.
                if item <= count and item_hash != key_hash and not self.is_in_order(item, count):
                    raise BrokenChainError(self.path, position, f"item {item} is damaged")
                return
            last, item = item - 1, previous
        raise BrokenChainError(self.path, position, f"slot {slot}: its chain leads to item {item}")

    def is_in_order(self, number: int, last: int) -> bool:
        """Whether the physical offset of an item of 1 to `last` lies between its neighbours'.

        That of an item that was lost in part hardly does.
        """
        position = self._items_at + ITEM_BYTES * number
        offset = _ITEM_OFFSET.unpack_from(self._data, position)[0]
        if number > 1 and _ITEM_OFFSET.unpack_from(self._data, position - ITEM_BYTES)[0] > offset:
            return False
        after = (
            _ITEM_OFFSET.unpack_from(self._data, position + ITEM_BYTES)[0]
            if number < last
            else offset
        )
        return bool(offset <= after)
