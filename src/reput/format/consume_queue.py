"""ConsumeQueue entries (`ConsumeQueue`, tag rocketmq-all-4.9.3).

A ConsumeQueue maps a queue offset to the place of a record: entry n lies at byte n * 20 of the queue's files. Each file
has room for `queue_entries` entries, and is named by the byte offset of its first entry. An entry is big endian:

    physical offset 8 | size 4 | tags code 8

An entry counts as written if its physical offset is >= 0 and its size > 0. The first unwritten entry ends the queue. If
the first queue offset of a queue is above 0, its first file begins with pre-blank entries, which refer to no message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_ENTRY = struct.Struct(">qiq")
ENTRY_BYTES = _ENTRY.size
"""Size of an entry (`ConsumeQueue.CQ_STORE_UNIT_SIZE`)."""


class ConsumeQueueEntry(NamedTuple):
    """One entry: physical offset and size of a record, and its tags code."""

    physical_offset: int
    size: int
    tags_code: int

    @property
    def is_written(self) -> bool:
        return self.physical_offset >= 0 and self.size > 0


# The fields that ConsumeQueue.fillPreBlank writes.
PRE_BLANK = ConsumeQueueEntry(0, 2**31 - 1, 0)


def decode_entry(data: bytes | memoryview, position: int = 0) -> ConsumeQueueEntry:
    """Return the entry at byte `position`. Raises struct.error when fewer than 20 bytes are left."""
    return ConsumeQueueEntry(*_ENTRY.unpack_from(data, position))


def decode_entries(data: bytes) -> Iterator[ConsumeQueueEntry]:
    """Yield the entries in these bytes. Raises struct.error for an incomplete entry at the end."""
    return map(ConsumeQueueEntry._make, _ENTRY.iter_unpack(data))


def encode_entry(entry: ConsumeQueueEntry) -> bytes:
    return _ENTRY.pack(*entry)
