"""Batch queues (5.x) written from what the scan staged: one walk over it for a pack of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from pathlib import Path

from reput.files.writer import make_folder
from reput.log.dispatch_batch import DispatchBatch, Queue
from reput.log.reader import CommitLogReader
from reput.log.sources import StoreLog
from reput.queues.kinds import queue_folder
from reput.queues.writer import BatchQueueWriter, batch_size_in

Batches = Callable[[Sequence[str]], Iterable[DispatchBatch]]
"""Yields the batches of a log, in its order, with these fields."""
_FIELDS = (
    "physical_offset", "size", "tags_code", "store_timestamp", "sys_flag", "queue", "queue_offset",
    "multi",
)  # fmt: skip


def write_batch_queues(
    store: str | Path, batches: Batches, pack: Collection[Queue], folder: Path, file_bytes: int
) -> int:
    """Write these queues below `folder`; return how many entries they have.

    Args:
        store: has the log, in which the number of messages of each inner batch stands.
        batches: yields what the scan left, in order of the log.
        pack: the queues.
        folder: batchconsumequeue/ of the new store.
        file_bytes: of a file (mapperFileSizeBatchConsumeQueue).

    Raises:
        StoreAccessError, StoreChangedError.
    """
    queues: dict[Queue, BatchQueueWriter] = {}
    make_folder(folder)
    with closing(CommitLogReader(StoreLog(store))) as log:
        size_of = batch_size_in(log)
        for batch in batches(_FIELDS):
            for number, queue in enumerate(batch.queues):
                if queue in pack:
                    if queue not in queues:
                        place = queue_folder(folder, *queue)
                        queues[queue] = BatchQueueWriter(place, file_bytes, size_of)
                    _append(batch, number, queues[queue])
    _close(queues)
    return sum(writer.count for writer in queues.values())


def _close(queues: dict[Queue, BatchQueueWriter]) -> None:
    for writer in queues.values():
        writer.close(sync=True)


def _append(batch: DispatchBatch, number: int, writer: BatchQueueWriter) -> None:
    grouped = batch.queue_entries()
    place = slice(int(grouped.bounds[number]), int(grouped.bounds[number + 1]))
    writer.append(batch.messages, grouped.rows[place], grouped.queue_offset[place])
