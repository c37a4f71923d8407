"""Entries of batch queues (`BatchConsumeQueue`, tag rocketmq-all-5.3.3), for topics with `queue.type` BatchCQ.

The files lie in `batchconsumequeue/`. Each is named by the byte offset of its first entry. An entry describes one
record: a single message, or all messages of an inner batch. It is big endian:

    physical offset 8 | size 4 | tags code 8 | store timestamp 8 | base queue offset 8 | batch size 2 |
    compacted offset 4 (-1 unless set by compaction) | reserved 4

An entry covers `batch size` queue offsets, from its base queue offset on. As in a ConsumeQueue, the queue ends at its
first unwritten entry.
"""

from __future__ import annotations

from collections.abc import Iterator

from reput.format.consume_queue import ENTRY, ConsumeQueueEntry
from reput.format.java_integer import decimal_number
from reput.format.layout import Layout

BATCH_ENTRY = Layout(
    **ENTRY.codes, store_timestamp="q", base_offset="q", batch_size="h", compacted_offset="i", reserved="i"
)  # fmt: skip
BATCH_ENTRY_BYTES = BATCH_ENTRY.size
NOT_COMPACTED = -1
MAX_BATCH_SIZE = (1 << 15) - 1


class BatchEntry(ConsumeQueueEntry):
    """One entry: the three fields of a ConsumeQueue entry, and four more.

    Attributes:
        store_timestamp: store time of the record, in milliseconds
        base_offset: queue offset of the record's first message
        batch_size: number of messages; 1 for a record that is not a batch
        compacted_offset: -1 unless compaction has set it
    """

    store_timestamp: int
    base_offset: int
    batch_size: int
    compacted_offset: int

    @property
    def stop(self) -> int:
        """Return the queue offset after the entry's last message."""
        return self.base_offset + self.batch_size


def decode_batch_entry(data: bytes | memoryview, position: int = 0) -> BatchEntry:
    """Return the entry at byte `position`. Raises struct.error when fewer than 46 bytes are left."""
    return _entry_of(BATCH_ENTRY.struct.unpack_from(data, position))


def decode_batch_entries(data: bytes) -> Iterator[BatchEntry]:
    """Yield the entries in these bytes. Raises struct.error for an incomplete entry at the end."""
    return map(_entry_of, BATCH_ENTRY.struct.iter_unpack(data))


def encode_batch_entry(entry: BatchEntry) -> bytes:
    return BATCH_ENTRY.struct.pack(
        *entry, entry.store_timestamp, entry.base_offset, entry.batch_size, entry.compacted_offset, 0
    )  # fmt: skip


def batch_entry(
    place: ConsumeQueueEntry, store_timestamp: int, base_offset: int, batch_size: int
) -> BatchEntry:
    """Return the entry that a broker writes for a record."""
    return _entry_of((*place, store_timestamp, base_offset, batch_size, NOT_COMPACTED, 0))


def stated_batch_size(text: str | None) -> int | None:
    """Return the number of messages that the property INNER_NUM states; None if it is not a valid number."""
    # A batch has at most 32,767 messages, so five digits are enough.
    count = decimal_number(text or "", 5)
    return count if count and count <= MAX_BATCH_SIZE else None


def _entry_of(fields: tuple[int, ...]) -> BatchEntry:
    # BatchEntry is a subclass of a NamedTuple with three fields. Such a subclass cannot add fields, so its four further
    # values are set as attributes.
    entry = BatchEntry(*fields[:3])
    entry.store_timestamp, entry.base_offset, entry.batch_size, entry.compacted_offset = fields[3:7]
    return entry
