"""IndexFile: header, slots, items, and the hash that joins them.

Mirrors `index/IndexHeader` and `index/IndexFile` of tag rocketmq-all-4.9.3. All integers are big endian.

    header 40 | hash_slots x slot 4 | index_items x item 20

    header: begin timestamp 8, end timestamp 8, begin physical offset 8, end physical offset 8,
            used slots 4, index count 4
    item:   key hash 4, physical offset 8, seconds since the header's begin 4, previous item of the slot 4

Item 0 is never used: the count starts at 1 in memory (0 on disk until the first put), the file is full when the
count has reached index_items. A slot holds the number of its newest item; a value <= 0 or > count is empty.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from reput.format.java_string import hash_code

_HEADER = struct.Struct(">qqqqii")
_ITEM = struct.Struct(">iqii")
_INT32_MAX = 0x7FFFFFFF
HEADER_BYTES = _HEADER.size
SLOT_BYTES = 4
ITEM_BYTES = _ITEM.size


class IndexHeader(NamedTuple):
    """The first 40 bytes. Timestamps in milliseconds; `index_count` as stored, so 0 when nothing was put."""

    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int
    index_count: int

    @property
    def next_item(self) -> int:
        """Number that the next item gets; the items put so far are 1 to next_item - 1."""
        return max(self.index_count, 1)

    def last_item(self, index_items: int) -> int:
        """Return the number of the last item in a file with room for `index_items`; 0 for a file without items."""
        return min(self.next_item, index_items) - 1


class IndexItem(NamedTuple):
    """One entry of the index."""

    key_hash: int
    physical_offset: int
    time_diff_s: int
    previous: int


def index_key(topic: str, key: str) -> str:
    """Return the string that is hashed (IndexService.buildKey)."""
    return f"{topic}#{key}"


@lru_cache(maxsize=64)  # a query hashes its own key again for each candidate that has it
def key_hash(text: str) -> int:
    """Return `Math.abs(hashCode())`, as IndexFile.indexKeyHashMethod does.

    The least integer has no absolute value in 32 bits: its result is 0.
    """
    value = abs(hash_code(text))
    return 0 if value == 1 << 31 else value


def item_seconds(stored_ms: int, begin_ms: int) -> int:
    """Return the time difference that an item states, in a file whose first message was stored at `begin_ms`."""
    return 0 if begin_ms <= 0 else min(max((stored_ms - begin_ms) // 1000, 0), _INT32_MAX)


def file_bytes(hash_slots: int, index_items: int) -> int:
    return HEADER_BYTES + SLOT_BYTES * hash_slots + ITEM_BYTES * index_items


def slot_position(slot: int) -> int:
    return HEADER_BYTES + SLOT_BYTES * slot


def item_position(hash_slots: int, item: int) -> int:
    return HEADER_BYTES + SLOT_BYTES * hash_slots + ITEM_BYTES * item


def decode_header(data: bytes | memoryview) -> IndexHeader:
    """Return the header. Raises struct.error when fewer than 40 bytes are given."""
    return IndexHeader(*_HEADER.unpack_from(data))


def encode_header(header: IndexHeader) -> bytes:
    return _HEADER.pack(*header)


def decode_item(data: bytes | memoryview, position: int = 0) -> IndexItem:
    """Return the item at byte `position`. Raises struct.error when fewer than 20 bytes are left."""
    return IndexItem(*_ITEM.unpack_from(data, position))


def encode_item(item: IndexItem) -> bytes:
    return _ITEM.pack(*item)
