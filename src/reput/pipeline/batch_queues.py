"""Batch queues (5.x) written from what the scan staged: one walk over it, after all tasks, in this process."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from reput.files.writer import make_folder
from reput.log.dispatch_batch import DispatchBatch, Queue
from reput.log.reader import CommitLogReader
from reput.log.sources import StoreLog
from reput.pipeline.batch_file import read_batches
from reput.queues.kinds import queue_folder
from reput.queues.writer import BatchQueueWriter, batch_size_in

_FIELDS = (
    "physical_offset", "size", "tags_code", "store_timestamp", "sys_flag", "queue", "queue_offset",
    "multi",
)  # fmt: skip


def write_batch_queues(
    store: str | Path, staged: Iterable[str], topics: frozenset[str], folder: Path, file_bytes: int
) -> tuple[int, int]:
    """Write the queues of these topics below `folder`; return how many they are, and how many entries they have.

    Args:
        store: has the log, in which the number of messages of each inner batch stands.
        staged: what the scan left, in order of the log.
        topics: those with batch queues.
        folder: batchconsumequeue/ of the new store.
        file_bytes: of a file (mapperFileSizeBatchConsumeQueue).

    Raises:
        StoreAccessError, StoreChangedError.
    """
    queues: dict[Queue, BatchQueueWriter] = {}
    make_folder(folder)
    with closing(CommitLogReader(StoreLog(store))) as log:
        size_of = batch_size_in(log)
        for path in staged:
            for batch in read_batches(Path(path), _FIELDS):
                for number, queue in enumerate(batch.queues):
                    if queue.topic in topics:
                        if queue not in queues:
                            place = queue_folder(folder, *queue)
                            queues[queue] = BatchQueueWriter(place, file_bytes, size_of)
                        _append(batch, number, queues[queue])
    _close(queues)
    return len(queues), sum(writer.count for writer in queues.values())


def _close(queues: dict[Queue, BatchQueueWriter]) -> None:
    for writer in queues.values():
        writer.close(sync=True)


def _append(batch: DispatchBatch, number: int, writer: BatchQueueWriter) -> None:
    grouped = batch.queue_entries()
    place = slice(int(grouped.bounds[number]), int(grouped.bounds[number + 1]))
    writer.append(batch.messages, grouped.rows[place], grouped.queue_offset[place])
