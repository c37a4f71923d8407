"""Define the result of a scan of the CommitLog: a DispatchBatch of consecutive messages, as columns.

A broker has a DispatchRequest for each single message instead (`DispatchRequest`, tag rocketmq-all-4.9.3). A rebuild
and a live store write the entries of a batch to ConsumeQueues and IndexFiles. A store's own dispatchers also get the
requests of a batch, which read a record when its properties are first used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import UsageError
from reput.format.commit_log import SYS_FLAG_ROLLBACK, MessageExt

# The columns of a message that a request has, in the order of its fields.
_REQUEST_COLUMNS = (
    "physical_offset", "size", "tags_code", "store_timestamp", "queue_offset", "sys_flag",
)  # fmt: skip


class Queue(NamedTuple):
    """A queue of a topic."""

    topic: str
    queue_id: int


class QueueEntries(NamedTuple):
    """The ConsumeQueue entries of a batch, grouped by queue. Queue q has rows[bounds[q]:bounds[q + 1]].

    bounds        int64[queues + 1], by number in DispatchBatch.queues
    rows          int64[n], row of each entry's message
    queue_offset  int64[n]
    """

    bounds: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    queue_offset: npt.NDArray[np.int64]


class EntriesOfQueue(NamedTuple):
    """The entries of one queue in a batch: number and name of the queue, and the columns of QueueEntries."""

    number: int
    queue: Queue
    rows: npt.NDArray[np.int64]
    queue_offset: npt.NDArray[np.int64]


@dataclass
class DispatchRequest:
    """One message of a batch, with the names of RocketMQ's class. Valid until `dispatch` returns.

    Attributes:
        topic, queue_id: queue of the message
        physical_offset: place of the record (`commitLogOffset`)
        size: size of the record in bytes (`msgSize`)
        tags_code: hash of the tags, or due time of a delayed message
        store_timestamp: store time (ms)
        queue_offset: queue offset of the message (`consumeQueueOffset`)
        sys_flag: system flags of the record

    In RocketMQ: getMsgSize, getSysFlag.
    """

    topic: str
    queue_id: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    queue_offset: int
    sys_flag: int
    _read: Callable[[int, int], MessageExt]

    @cached_property
    def message(self) -> MessageExt:
        """Return the whole message, which is read at the first use. Raises StoreAccessError, CorruptMessageError."""
        return self._read(self.physical_offset, self.size)

    @property
    def properties(self) -> dict[str, str]:
        """Return the properties (`propertiesMap`). Raises as `message` does."""
        return self.message.properties

    @property
    def keys(self) -> list[str]:
        """Return the words of KEYS. Raises as `message` does.

        In RocketMQ: getKeys, getUniqKey, getPropertiesMap.
        """
        return self.message.keys

    @property
    def unique_key(self) -> str | None:
        """Return the unique key (`uniqKey`). Raises as `message` does."""
        return self.message.unique_key

    @property
    def prepared_transaction_offset(self) -> int:
        """Return the offset of the prepared message that this message commits. Raises as `message` does.

        In RocketMQ: getPreparedTransactionOffset, preparedTransactionOffset.
        """
        return self.message.prepared_transaction_offset


@dataclass(frozen=True)
class DispatchBatch:
    """A run of messages in CommitLog order, as columns.

    messages   format.dtypes.MESSAGE_DTYPE[n]: physical_offset, queue_offset, store_timestamp,
               tags_code, size, sys_flag, queue (number in `queues`), key_count (index entries)
    key_hash   int32[k], the index entries in order: key_count[0] of the first message, and so on
    multi      format.dtypes.MULTI_DTYPE[m]: further queues of messages (INNER_MULTI_DISPATCH); `row` is an index
               into `messages`
    queues     all queues that the scan has met so far
    read       returns the message at a physical offset, of a given size; None for a batch without its log
    """

    messages: npt.NDArray[np.void]
    key_hash: npt.NDArray[np.int32]
    multi: npt.NDArray[np.void]
    queues: list[Queue]
    read: Callable[[int, int], MessageExt] | None = None

    def requests(self) -> Iterator[DispatchRequest]:
        """Yield the messages one by one. Raises UsageError for a batch that was not passed to a dispatcher."""
        if self.read is None:
            raise UsageError("only the batches that dispatchers receive have requests")
        columns = (self.messages[name].tolist() for name in ("queue", *_REQUEST_COLUMNS))
        for number, offset, size, code, stored, queue_offset, flag in zip(*columns, strict=True):
            topic, queue_id = self.queues[number]
            yield DispatchRequest(
                topic, queue_id, offset, size, code, stored, queue_offset, flag, self.read
            )

    def __len__(self) -> int:
        return len(self.messages)

    @cached_property
    def key_row(self) -> npt.NDArray[np.int32]:
        """Return the row of each index entry's message, int32[k]."""
        from reput.kernels.queue_entries import find_key_rows

        rows = np.empty(len(self.key_hash), np.int32)
        find_key_rows(self.messages, rows)
        return rows

    def without(self, offsets: Collection[int]) -> DispatchBatch:
        """Return the batch without the entries of messages at these physical offsets. The messages remain in it."""
        if not offsets:
            return self
        gone = np.isin(self.messages["physical_offset"], list(offsets))
        if not gone.any():
            return self
        messages = self.messages.copy()
        # A rolled-back message has no entry in its own queue.
        messages["sys_flag"][gone] |= SYS_FLAG_ROLLBACK
        messages["key_count"][gone] = 0
        return replace(
            self, messages=messages, key_hash=self.key_hash[~gone[self.key_row]],
            multi=self.multi[~gone[self.multi["row"]]],
        )  # fmt: skip

    def queue_entries(self) -> QueueEntries:
        """Return the ConsumeQueue entries by queue, in CommitLog order within each queue.

        Prepared and rolled-back messages have no entry (DefaultMessageStore's CommitLogDispatcherBuildConsumeQueue,
        4.9.3).
        """
        # Imported here, because it imports numba, which callers without batches do not need.
        from reput.kernels.queue_entries import group_entries

        # Each message has at most one entry in its own queue, and one in each further queue (multi-dispatch).
        room = len(self.messages) + len(self.multi)
        bounds = np.empty(len(self.queues) + 1, np.int64)
        rows, queue_offset = np.empty(room, np.int64), np.empty(room, np.int64)
        count = group_entries(self.messages, self.multi, bounds, rows, queue_offset)
        return QueueEntries(bounds, rows[:count], queue_offset[:count])

    def by_queue(self) -> Iterator[EntriesOfQueue]:
        """Yield the entries of each queue that has any in the batch."""
        bounds, rows, queue_offset = self.queue_entries()
        for number, (start, stop) in enumerate(pairwise(bounds.tolist())):
            if start < stop:
                yield EntriesOfQueue(
                    number, self.queues[number], rows[start:stop], queue_offset[start:stop]
                )
