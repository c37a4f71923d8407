"""IndexFiles as arrays for the chain kernels, and a plain walk along one chain."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.format.dtypes import MESSAGE_DTYPE
from reput.kernels.index_chains import INDEX_COUNT, put_keys
from reput.kernels.jit import new_rows
from tests.oracle.index_file import HEADER, ITEM, SLOT

RawEntries = npt.NDArray[np.uint32]
ITEM_WORDS = ITEM.size // 4


class Entry(NamedTuple):
    """A key to put: its hash, and the offset and time of its message."""

    key_hash: int
    physical_offset: int
    store_timestamp: int


class Chains:
    """Slots, items and header of one file that grows by `put`."""

    def __init__(self, hash_slots: int, index_items: int, begin: tuple[int, int] = (0, 0)) -> None:
        """Create a file without keys. `begin` is the timestamp and physical offset of both its begin and its end."""
        self.slots = np.zeros(hash_slots, np.uint32)
        self.items = np.zeros((index_items, ITEM_WORDS), np.uint32)
        self.header = np.array([begin[0], begin[0], begin[1], begin[1], 0, 1], np.int64)

    def put(self, entries: Sequence[Entry], window: int = 1 << 30, limit: int = 1 << 30) -> int:
        """Put entries in calls that have room for `window` items each. Return the number of entries that were put."""
        rows = new_rows(len(entries), MESSAGE_DTYPE)
        # The rows have another order than the entries; only `key_row` maps them.
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


def words(data: bytes) -> RawEntries:
    """Return a file's bytes as the kernels expect them."""
    return np.frombuffer(bytearray(data), np.uint32)


def open_chains(data: bytes, hash_slots: int) -> tuple[RawEntries, Any, int]:
    """Return slots, items and the number of the newest item, without an incomplete item at the end."""
    items_at = HEADER.size + SLOT.size * hash_slots
    whole = (len(data) - items_at) // ITEM.size * ITEM.size
    count = min(max(HEADER.unpack_from(data)[-1], 1), whole // ITEM.size) - 1
    items = words(data[items_at : items_at + whole]).reshape(-1, ITEM_WORDS)
    return words(data[HEADER.size : items_at]), items, count


def walk_chain(
    data: bytes, hash_slots: int, key_hash: int, begin: int = 0, end: int = 1 << 62
) -> tuple[list[int], bool]:
    """Return physical offsets of a hash in [begin, end), newest first, and whether the chain is broken.

    A chain is broken if it leaves the file, reaches an item of another slot, or reaches an item that is not older than
    the previous one. It is also broken if the offset of an item with this hash, or of the chain's last item, is not
    between the offsets of the items before and after it in the file.
    """
    items_at = HEADER.size + SLOT.size * hash_slots
    items = [ITEM.unpack_from(data, at) for at in range(items_at, len(data) - 19, ITEM.size)]
    count = min(max(HEADER.unpack_from(data)[-1], 1), len(items)) - 1
    slot = key_hash % hash_slots

    def is_in_order(item: int) -> bool:
        near = items[max(item - 1, 1) : min(item + 1, count) + 1]
        return [row[1] for row in near] == sorted(row[1] for row in near)

    (item,) = SLOT.unpack_from(data, HEADER.size + slot * SLOT.size)
    found: list[int] = []
    if item == 0:
        return found, False
    older_than, newest = len(items), 1 << 63
    while 0 < item < older_than:
        item_hash, offset, _, before = items[item]
        if item_hash % hash_slots != slot:
            return found, True
        if item <= count and item_hash == key_hash:
            if not 0 <= offset <= newest or not is_in_order(item):
                return found, True
            if offset < begin:
                return found, False
            if offset < end and offset != newest:
                found.append(offset)
            newest = offset
        if before == 0:
            lost = item <= count and item_hash != key_hash and not is_in_order(item)
            return found, lost
        older_than, item = item, before
    return found, True
