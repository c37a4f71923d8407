"""ConsumeQueue entries (`ConsumeQueue`, tag rocketmq-all-4.9.3).

A ConsumeQueue maps a queue offset to the place of a record: entry n lies at byte n * 20 of the queue's files. Each file
has room for `queue_entries` entries, and is named by the byte offset of its first entry. An entry is big endian:

    physical offset 8 | size 4 | tags code 8

An entry counts as written if its physical offset is >= 0 and its size > 0. The first unwritten entry ends the queue. If
the first queue offset of a queue is above 0, its first file begins with pre-blank entries, which refer to no message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from reput.format.layout import Layout

ENTRY = Layout(physical_offset="q", size="i", tags_code="q")
ENTRY_BYTES = ENTRY.size
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
