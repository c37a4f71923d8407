"""IndexFiles held against the items that dispatch puts, to the last byte: items with chain and time, slots, headers.

What should be there is put as a writer puts it, a window of items at a time; the slots are kept for one file. An
item's place is its number among all: one that is lost or too many makes all after it in its file differ. A whole
file that is lost does not, if the next says in its header and first item where it begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput.config import StoreConfig
from reput.files.reader import FileReader
from reput.format.file_names import INDEX_FOLDER
from reput.format.index_file import (
    HEADER_BYTES,
    ITEM_BYTES,
    SLOT_BYTES,
    IndexHeader,
    decode_header,
    decode_item,
    encode_header,
    item_position,
    slot_position,
)
from reput.index.builder import FileEnd
from reput.index.reader import index_paths
from reput.kernels.index_chains import (
    END_OFFSET,
    END_TIMESTAMP,
    INDEX_COUNT,
    SLOT_COUNT,
    put_keys,
)
from reput.log.dispatch_batch import DispatchBatch
from reput.recovery.difference import (
    Difference,
    Words,
    bytes_of,
    differing_rows,
    offsets_of,
    surplus,
)

_WINDOW_ITEMS = 1 << 16
_WORDS = ITEM_BYTES // 4
_OFFSET_COLUMN = 1


class IndexDifferences:
    """What differs, batch by batch; messages before `begin` have expired, and their items are taken as they are."""

    def __init__(self, folder: Path, config: StoreConfig, begin: int) -> None:
        self._folder, self._config, self._begin = folder / INDEX_FOLDER, config, begin
        self._paths = index_paths(self._folder)
        self._place = -1  # of the file in hand
        self._window = np.empty((_WINDOW_ITEMS, _WORDS), np.uint32)
        self._slots: Words = np.zeros(config.hash_slots, np.uint32)
        self._header: npt.NDArray[np.int64] = np.zeros(6, np.int64)
        self._is_lost = False
        self._skip_expired()

    def of_batch(self, batch: DispatchBatch) -> Iterator[Difference]:
        """In the order of the items. Raises StoreAccessError."""
        done, keys = 0, len(batch.key_hash)
        while done < keys:
            if self._place < 0 or self._header[INDEX_COUNT] >= self._config.index_items:
                yield from self._end_file()
                self._begin_file(int(batch.messages["physical_offset"][batch.key_row[done]]))
            first = int(self._header[INDEX_COUNT])
            stop = put_keys(
                self._header, self._slots, self._window, first, self._config.index_items,
                batch.key_hash, batch.key_row, batch.messages, done, keys,
            )  # fmt: skip
            yield from self._compare(first, self._window[: stop - done])
            done = stop

    def rest(self) -> Iterator[Difference]:
        """After the last batch: items that are too many, and what the last file has wrong elsewhere."""
        yield from self._end_file()
        for path in self._paths[self._place + 1 :]:
            yield from self._surplus(path, 1)

    def _skip_expired(self) -> None:
        """Begin in the file that has the first item of a message that has not expired, after those that have."""
        for place, path in enumerate(self._paths) if self._begin > 0 else ():
            expired = self._expired_items(path)
            if not expired:
                return
            self._place = place
            self._seed(path, expired)
            if expired + 1 < self._config.index_items:
                return

    def _expired_items(self, path: Path) -> int:
        """How many items of a file come before those of the log: where the fewest are on the wrong side."""
        expired = least = before = 0
        for start, items in self._windows(path, 1):
            is_live = offsets_of(items, _OFFSET_COLUMN) >= self._begin
            steps = np.where(is_live, 1, -1) * items.any(axis=1)
            sums = before + np.cumsum(steps)
            at = int(np.argmin(sums))
            if sums[at] < least:
                expired, least = start + at, int(sums[at])
            before = int(sums[-1])
        return expired

    def _seed(self, path: Path, count: int) -> None:
        """As a writer is that has put the first `count` items of a file."""
        newest = np.zeros(self._config.hash_slots, np.uint32)
        for start, items in self._windows(path, 1, count + 1):
            slots = items[:, 0].byteswap() % np.uint32(len(newest))
            newest[slots] = np.arange(start, start + len(items), dtype=np.uint32)  # the last wins
        self._slots = newest.byteswap()
        self._header[:] = self._header_of(path)
        self._header[SLOT_COUNT] = np.count_nonzero(newest)
        self._header[INDEX_COUNT] = count + 1

    def _begin_file(self, physical_offset: int) -> None:
        """The next file, whose first item is of that message; it may be lost."""
        end = FileEnd(int(self._header[END_TIMESTAMP]), int(self._header[END_OFFSET]))
        self._header[:] = end.next_header()
        self._slots = np.zeros(self._config.hash_slots, np.uint32)
        following = self._place + 1
        self._is_lost = following >= len(self._paths) or (
            self._first_offset(self._paths[following]) > physical_offset
        )
        if not self._is_lost:
            self._place = following

    def _first_offset(self, path: Path) -> int:
        """Where the messages of a file begin, as header and first item both say; else -1."""
        items = self._items(path, 1, 1)
        if not len(items):
            return -1
        offset = decode_item(items.tobytes()).physical_offset
        return offset if offset == self._header_of(path).begin_physical_offset else -1

    def _compare(self, first: int, expected: Words) -> Iterator[Difference]:
        path = str(self._folder)
        there: Words = np.empty((0, _WORDS), np.uint32)
        if not self._is_lost:
            path = str(self._paths[self._place])
            there = self._items(self._paths[self._place], first, len(expected))
        rows = differing_rows(there, expected)
        offsets = offsets_of(expected[rows], _OFFSET_COLUMN).tolist()
        for row, offset in zip(rows.tolist(), offsets, strict=True):
            place = item_position(self._config.hash_slots, first + row)
            yield Difference(
                "item", path, place, offset, bytes_of(expected, row), bytes_of(there, row)
            )

    def _end_file(self) -> Iterator[Difference]:
        """What the file in hand has wrong besides the items that it should have."""
        count = int(self._header[INDEX_COUNT])
        if self._place < 0 or self._is_lost or count <= 1:
            return
        path = self._paths[self._place]
        yield from self._surplus(path, count)
        yield from self._slot_differences(path)
        found = self._read(path, 0, HEADER_BYTES).tobytes()
        if found != (expected := encode_header(IndexHeader(*self._header.tolist()))):
            yield Difference("header", str(path), 0, None, expected, found)

    def _surplus(self, path: Path, first: int) -> Iterator[Difference]:
        for start, items in self._windows(path, first):
            place = item_position(self._config.hash_slots, start)
            yield from surplus("item", str(path), place, items, _OFFSET_COLUMN)

    def _slot_differences(self, path: Path) -> Iterator[Difference]:
        data = self._read(path, HEADER_BYTES, SLOT_BYTES * self._config.hash_slots)
        there = data[: len(data) // SLOT_BYTES * SLOT_BYTES].view(np.uint32).reshape(-1, 1)
        expected = self._slots.reshape(-1, 1)
        for slot in differing_rows(there, expected).tolist():
            yield Difference(
                "slot", str(path), slot_position(slot), None,
                bytes_of(expected, slot), bytes_of(there, slot),
            )  # fmt: skip

    def _header_of(self, path: Path) -> IndexHeader:
        data = self._read(path, 0, HEADER_BYTES).tobytes()
        return decode_header(data.ljust(HEADER_BYTES, b"\0"))

    def _windows(
        self, path: Path, first: int, stop: int | None = None
    ) -> Iterator[tuple[int, Words]]:
        """The items that a file has from number `first` on, some at a time, each time with the first one's number."""
        stop = self._config.index_items if stop is None else stop
        for start in range(first, stop, _WINDOW_ITEMS):
            items = self._items(path, start, min(_WINDOW_ITEMS, stop - start))
            if len(items):
                yield start, items

    def _items(self, path: Path, first: int, count: int) -> Words:
        """Items from number `first` on; fewer where the file ends."""
        place = item_position(self._config.hash_slots, first)
        data = self._read(path, place, count * ITEM_BYTES)
        whole = len(data) // ITEM_BYTES * ITEM_BYTES
        return data[:whole].view(np.uint32).reshape(-1, _WORDS)

    def _read(self, path: Path, position: int, length: int) -> npt.NDArray[np.uint8]:
        """Up to that many bytes; fewer where the file ends."""
        with FileReader(str(path)) as reader:
            data = np.empty(max(min(length, reader.size - position), 0), np.uint8)
            reader.read_into(data, position)
        return data
