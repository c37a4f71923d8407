"""The index files of tiered storage that a broker still fills, in its `tiered_index_file/` (5.x).

Mirrors `IndexStoreFile` (tag rocketmq-all-5.3.3). A file does not state how many slots it has: that is a setting of the
broker (`tieredStoreIndexFileMaxHashSlotNum`). It is worked out from the items, which must be in the chains of their
slots.
"""

from __future__ import annotations

from collections.abc import Iterator

from reput.files.storage import FolderEntry, Storage
from reput.format.tiered import (
    HEADER_BYTES,
    LOCAL_ITEM_BYTES,
    SLOT_BYTES,
    TieredItem,
    decode_local_item,
    decode_local_items,
)

_DEFAULT_SLOTS = 5_000_000
_MOST_SEARCHED_BYTES = 1 << 20
_CHECKED_ITEMS = 64


class LocalIndexFile:
    """One file, opened for as long as `items` runs.

    Raises ValueError for one whose slots cannot be worked out; StoreNotFoundError, StoreAccessError.
    """

    def __init__(self, entry: FolderEntry, storage: Storage) -> None:
        self._path, self._size, self._storage = entry.path, entry.stat().st_size, storage
        with storage.open(self._path) as reader:
            is_small = self._size <= _MOST_SEARCHED_BYTES
            self._data = reader.read(0, self._size if is_small else HEADER_BYTES)
            self._count = decode_local_items(self._data)
            self._slots = self._find_slots()

    def items(self, key_hash: int) -> Iterator[TieredItem]:
        """Items with that hash, newest first."""
        if key_hash < 0 or not self._count:
            return
        number = self._slot(key_hash % self._slots)
        while 0 < number <= self._count:
            item, previous = self._item(self._slots, number)
            if item.key_hash == key_hash:
                yield item
            if previous >= number:
                raise ValueError(f"the chain of a slot goes from item {number} to {previous}")
            number = previous

    def _find_slots(self) -> int:
        if not self._count:
            return 1
        candidates = [_DEFAULT_SLOTS]
        if self._size <= _MOST_SEARCHED_BYTES:
            most = (self._size - HEADER_BYTES - (self._count + 1) * LOCAL_ITEM_BYTES) // SLOT_BYTES
            candidates = [slots for slots in range(1, most + 1) if self._fits(slots)]
        found = next((slots for slots in candidates if self._fits(slots) and self._agree(slots)), 0)
        if not found:
            raise ValueError("how many slots it has cannot be worked out")
        return found

    def _fits(self, slots: int) -> bool:
        rest = self._size - HEADER_BYTES - slots * SLOT_BYTES
        return rest % LOCAL_ITEM_BYTES == 0 and rest // LOCAL_ITEM_BYTES > self._count

    def _agree(self, slots: int) -> bool:
        """Whether the first items are each in the chain of their slot, as far as it can be seen."""
        newest: dict[int, int] = {}
        for number in range(1, min(self._count, _CHECKED_ITEMS) + 1):
            item, previous = self._item(slots, number)
            if item.key_hash < 0:
                continue
            slot = item.key_hash % slots
            if previous != newest.get(slot, 0) or not number <= self._slot(slot) <= self._count:
                return False
            newest[slot] = number
        return bool(newest)

    def _slot(self, slot: int) -> int:
        data = self._read(HEADER_BYTES + slot * SLOT_BYTES, 4)
        return int.from_bytes(data, "big", signed=True)

    def _item(self, slots: int, number: int) -> tuple[TieredItem, int]:
        at = HEADER_BYTES + slots * SLOT_BYTES + number * LOCAL_ITEM_BYTES
        return decode_local_item(self._read(at, LOCAL_ITEM_BYTES))

    def _read(self, position: int, length: int) -> bytes:
        if position + length <= len(self._data):
            return self._data[position : position + length]
        if position + length > self._size:
            raise ValueError(f"{length} bytes at {position} are past the end")
        with self._storage.open(self._path) as reader:
            return reader.read(position, length)
