"""Entries of ConsumeQueues (`ConsumeQueue`, tag rocketmq-all-4.9.3) and of batch queues (`BatchConsumeQueue`, 5.3.3).

A ConsumeQueue maps a queue offset to the place of a record: entry n lies at byte n * 20 of the queue's files. Each file
has room for `queue_entries` entries, and is named by the byte offset of its first entry. An entry is big endian:

    physical offset 8 | size 4 | tags code 8

An entry counts as written if its physical offset is >= 0 and its size > 0. The first unwritten entry ends the queue. If
the first queue offset of a queue is above 0, its first file begins with pre-blank entries, which refer to no message.

The files of batch queues lie in `batchconsumequeue/`, for topics with `queue.type` BatchCQ. An entry describes one
record: a single message, or all messages of an inner batch. These fields follow the three of a ConsumeQueue:

    store timestamp 8 | base queue offset 8 | batch size 2 | compacted offset 4 (-1 until compacted) | reserved 4

An entry covers `batch size` queue offsets, from its base queue offset on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from reput.format.java_string import decimal_number
from reput.format.layout import Layout

ENTRY = Layout(physical_offset="q", size="i", tags_code="q")
ENTRY_BYTES = ENTRY.size
"""Size of an entry (`ConsumeQueue.CQ_STORE_UNIT_SIZE`)."""
MAX_QUEUE_OFFSET = (2**63 - 1) // ENTRY_BYTES
"""The byte position of an entry with a larger number would exceed int64."""
BATCH_ENTRY = Layout(
    **ENTRY.codes, store_timestamp="q", base_offset="q", batch_size="h", compacted_offset="i", reserved="i"
)  # fmt: skip
BATCH_ENTRY_BYTES = BATCH_ENTRY.size
NOT_COMPACTED = -1
MAX_BATCH_SIZE = (1 << 15) - 1


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
    return ConsumeQueueEntry(*ENTRY.struct.unpack_from(data, position))


def decode_entries(data: bytes) -> Iterator[ConsumeQueueEntry]:
    """Yield the entries in these bytes. Raises struct.error for an incomplete entry at the end."""
    return map(ConsumeQueueEntry._make, ENTRY.struct.iter_unpack(data))


def encode_entry(entry: ConsumeQueueEntry) -> bytes:
    return ENTRY.struct.pack(*entry)


def may_skew(before: int, after: int, taken: int) -> bool:
    """Return whether a broker can have written two successive entries with the lags `before` and `after`.

    The entries belong to a light queue (%LMQ%). The lag of an entry is its message's queue offset minus the entry's
    index in the queue. A 5.x broker also gives queue offsets of light queues to messages of open and rolled-back
    transactions. These messages get no entry, and the next entry is appended at the queue's end. A restarted broker
    counts from this end (`LmqDispatch.updateLmqOffsets`, `ConsumeQueue.putMessagePositionInfo`,
    `AbstractConsumeQueueStore.setTopicQueueTable`, tag rocketmq-all-5.3.3).

    Args:
        before: Lag of the first entry.
        after: Lag of the second entry.
        taken: Number of messages between the two that got a queue offset, but no entry.
    """
    return 0 <= after - before <= taken or 0 <= after <= taken


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
    return _batch_entry_of(BATCH_ENTRY.struct.unpack_from(data, position))


def decode_batch_entries(data: bytes) -> Iterator[BatchEntry]:
    """Yield the entries in these bytes. Raises struct.error for an incomplete entry at the end."""
    return map(_batch_entry_of, BATCH_ENTRY.struct.iter_unpack(data))


def encode_batch_entry(entry: BatchEntry) -> bytes:
    return BATCH_ENTRY.struct.pack(
        *entry, entry.store_timestamp, entry.base_offset, entry.batch_size, entry.compacted_offset, 0
    )  # fmt: skip


def batch_entry(
    place: ConsumeQueueEntry, store_timestamp: int, base_offset: int, batch_size: int
) -> BatchEntry:
    """Return the entry that a broker writes for a record."""
    return _batch_entry_of((*place, store_timestamp, base_offset, batch_size, NOT_COMPACTED, 0))


def stated_batch_size(text: str | None) -> int | None:
    """Return the number of messages that the property INNER_NUM states; None if it is not a valid number."""
    # A batch has at most 32,767 messages, so five digits are enough.
    count = decimal_number(text or "", 5)
    return count if count and count <= MAX_BATCH_SIZE else None


def _batch_entry_of(fields: tuple[int, ...]) -> BatchEntry:
    # BatchEntry is a subclass of a NamedTuple with three fields. Such a subclass cannot add fields, so its four further
    # values are set as attributes.
    entry = BatchEntry(*fields[:3])
    entry.store_timestamp, entry.base_offset, entry.batch_size, entry.compacted_offset = fields[3:7]
    return entry
