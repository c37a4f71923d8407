"""The entries of an IndexFile as arrays, read a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from reput.core.index.reader import SLOT_PAGE_BYTES, IndexFileReader
from reput.format.dtypes import RawEntries, item_fields, item_hashes, raw_entries
from reput.format.index_file import HEADER_BYTES, ITEM_BYTES, SLOT_BYTES, item_position

# Number of items per read. They take 1.3 MB.
_PIECE_ITEMS = 1 << 16


class IndexEntries:
    """The slots and items of an open IndexFile as arrays. Raises StoreAccessError, StoreChangedError."""

    def __init__(self, file: IndexFileReader) -> None:
        self.file = file

    def slots(self) -> npt.NDArray[np.uint32]:
        """Return uint32[hash_slots], big endian as in the file."""
        return self.file.read(HEADER_BYTES, SLOT_BYTES * self.file.hash_slots, np.uint32)

    def items(self, begin: int, end: int) -> RawEntries:
        """Return the items from `begin` to `end` - 1."""
        at = item_position(self.file.hash_slots, begin)
        words = self.file.read(at, ITEM_BYTES * max(end - begin, 0), np.uint32)
        return raw_entries(words)

    def pieces(self, begin: int, end: int, overlap: int = 0) -> Iterator[tuple[int, RawEntries]]:
        """Yield the items from `begin` to `end` - 1 in pieces, as pairs (number of the first item, items).

        Each piece except the last also contains the first `overlap` items of the next piece.
        """
        for first in range(begin, end, _PIECE_ITEMS):
            yield first, self.items(first, min(first + _PIECE_ITEMS + overlap, end))

    def rows(self) -> Iterator[npt.NDArray[np.void]]:
        """Yield all items that the header currently counts, as arrays of ITEM_DTYPE."""
        for _, items in self.pieces(1, self.file.next_item):
            yield item_fields(items)


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
