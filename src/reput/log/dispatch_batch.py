"""Define the result of a scan of the CommitLog: a DispatchBatch of consecutive messages, as columns.

A broker has a DispatchRequest for each single message instead. A rebuild and a live store write the entries of a batch
to ConsumeQueues and IndexFiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


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


@dataclass(frozen=True)
class DispatchBatch:
    """A run of messages in CommitLog order, as columns.

    messages   format.dtypes.MESSAGE_DTYPE[n]: physical_offset, queue_offset, store_timestamp,
               tags_code, size, sys_flag, queue (number in `queues`), key_count (index entries)
    key_hash   int32[k], the index entries in order: key_count[0] of the first message, and so on
    multi      format.dtypes.MULTI_DTYPE[m]: further queues of messages (INNER_MULTI_DISPATCH); `row` is an index
               into `messages`
    queues     all queues that the scan has met so far
    """

    messages: npt.NDArray[np.void]
    key_hash: npt.NDArray[np.int32]
    multi: npt.NDArray[np.void]
    queues: list[Queue]

    def __len__(self) -> int:
        return len(self.messages)

    @cached_property
    def key_row(self) -> npt.NDArray[np.int32]:
        """Return the row of each index entry's message, int32[k]."""
        rows = np.arange(len(self.messages), dtype=np.int32)
        return np.repeat(rows, self.messages["key_count"])

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
