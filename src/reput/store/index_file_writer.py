"""IndexFile, the writing side of a store that is alive: entries are put at its end, and taken off it.

Mirrors `index/IndexFile.putKey` (tag rocketmq-all-4.9.3); the layout is told in `reput.format.index_file`. Slots and
items are stored through the file's map before the header counts them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput.config import StoreConfig
from reput.files.disk import Disk
from reput.format.index_file import (
    HEADER_BYTES,
    ITEM_BYTES,
    IndexHeader,
    IndexItem,
    decode_header,
    decode_item,
    encode_header,
    item_position,
)
from reput.kernels.index_chains import INDEX_COUNT, put_keys
from reput.store.index_file import FileEnd

_COUNTED_ITEMS = 1 << 12  # put between two counts of the header
_PREPARED_BYTES = 1 << 20
_ITEM_WORDS = ITEM_BYTES // 4


class IndexFileWriter:
    """One IndexFile, mapped. Raises StoreAccessError."""

    def __init__(self, path: Path, config: StoreConfig, disk: Disk) -> None:
        """Open the file, whose size is right, or create one of zeros."""
        self.path, self._config = path, config
        self._file = disk.map(path, config.index_file_bytes)
        self._items_at = item_position(config.hash_slots, 0)
        array = self._file.array
        self._slots: npt.NDArray[np.uint32] = array[HEADER_BYTES : self._items_at].view(np.uint32)
        self._items = array[self._items_at :].view(np.uint32).reshape(-1, _ITEM_WORDS)
        self._prepared = 0
        header = decode_header(self._file.data)
        self._header = np.array(header, np.int64)
        self._header[INDEX_COUNT] = header.next_item

    def seed(self, previous: FileEnd) -> None:
        """Begin a new file behind another (IndexFile's constructor)."""
        timestamp, offset = max(previous.timestamp, 0), max(previous.physical_offset, 0)
        self._header[:] = [timestamp, timestamp, offset, offset, 0, 1]
        self._write_header()
        self._file.prepare(0, self._items_at)

    @property
    def header(self) -> IndexHeader:
        return IndexHeader(*self._header.tolist())

    @property
    def count(self) -> int:
        """Number that the next item gets."""
        return int(self._header[INDEX_COUNT])

    @property
    def is_full(self) -> bool:
        return self.count >= self._config.index_items

    @property
    def end(self) -> FileEnd:
        header = self.header
        return FileEnd(header.end_timestamp, header.end_physical_offset)

    def put(
        self,
        key_hash: npt.NDArray[np.int32],
        key_row: npt.NDArray[np.int32],
        messages: npt.NDArray[np.void],
        start: int,
    ) -> int:
        """Put entries from `start` on, until the file is full; returns the first that was not put."""
        while start < len(key_hash) and not self.is_full:
            stop = min(start + _COUNTED_ITEMS, len(key_hash))
            end = self._items_at + (self.count + stop - start) * ITEM_BYTES
            if end > self._prepared:
                begin, self._prepared = max(self._prepared, self._items_at), end + _PREPARED_BYTES
                self._file.prepare(begin, self._prepared)
            start = put_keys(
                self._header, self._slots, self._items, 0, self._config.index_items,
                key_hash, key_row, messages, start, stop,
            )  # fmt: skip
            self._write_header()
        return start

    def item(self, number: int) -> IndexItem:
        return decode_item(self._file.data, self._items_at + number * ITEM_BYTES)

    def offsets(self) -> npt.NDArray[np.int64]:
        """Physical offsets of items 1 and on, as counted."""
        words = self._items[1 : self.count, 1:3].byteswap().astype(np.int64)
        offsets: npt.NDArray[np.int64] = words[:, 0] << 32 | words[:, 1]
        return offsets

    def chains_are_whole(self) -> bool:
        """Whether every item is reached from its slot exactly once, through newer items of that slot."""
        count, slots = self.count, len(self._slots)
        items = self._items[:count]
        numbers = np.arange(count)
        previous = items[:, _ITEM_WORDS - 1].byteswap().astype(np.int64)
        slot = items[:, 0].byteswap().astype(np.int64) % slots
        newest = self._slots.byteswap().astype(np.int64)
        used = np.flatnonzero(newest)
        if len(used) != self.header.hash_slot_count or (newest >= count).any():
            return False
        if (previous[1:] >= numbers[1:]).any() or (slot[newest[used]] != used).any():
            return False
        behind = np.flatnonzero(previous)
        behind = behind[behind > 0]
        if (slot[previous[behind]] != slot[behind]).any():
            return False
        reached = np.bincount(np.concatenate([newest[used], previous[behind]]), minlength=count)
        return bool((reached[1:] == 1).all())

    def cut(self, count: int, end_timestamp: int) -> None:
        """Take off the items from number `count` >= 2 on; the last that stays is of a message stored at that time."""
        hashes = self._items[:, 0]
        for number in range(self.count - 1, count - 1, -1):
            slot = int(hashes[number].byteswap()) % len(self._slots)
            previous = self._items[number, _ITEM_WORDS - 1]
            self._slots[slot] = previous
            self._header[4] -= previous == 0
            self._items[number] = 0
        self._header[INDEX_COUNT] = count
        self._header[1] = end_timestamp
        self._header[3] = self.item(count - 1).physical_offset
        self._write_header()

    def _write_header(self) -> None:
        header = self.header
        # A broker writes the count with the first entry.
        stored = header if header.index_count > 1 else header._replace(index_count=0)
        self._file.data[:HEADER_BYTES] = encode_header(stored)

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()
