"""Which entries a broker writes into RocksDB for messages (`RocksDBConsumeQueueStore`, tag rocketmq-all-5.3.3).

An entry for each message in its own queue, and one for each light queue (%LMQ%) that its properties name. Other further
queues have none, and messages of retry and system topics are in no light queue, whatever properties they inherit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.format.properties import LMQ_PREFIX
from reput.log.dispatch_batch import DispatchBatch, Queue
from reput.log.scan_mode import DispatchRules


def rocksdb_rules(delays_ms: tuple[int, ...]) -> DispatchRules:
    """Of a scan whose batches are dispatched into RocksDB. Light queues that no message names cost nothing."""
    return DispatchRules(delays_ms, multi_dispatch=True, lmq=True, checks_topic=True)


class DispatchedEntries(NamedTuple):
    """Messages of one queue in the order of the log, and their queue offsets in it."""

    queue: Queue
    messages: npt.NDArray[np.void]
    queue_offset: npt.NDArray[np.int64]


def dispatched_entries(batch: DispatchBatch) -> Iterator[DispatchedEntries]:
    """The entries of a batch by queue; the scan was one by `rocksdb_rules`."""
    grouped, messages = batch.queue_entries(), batch.messages
    for number, queue in enumerate(batch.queues):
        begin, end = int(grouped.bounds[number]), int(grouped.bounds[number + 1])
        if begin == end:
            continue
        rows, queue_offset = messages[grouped.rows[begin:end]], grouped.queue_offset[begin:end]
        if not queue.topic.startswith(LMQ_PREFIX):
            own = rows["queue"] == number
            rows, queue_offset = rows[own], queue_offset[own]
        if len(rows):
            yield DispatchedEntries(queue, rows, queue_offset)
