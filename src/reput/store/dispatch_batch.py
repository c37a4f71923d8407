"""DispatchBatch: the columnar form of RocketMQ's DispatchRequest, for a run of messages.

Every driver passes it around: scanned from the CommitLog, appended to ConsumeQueues, put into IndexFiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.format.commit_log import SYS_FLAG_PREPARED


class Queue(NamedTuple):
    """A queue of a topic."""

    topic: str
    queue_id: int


class QueueEntries(NamedTuple):
    """What a batch appends to ConsumeQueues, grouped: queue g owns rows[bounds[g]:bounds[g + 1]].

    queue         int64[g], numbers into DispatchBatch.queues
    bounds        int64[g + 1]
    rows          int64[n], the message of each entry
    queue_offset  int64[n]
    """

    queue: npt.NDArray[np.int64]
    bounds: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    queue_offset: npt.NDArray[np.int64]


@dataclass(frozen=True)
class DispatchBatch:
    """A run of messages in CommitLog order, read by no one row by row.

    messages   kernels.commit_log_scan.MESSAGE_DTYPE[n]: physical_offset, queue_offset, store_timestamp,
               tags_code, size, sys_flag, queue (number into `queues`), key_count (index entries)
    key_hash   int32[k], the index entries in order: key_count[0] of the first message, and so on
    multi      kernels.commit_log_scan.MULTI_DTYPE[m]: further queues of INNER_MULTI_DISPATCH, by message row
    queues     the queues met so far
    """

    messages: npt.NDArray[np.void]
    key_hash: npt.NDArray[np.int32]
    multi: npt.NDArray[np.void]
    queues: list[Queue]

    def __len__(self) -> int:
        return len(self.messages)

    @cached_property
    def key_row(self) -> npt.NDArray[np.int32]:
        """int32[k], the row of each index entry's message."""
        rows = np.arange(len(self.messages), dtype=np.int32)
        return np.repeat(rows, self.messages["key_count"])

    def queue_entries(self) -> QueueEntries:
        """ConsumeQueue entries by queue, in CommitLog order within each.

        Prepared and rolled-back messages have none (DefaultMessageStore's
        CommitLogDispatcherBuildConsumeQueue, 4.9.3).
        """
        rows = np.flatnonzero((self.messages["sys_flag"] & SYS_FLAG_PREPARED) == 0)
        queue, queue_offset = self.messages["queue"][rows], self.messages["queue_offset"][rows]
        if len(self.multi):
            rows = np.concatenate((rows, self.multi["row"].astype(rows.dtype)))
            queue = np.concatenate((queue, self.multi["queue"]))
            queue_offset = np.concatenate((queue_offset, self.multi["queue_offset"]))
            by_row = np.argsort(rows, kind="stable")
            rows, queue, queue_offset = rows[by_row], queue[by_row], queue_offset[by_row]
        # numpy sorts 16-bit integers by radix; few batches meet more queues than that
        order = np.argsort(queue.astype(np.uint16) if len(self.queues) < 1 << 16 else queue, kind="stable")
        counts = np.bincount(queue, minlength=len(self.queues))
        present = np.flatnonzero(counts)
        bounds = np.concatenate(([0], np.cumsum(counts[present])))
        return QueueEntries(present, bounds, rows[order], queue_offset[order])
