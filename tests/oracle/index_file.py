"""Index files, written key by key.

IndexFile.putKey, IndexHeader and IndexService.buildIndex of rocketmq-all-4.9.3.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from tests.oracle.java_text import divide, hash_code, to_long
from tests.oracle.records import Record

HEADER = struct.Struct(">qqqqii")  # begin/end time, begin/end physical offset, slots used, count
SLOT = struct.Struct(">i")
ITEM = struct.Struct(">iqii")  # key hash, physical offset, seconds after begin, item before it
_MAX_INT = 0x7FFFFFFF


def key_hash(topic: str, key: str) -> int:
    """Return the 31-bit hash of a key. The hash of Integer.MIN_VALUE is 0."""
    code = abs(hash_code(f"{topic}#{key}"))
    return 0 if code > _MAX_INT else code


@dataclass
class IndexFile:
    """One index file. `items` starts with item 0, which is never used.

    `created_store_timestamp` is the store time of the message whose dispatch created the file, and
    `first_store_timestamp` that of the message with the first key; None before the first key.
    """

    hash_slots: int
    index_items: int
    created_store_timestamp: int
    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1
    first_store_timestamp: int | None = None

    def __post_init__(self) -> None:
        if self.index_items < 2:
            raise ValueError("a file of fewer than two items can never take a key")
        self.slots = bytearray(self.hash_slots * SLOT.size)
        self.items = bytearray(ITEM.size)

    @property
    def is_full(self) -> bool:
        return self.index_count >= self.index_items

    @property
    def size(self) -> int:
        return HEADER.size + self.hash_slots * SLOT.size + self.index_items * ITEM.size

    def put(self, topic: str, key: str, physical_offset: int, store_timestamp: int) -> None:
        hashed = key_hash(topic, key)
        slot_at = hashed % self.hash_slots * SLOT.size
        (before,) = SLOT.unpack_from(self.slots, slot_at)
        if not 0 < before <= self.index_count:
            before = 0  # a damaged file may have any number here
        # `begin_timestamp` changes only after the first key. So in a new file, the first key's difference is to the
        # end of the previous file.
        seconds = divide(to_long(store_timestamp - self.begin_timestamp), 1000)
        if self.begin_timestamp <= 0:
            seconds = 0
        seconds = min(max(seconds, 0), _MAX_INT)
        self.items += ITEM.pack(hashed, physical_offset, seconds, before)
        SLOT.pack_into(self.slots, slot_at, self.index_count)
        if self.index_count == 1:
            self.begin_timestamp = self.first_store_timestamp = store_timestamp
            self.begin_physical_offset = physical_offset
        if before == 0:
            self.hash_slot_count += 1
        self.index_count += 1
        self.end_timestamp = store_timestamp
        self.end_physical_offset = physical_offset

    def used_bytes(self) -> bytes:
        """Return header, slots and items. The rest of the file, up to `size`, is zeros."""
        # A new file's count of 1 is only in memory.
        count = 0 if self.index_count == 1 else self.index_count
        header = HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.hash_slot_count,
            count,
        )
        return header + self.slots + self.items

    def to_bytes(self) -> bytes:
        return self.used_bytes().ljust(self.size, b"\0")


def write_index_files(
    records: Iterable[Record], *, hash_slots: int, index_items: int, tags_from: int | None = None
) -> list[IndexFile]:
    """Dispatch records. Returns the index files in order of creation.

    Records from the physical offset `tags_from` on are dispatched as by a broker of 5.4, which also puts their tags.
    """
    files: list[IndexFile] = []
    for record in records:
        # Done before the record's keys are checked, so a record without keys can create a file.
        file = _last_file(files, hash_slots, index_items, record)
        if record.physical_offset < file.end_physical_offset:
            continue  # the broker skips such a record as already indexed, but not one at an equal offset
        has_tags = tags_from is not None and record.physical_offset >= tags_from
        for key in record.index_keys + (record.index_tags if has_tags else []):
            file = _last_file(files, hash_slots, index_items, record)
            file.put(record.topic, key, record.physical_offset, record.store_timestamp)
    return files


def _last_file(
    files: list[IndexFile], hash_slots: int, index_items: int, record: Record
) -> IndexFile:
    """Return the file to put to: the last one, or a new one if it is full or missing."""
    if not files:
        files.append(IndexFile(hash_slots, index_items, record.store_timestamp))
    elif files[-1].is_full:
        # A new file begins and ends where the previous one ended, if that is above 0.
        end_timestamp = max(files[-1].end_timestamp, 0)
        end_physical_offset = max(files[-1].end_physical_offset, 0)
        files.append(
            IndexFile(
                hash_slots,
                index_items,
                record.store_timestamp,
                begin_timestamp=end_timestamp,
                end_timestamp=end_timestamp,
                begin_physical_offset=end_physical_offset,
                end_physical_offset=end_physical_offset,
            )
        )
    return files[-1]
