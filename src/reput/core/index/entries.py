"""The entries of an IndexFile as arrays, read a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from reput.core.index.reader import SLOT_PAGE_BYTES, IndexFileReader
from reput.format.dtypes import RawEntries, item_fields, item_hashes, item_offsets, raw_entries
from reput.format.index_file import HEADER_BYTES, ITEM_BYTES, SLOT_BYTES, item_position

# Number of items per read. They take 1.3 MB.
_PIECE_ITEMS = 1 << 16
# Number of items to read on either side of an item, to find all items of its message. The items of a message are
# adjacent, one per key, and few messages have more keys than this number.
_NEIGHBOURS = 16


class IndexEntries:
    """The slots and items of an open IndexFile as arrays. Raises StoreAccessError, StoreChangedError."""

    def __init__(self, file: IndexFileReader) -> None:
        self._file = file

    def slots(self) -> npt.NDArray[np.uint32]:
        """Return uint32[hash_slots], big endian as in the file."""
        return self._file.read(HEADER_BYTES, SLOT_BYTES * self._file.hash_slots, np.uint32)

    def items(self, begin: int, end: int) -> RawEntries:
        """Return the items from `begin` to `end` - 1."""
        at = item_position(self._file.hash_slots, begin)
        words = self._file.read(at, ITEM_BYTES * max(end - begin, 0), np.uint32)
        return raw_entries(words)

    def pieces(self, begin: int, end: int, overlap: int = 0) -> Iterator[tuple[int, RawEntries]]:
        """Yield the items from `begin` to `end` - 1 in pieces, as pairs (number of the first item, items).

        Each piece except the last also contains the first `overlap` items of the next piece.
        """
        for first in range(begin, end, _PIECE_ITEMS):
            yield first, self.items(first, min(first + _PIECE_ITEMS + overlap, end))

    def rows(self) -> Iterator[npt.NDArray[np.void]]:
        """Yield all items that the header currently counts, as arrays of ITEM_DTYPE."""
        for _, items in self.pieces(1, self._file.next_item):
            yield item_fields(items)

    def pieces_from_end(self, begin: int, end: int) -> Iterator[tuple[int, RawEntries]]:
        """Yield the items from `begin` to `end` - 1 in pieces, as pairs (number of the first item, items).

        The last piece comes first.
        """
        for stop in range(end, begin, -_PIECE_ITEMS):
            first = max(stop - _PIECE_ITEMS, begin)
            yield first, self.items(first, stop)

    def offset(self, number: int) -> int:
        """Return the physical offset of an item."""
        return self._file.offset(number)

    def first_at(self, offset: int, first: int, last: int) -> int:
        """Return the first of the items `first` to `last` whose physical offset is at least `offset`.

        The offsets of these items must ascend. If all are smaller, the result is `last` + 1.
        """
        low, high = first, last + 1
        while low < high:
            middle = (low + high) // 2
            if self.offset(middle) < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def of_message(self, number: int, first: int, last: int) -> tuple[int, int]:
        """Return the range (begin, end) of the items that have the same physical offset as item `number`.

        The items from `first` to `last` must be ordered by offset.
        """
        low, high = max(number - _NEIGHBOURS, first), min(number + _NEIGHBOURS, last) + 1
        offsets = item_offsets(self.items(low, high))
        offset = int(offsets[number - low])
        begin, after = (low + int(each) for each in np.searchsorted(offsets, (offset, offset + 1)))
        # The message may have more items than were read.
        if begin == low:
            begin = self.first_at(offset, first, number)
        if after == high:
            after = self.first_at(offset + 1, number, last)
        return begin, after

    def decoded(self, begin: int, end: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
        """Return physical offsets and key hashes of the items from `begin` to `end` - 1."""
        items = self.items(begin, end)
        return item_offsets(items), item_hashes(items).view(np.uint32)


def intact_slot_pages(file: IndexFileReader) -> list[int]:
    """Return the pages of the slot table whose slots all lead to their newest item; reads all slots and items.

    Another process may be adding items. Slots may lead to items that the header does not count yet.

    Raises StoreAccessError, StoreChangedError.
    """
    entries, last = IndexEntries(file), file.next_item - 1
    slots = entries.slots().byteswap().view(np.int32)
    newest = np.zeros(file.hash_slots, np.int32)
    for first, items in entries.pieces(1, last + 1):
        hashes = item_hashes(items)
        # Items ascend, and of several values for one place, NumPy keeps the last one. No slot leads to a negative hash.
        valid = hashes >= 0
        numbers = np.arange(first, first + len(items), dtype=np.int32)
        newest[hashes[valid] % file.hash_slots] = numbers[valid]
    holds = (slots == newest) | ((slots > last) & (slots <= last + IndexFileReader.UNCOUNTED_ITEMS))
    pages = (HEADER_BYTES + SLOT_BYTES * np.arange(file.hash_slots)) // SLOT_PAGE_BYTES
    lost = np.bincount(pages[~holds], minlength=file.slot_pages)
    found: list[int] = np.flatnonzero(lost == 0).tolist()
    return found
