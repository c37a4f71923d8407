"""Write IndexFiles of a writable store: append entries, and remove entries from the end.

Mirrors `index/IndexFile.putKey` (tag rocketmq-all-4.9.3); the layout is described in `reput.format.index_file`. Slots
and items are stored through the file's map before the header counts them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.base import StoreConfig
from reput.core.index.reader import IndexFileReader
from reput.errors import IndexFullError
from reput.format.dtypes import new_entries, raw_entries
from reput.format.index_file import (
    HEADER_BYTES,
    ITEM_BYTES,
    IndexHeader,
    IndexItem,
    decode_header,
    decode_item,
    encode_header,
    file_bytes,
    item_position,
)
from reput.io import Disk, FileWriter
from reput.kernels.entry_checks import check_items
from reput.kernels.index_chains import END_OFFSET, END_TIMESTAMP, INDEX_COUNT, SLOT_COUNT, put_keys

# Number of items that a builder holds in memory. They take 1.3 MB.
_WINDOW_ITEMS = 1 << 16
# Before new items are written, the part of the file that they overwrite is loaded into memory. The next bytes of the
# file, up to this many, are loaded with it for later items.
_PREPARED_BYTES = 1 << 20
_NONE: npt.NDArray[np.uint32] = np.empty(0, np.uint32)


class IndexFileEnd(NamedTuple):
    """The values that an IndexFile passes on to the next file: timestamp (ms) and physical offset of its last entry."""

    timestamp: int = 0
    physical_offset: int = 0

    def next_header(self) -> IndexHeader:
        """Return the header that the next file has until its first entry is put.

        The constructor of the broker's `IndexFile` sets the same values.
        """
        timestamp, offset = max(self.timestamp, 0), max(self.physical_offset, 0)
        return IndexHeader(timestamp, timestamp, offset, offset, 0, 1)


class IndexFileBuilder:
    """Builds one file from front to back. Slots stay in memory until the end. Items are written in blocks.

    The builder takes 4 bytes of memory per slot, and 1.3 MB for items. The file is not valid before `close`. If the
    with block ends without `close`, the file stays incomplete.
    """

    def __init__(self, path: Path, config: StoreConfig, previous: IndexFileEnd) -> None:
        self._config = config
        self._slots = np.zeros(config.hash_slots, np.uint32)
        self._window = new_entries(min(_WINDOW_ITEMS, config.index_items))
        self._header = np.array(previous.next_header(), np.int64)
        size = file_bytes(config.hash_slots, config.index_items)
        self._file = FileWriter(path, size=size)

    def __enter__(self) -> IndexFileBuilder:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def put(
        self,
        key_hash: npt.NDArray[np.int32],
        key_row: npt.NDArray[np.int32],
        messages: npt.NDArray[np.void],
    ) -> None:
        """Put entries as `putKey` does. The message of entry i is row `key_row[i]` of `messages`.

        Raises StoreAccessError, and IndexFullError if the entries do not fit.
        """
        done = 0
        while done < len(key_hash):
            first = int(self._header[INDEX_COUNT])
            stop = put_keys(
                self._header, self._slots, self._window, first, self._config.index_items,
                key_hash, key_row, messages, done, len(key_hash),
            )  # fmt: skip
            if stop == done:
                raise IndexFullError(f"{self._file.path}: has {first - 1} entries and is full")
            items = self._window[: stop - done]
            self._file.write(items.data, item_position(self._config.hash_slots, first))
            done = stop

    def start_writeback(self) -> None:
        """Make the system start writing the items that were put."""
        self._file.start_writeback()

    def close(self, sync: bool = True) -> IndexHeader:
        """Write slots and header. With `sync`, make the file durable."""
        count = int(self._header[INDEX_COUNT])
        fields = self._header.tolist()
        # Until the first entry, the stored count of a broker's file is 0, although it is 1 in memory.
        fields[INDEX_COUNT] = count if count > 1 else 0
        header = IndexHeader(*fields)
        # In a file without entries all slots are zero, as in a new file, so they need not be written.
        if count > 1:
            self._file.write(self._slots.data, HEADER_BYTES)
        self._file.write(encode_header(header), 0)
        if sync:
            self._file.sync()
        self._file.close()
        return header


class IndexFileWriter:
    """One memory-mapped IndexFile to which entries are appended. Raises StoreAccessError."""

    def __init__(self, path: Path, config: StoreConfig, disk: Disk) -> None:
        """Open an existing file of the right size, or create a file of zeros."""
        self.path, self._config, self._disk = path, config, disk
        self._file = disk.map(path, config.index_file_bytes)
        self._identity = self._file.identity
        self._items_at = item_position(config.hash_slots, 0)
        array = self._file.array
        self._slots: npt.NDArray[np.uint32] = array[HEADER_BYTES : self._items_at].view(np.uint32)
        self._items = raw_entries(array[self._items_at :])
        self._prepared = 0
        header = decode_header(self._file.data)
        self._header = np.array(header, np.int64)
        self._header[INDEX_COUNT] = header.next_item

    def seed(self, previous: IndexFileEnd) -> None:
        """Write the header of a new file, with the timestamp and physical offset of the previous file's last entry."""
        self._header[:] = previous.next_header()
        self._write_header()
        self._file.prepare(0, self._items_at)

    @property
    def header(self) -> IndexHeader:
        return IndexHeader(*self._header.tolist())

    @property
    def count(self) -> int:
        """Return the number that the next item gets."""
        return int(self._header[INDEX_COUNT])

    @property
    def is_full(self) -> bool:
        return self.count >= self._config.index_items

    @property
    def end(self) -> IndexFileEnd:
        header = self.header
        return IndexFileEnd(header.end_timestamp, header.end_physical_offset)

    def put(
        self,
        key_hash: npt.NDArray[np.int32],
        key_row: npt.NDArray[np.int32],
        messages: npt.NDArray[np.void],
        start: int,
    ) -> int:
        """Put entries from number `start` on until the file is full; return the number of the first entry not put."""
        while start < len(key_hash) and not self.is_full:
            # Put few entries at a time: readers see new items only after `_write_header` has counted them.
            stop = min(start + IndexFileReader.UNCOUNTED_ITEMS, len(key_hash))
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

    def cut(self, count: int, end_timestamp: int) -> None:
        """Remove item number `count` (at least 2) and all later items.

        `end_timestamp` is the store time of the last kept item's message. The slots are rebuilt from the kept items,
        because after a crash the slots on disk may be older or newer than the items.
        """
        newest = np.zeros(len(self._slots), np.uint32)
        check_items(self._items, count, newest)
        self._slots[:] = newest.byteswap()
        rest = self._items[count:]
        for start in range(0, len(rest), IndexFileReader.UNCOUNTED_ITEMS):
            part = rest[start : start + IndexFileReader.UNCOUNTED_ITEMS]
            if part.any():
                # Only nonzero parts are cleared. Writing zeros over zeros would make every page dirty.
                part[:] = 0
        self._header[SLOT_COUNT] = np.count_nonzero(newest)
        self._header[INDEX_COUNT] = count
        self._header[END_TIMESTAMP] = end_timestamp
        self._header[END_OFFSET] = self.item(count - 1).physical_offset
        self._write_header()

    def _write_header(self) -> None:
        header = self.header
        # Until the first entry, the stored count of a broker's file is 0, although it is 1 in memory.
        header_on_disk = header if header.index_count > 1 else header._replace(index_count=0)
        self._file.data[:HEADER_BYTES] = encode_header(header_on_disk)

    def sync(self) -> None:
        self._file.sync()

    def check_in_place(self) -> None:
        """Raise StoreFailedError if the file was deleted or replaced. Raises StoreAccessError."""
        self._disk.check_in_place(self.path, self._identity)

    def close(self) -> None:
        self._slots = self._items = _NONE
        self._file.close()
