"""Derive the entries that a broker writes into RocksDB (`RocksDBConsumeQueueStore`, tag rocketmq-all-5.3.3).

Each message has an entry in its own queue, and one in each light queue (%LMQ%) that its properties name. Other queues
that the properties name get no entry. Messages of retry and system topics are in no light queue. Their properties
may still name light queues, because they are copied from another message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.core import DispatchBatch, DispatchRules, Queue
from reput.format.properties import LMQ_PREFIX


def rocksdb_rules(delays_ms: tuple[int, ...]) -> DispatchRules:
    """Return the rules by which a scan of the log finds the queue entries for RocksDB.

    By these rules, light queues get entries too.
    """
    return DispatchRules(delays_ms, multi_dispatch=True, lmq=True, checks_topic=True)


class DispatchedEntries(NamedTuple):
    """Messages of one queue in the order of the log, and their offsets in this queue."""

    queue: Queue
    messages: npt.NDArray[np.void]
    queue_offset: npt.NDArray[np.int64]


def dispatched_entries(batch: DispatchBatch) -> Iterator[DispatchedEntries]:
    """Yield the entries of a batch by queue. The batch must have been scanned with `rocksdb_rules`."""
    for number, queue, numbers, queue_offset in batch.by_queue():
        rows = batch.messages[numbers]
        if not queue.topic.startswith(LMQ_PREFIX):
            # INNER_MULTI_DISPATCH of a message may name further queues. In RocksDB, the message has entries only in its
            # own queue and in further queues that are light queues.
            is_own = rows["queue"] == number
            rows, queue_offset = rows[is_own], queue_offset[is_own]
        if len(rows):
            yield DispatchedEntries(queue, rows, queue_offset)
