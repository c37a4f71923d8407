"""What dispatch appends to ConsumeQueues: the one side of every comparison."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import StoreError
from reput.format.consume_queue import ENTRY_BYTES
from reput.kernels.queue_entries import append_entries
from reput.log.dispatch_batch import DispatchBatch, Queue
from reput.queues.writer import check_topic

_WORDS = ENTRY_BYTES // 4


class QueueRun(NamedTuple):
    """The messages of a batch that one queue is offered: rows of the batch, and their queue offsets."""

    name: Queue
    rows: npt.NDArray[np.int64]
    queue_offset: npt.NDArray[np.int64]


class Appended(NamedTuple):
    """What the queue takes of them.

    entries    uint32[n, 5], the file's bytes
    end        physical offset at which the last message that it has then ends
    refused    whether an entry from before the end came after the last that was taken
    """

    entries: npt.NDArray[np.uint32]
    end: int
    refused: bool


def queue_runs(batch: DispatchBatch) -> Iterator[QueueRun]:
    """One for each queue with messages in the batch and a topic that can name a folder."""
    entries = batch.queue_entries()
    bounds = entries.bounds.tolist()
    for number, name in enumerate(batch.queues):
        place = slice(bounds[number], bounds[number + 1])
        if place.start < place.stop and _has_folder(name):
            yield QueueRun(name, entries.rows[place], entries.queue_offset[place])


def appended(
    batch: DispatchBatch,
    rows: npt.NDArray[np.int64],
    queue_offset: npt.NDArray[np.int64],
    position: int,
    before: int,
) -> Appended:
    """By a queue that has `position` entries, the last of a message that ends at `before`; -1 where there is none."""
    entries = np.empty((len(rows), _WORDS), np.uint32)
    stop, end, refused = append_entries(
        batch.messages, rows, queue_offset, position, before, entries
    )
    return Appended(entries[: int(stop) - position], int(end), bool(refused))


def _has_folder(name: Queue) -> bool:
    try:
        check_topic(name.topic)
    except StoreError:
        return False
    return True
