"""IndexFiles as arrays, the way the chain kernels take them, and a plain walk along one chain."""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.kernels.commit_log_scan import MESSAGE_DTYPE
from reput.kernels.index_chains import INDEX_COUNT, put_keys
from reput.kernels.rows import new_rows
from tests.oracle.index_file import HEADER, ITEM, SLOT

Words = npt.NDArray[np.uint32]
ITEM_WORDS = ITEM.size // 4


class Entry(NamedTuple):
    """One key to put: its hash, and its message's place and time."""

    key_hash: int
    physical_offset: int
    store_timestamp: int


class Chains:
    """Slots, items and header of one file that grows by `put`."""

    def __init__(self, hash_slots: int, index_items: int, begin: tuple[int, int] = (0, 0)) -> None:
        """`begin` are timestamp and physical offset of the file's begin and end before its first key."""
        self.slots = np.zeros(hash_slots, np.uint32)
        self.items = np.zeros((index_items, ITEM_WORDS), np.uint32)
        self.header = np.array([begin[0], begin[0], begin[1], begin[1], 0, 1], np.int64)

    def put(self, entries: Sequence[Entry], window: int = 1 << 30, limit: int = 1 << 30) -> int:
        """Put entries through windows of so many items; returns how many went in."""
        rows = new_rows(len(entries), MESSAGE_DTYPE)
        # Rows in another order than the entries: only `key_row` says which is whose.
        key_row = np.arange(len(entries), dtype=np.int32)[::-1].copy()
        for row, entry in zip(key_row, entries, strict=True):
            rows[row]["physical_offset"] = entry.physical_offset
            rows[row]["store_timestamp"] = entry.store_timestamp
        key_hash = np.array([entry.key_hash for entry in entries], np.int32)
        item_limit = min(limit, len(self.items))
        done = 0
        while done < len(entries) and self.header[INDEX_COUNT] < item_limit:
            first = int(self.header[INDEX_COUNT])
            items = self.items[first : first + window]
            before = done
            done = int(
                put_keys(
                    self.header, self.slots, items, first, item_limit,
                    key_hash, key_row, rows, done, len(entries),
                )
            )  # fmt: skip
            assert done > before
        return done

    def to_bytes(self) -> bytes:
        fields = self.header.tolist()
        fields[INDEX_COUNT] = 0 if fields[INDEX_COUNT] == 1 else fields[INDEX_COUNT]
        return HEADER.pack(*fields) + self.slots.tobytes() + self.items.tobytes()


def words(data: bytes) -> Words:
    """A file's bytes as the kernels take them."""
    return np.frombuffer(bytearray(data), np.uint32)


def open_chains(data: bytes, hash_slots: int) -> tuple[Words, Any, int]:
    """Slots, items and count of a file's bytes; part of an item at the end is left out."""
    items_at = HEADER.size + SLOT.size * hash_slots
    whole = (len(data) - items_at) // ITEM.size * ITEM.size
    count = HEADER.unpack_from(data)[-1]
    items = words(data[items_at : items_at + whole]).reshape(-1, ITEM_WORDS)
    return words(data[HEADER.size : items_at]), items, count


def walk_chain(data: bytes, hash_slots: int, key_hash: int) -> tuple[list[int], bool]:
    """The items of a hash, newest first, and whether the chain had to be cut.

    It is cut where it leaves the file, and where an item points to itself or to a newer one.
    """
    count = HEADER.unpack_from(data)[-1]
    items_at = HEADER.size + SLOT.size * hash_slots
    (item,) = SLOT.unpack_from(data, HEADER.size + key_hash % hash_slots * SLOT.size)
    if not 0 < item <= count:
        return [], False
    found: list[int] = []
    while True:
        try:
            item_hash, _, _, before = ITEM.unpack_from(data, items_at + item * ITEM.size)
        except struct.error:
            return found, True
        if item_hash == key_hash:
            found.append(item)
        if before <= 0:
            return found, False
        if before >= item:
            return found, True
        item = before
