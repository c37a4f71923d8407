"""IndexFile: header, slots, items, and the hash of keys.

Mirrors `index/IndexHeader` and `index/IndexFile` of tag rocketmq-all-4.9.3. All integers are big endian.

    header 40 | hash_slots x slot 4 | index_items x item 20

    header: begin timestamp 8, end timestamp 8, begin physical offset 8, end physical offset 8,
            used slots 4, index count 4
    item:   key hash 4, physical offset 8, seconds since the header's begin timestamp 4, previous item of the slot 4

Item 0 is never used. The index count is the number of the next item: in memory, it starts at 1; on disk, it is 0 until
the first put. A file is full when the count reaches index_items. A slot contains the number of its newest item. A slot
with a value <= 0 or > count is empty.

In RocketMQ: hashSlotSize, indexSize.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from reput.format.java_string import hash_code, hash_codes
from reput.format.layout import Layout

# NumPy is imported only for typing: a query by key does not need it.
if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy as np
    import numpy.typing as npt

HEADER = Layout(
    begin_timestamp="q", end_timestamp="q", begin_physical_offset="q", end_physical_offset="q",
    hash_slot_count="i", index_count="i",
)  # fmt: skip
ITEM = Layout(key_hash="i", physical_offset="q", time_diff_s="i", previous="i")
KEY_TYPE, TAG_TYPE, UNIQUE_TYPE = "K", "T", "U"
"""Types of index entries, in requests and in the index of keys in RocksDB (`MessageConst.INDEX_KEY_TYPE`, ...; 5.4)."""
_INT32_MAX = 0x7FFFFFFF
HEADER_BYTES = HEADER.size
"""Size of the header (`IndexHeader.INDEX_HEADER_SIZE`)."""
SLOT_BYTES = 4
ITEM_BYTES = ITEM.size


class IndexHeader(NamedTuple):
    """The first 40 bytes. Timestamps are in milliseconds. `index_count` is the stored value, 0 before the first put.

    In Java, the fields are beginTimestamp, endTimestamp, beginPhyOffset, endPhyOffset, hashSlotCount and indexCount.

    In RocketMQ: getBeginTimestamp, lastUpdateIndexTimestamp, getEndPhyOffset, lastUpdateEndPhyOffset,
    beginTimestampIndex, endTimestampIndex, beginPhyoffsetIndex, endPhyoffsetIndex, hashSlotcountIndex,
    indexCountIndex, getIndexCount.
    """

    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int
    index_count: int

    @property
    def next_item(self) -> int:
        """Return the number that the next item gets. Existing items have the numbers 1 to next_item - 1."""
        return max(self.index_count, 1)

    def last_item(self, index_items: int) -> int:
        """Return the number of the last item, counted from 1; 0 if the file has no items.

        The file has room for `index_items` items, including item 0, which is never used. The result never exceeds
        `index_items` - 1, even if the header states a higher count.
        """
        return min(self.next_item, index_items) - 1


class IndexItem(NamedTuple):
    """One entry of the index. In Java, the fields are keyHash, phyOffset, timeDiff and prevIndexRead.

    In RocketMQ: invalidIndex, nextIndex, nextIndexToRead, keyHashRead, phyOffsetRead.
    """

    key_hash: int
    physical_offset: int
    time_diff_s: int
    previous: int


def index_key(topic: str, key: str) -> str:
    """Return the string that is hashed (IndexService.buildKey)."""
    return f"{topic}#{key}"


def tag_key(tags: str) -> str:
    """Return the key of the item for a message's tags, which brokers of 5.4 and later put after those of its keys."""
    return f"{TAG_TYPE}#{tags}"


# The result is cached, because a query hashes its own key again for each candidate.
@lru_cache(maxsize=64)
def key_hash(text: str) -> int:
    """Return `Math.abs(hashCode())`, as IndexFile.indexKeyHashMethod does.

    The result is 0 for the smallest integer: Java's abs returns it unchanged, because its absolute value needs more
    than 32 bits, and the broker replaces a negative hash by 0.
    """
    value = abs(hash_code(text))
    return 0 if value == 1 << 31 else value


class HashedTopics(tuple[str, ...]):
    """Topics whose hash codes are computed once, to be combined with any number of keys."""

    @cached_property
    def _hashes(self) -> npt.NDArray[np.uint32]:
        return hash_codes(self)

    def key_hashes(self, keys: Collection[str]) -> npt.NDArray[np.int32]:
        """Return `key_hash` of each key in each topic, in any order."""
        # hashCode of a concatenation: hash(topic) * 31**len(end) + hash(end), modulo 2**32.
        import numpy as np

        ends = [index_key("", key) for key in keys]
        units = [len(end.encode("utf-16-le", "surrogatepass")) // 2 for end in ends]
        powers = np.array([pow(31, count, 1 << 32) for count in units], np.uint32)
        values = np.multiply.outer(self._hashes, powers) + hash_codes(ends)
        # For the smallest integer, `abs` returns a negative number, and `maximum` replaces it by 0.
        positive = np.abs(values.ravel().view(np.int32))
        return np.maximum(positive, 0)


def item_seconds(stored_ms: int, begin_ms: int) -> int:
    """Return the seconds that an item states, in a file whose first message was stored at `begin_ms`."""
    # `IndexFile.putKey` has the same limits.
    return 0 if begin_ms <= 0 else min(max((stored_ms - begin_ms) // 1000, 0), _INT32_MAX)


def file_bytes(hash_slots: int, index_items: int) -> int:
    return HEADER_BYTES + SLOT_BYTES * hash_slots + ITEM_BYTES * index_items


def slot_position(slot: int) -> int:
    """Return the byte of a slot in the file (absSlotPos in `IndexFile.putKey`)."""
    return HEADER_BYTES + SLOT_BYTES * slot


def item_position(hash_slots: int, item: int) -> int:
    """Return the byte of an item in the file (absIndexPos in `IndexFile.putKey`)."""
    return HEADER_BYTES + SLOT_BYTES * hash_slots + ITEM_BYTES * item


def decode_header(data: bytes | memoryview) -> IndexHeader:
    """Return the header. Raises struct.error when fewer than 40 bytes are given."""
    return IndexHeader(*HEADER.struct.unpack_from(data))


def encode_header(header: IndexHeader) -> bytes:
    return HEADER.struct.pack(*header)


def decode_item(data: bytes | memoryview, position: int = 0) -> IndexItem:
    """Return the item at byte `position`. Raises struct.error when fewer than 20 bytes are left."""
    return IndexItem(*ITEM.struct.unpack_from(data, position))


def encode_item(item: IndexItem) -> bytes:
    return ITEM.struct.pack(*item)
