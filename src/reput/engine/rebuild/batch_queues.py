"""Write batch queues (5.x) from staged entries, in one pass over the log for each pack.

A pack is a group of queues that one task writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from reput.core import (
    BatchQueueWriter,
    CommitLogReader,
    DispatchBatch,
    Queue,
    StoreLog,
    batch_size_in,
    queue_folder,
)
from reput.engine.writer import BatchQueueFiles, LogPart, old_batches
from reput.io import DISK, LOCAL, Disk, Storage

Batches = Callable[[Sequence[str]], Iterable[DispatchBatch]]
"""Yields the batches of a log, in log order, with the named fields."""
_FIELDS = (
    "physical_offset", "size", "tags_code", "store_timestamp", "sys_flag", "queue", "queue_offset",
    "multi",
)  # fmt: skip


def write_batch_queues(
    store: str | Path, batches: Batches, pack: Collection[Queue], folder: Path, file_bytes: int,
    log: LogPart, old: Path | None, storage: Storage = LOCAL,
) -> tuple[int, int, int]:  # fmt: skip
    """Write queues below `folder`; return the numbers of entries written, messages refused and old entries kept.

    A message is refused if its entry does not fit between the old entries of the queue, or if it states a lower
    physical offset than one before it. Old entries are kept if their messages can no longer be read.

    Args:
        store: The store with the log. Its records state the number of messages in each inner batch.
        batches: The staged batches, in log order.
        pack: The queues to write (a group of queues that one task writes).
        folder: batchconsumequeue/ of the new store.
        file_bytes: Size of a file (mapperFileSizeBatchConsumeQueue).
        log: The begin, end and unreadable ranges of the log.
        old: The batchconsumequeue/ that is replaced; None if no queues are replaced. Its entries decide the queue
            offsets if the log is damaged, or if they differ from the offsets that the records state.
        storage: Storage of the store.

    Raises:
        StoreAccessError, StoreChangedError.
    """
    queues: dict[Queue, BatchQueueWriter] = {}
    unplaced = old_entries = 0
    DISK.create_folder(folder)
    with closing(CommitLogReader(StoreLog(store, storage))) as reader:
        size_of = batch_size_in(reader)
        matchings = {}
        if old is not None:
            matchings = old_batches(partial(batches, _FIELDS), pack, old, file_bytes, log, size_of)
        # Write old entries first, because new entries continue after them.
        for queue, (kept, part) in matchings.items():
            unplaced += part.unplaced.count
            old_entries += part.unreadable
            place = queue_folder(folder, *queue)
            DISK.create_folder(place)
            end = BatchQueueFiles(place, file_bytes).hold(kept.entries, Disk())
            position = end.position if end.entries else None
            queues[queue] = BatchQueueWriter(
                place, file_bytes, size_of, end.entries, position, end.max_physical_offset
            )
        for batch in batches(_FIELDS):
            for _, queue, rows, numbers in batch.by_queue():
                if queue in pack:
                    if queue not in queues:
                        place = queue_folder(folder, *queue)
                        queues[queue] = BatchQueueWriter(place, file_bytes, size_of)
                    count = queues[queue].append(batch.messages, rows, numbers)
                    # A message gets no entry if one with a higher physical offset precedes.
                    # The old entries of a queue have been counted.
                    unplaced += 0 if queue in matchings else len(rows) - count
    for queue, writer in queues.items():
        writer.close(sync=True)
        if writer.position is None:
            DISK.remove_tree(queue_folder(folder, *queue))
    return sum(writer.count for writer in queues.values()), unplaced, old_entries
