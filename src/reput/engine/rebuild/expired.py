"""Keep queues whose messages have all expired: the log does not show their queue offsets, so a rebuild keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path

from reput.core import (
    BatchQueueReader,
    ConsumeQueueReader,
    Queue,
    QueueFolder,
    offset_entries,
    walk_queues,
)
from reput.errors import StoreError
from reput.format.file_names import BATCH_QUEUE_FOLDER, CONSUME_QUEUE_FOLDER
from reput.io import DISK


def keep_expired_queues(
    output: Path, new: Path, log_begin: int, kind: str = CONSUME_QUEUE_FOLDER
) -> int:
    """Create links in the folder `new` to queues whose messages have all expired. Return the number of linked queues.

    Like a broker, keep the last file of such a queue: it determines the queue offset of the next message. A queue
    counts as expired if all its entries have physical offsets before the beginning of the log.

    Args:
        output: The folder with the existing queues, which a rebuild replaces.
        new: The folder that receives the links.
        log_begin: The physical offset at which the log begins.
        kind: The folder of the queues: consumequeue/ or batchconsumequeue/.

    Raises:
        StoreAccessError: a file cannot be read or linked.
    """
    count = 0
    for queue in _queue_folders(output, kind):
        target = new / kind / queue.topic / queue.name
        # Keep only queues whose messages have all expired. A queue that the rebuild has written (`target` exists) still
        # has messages in the log, so its old files are not kept.
        if target.exists() or not _has_expired(Path(queue.path), log_begin):
            continue
        DISK.create_folder(target)
        for _, file in offset_entries(queue.path):
            DISK.link(Path(file.path), target / file.name)
        count += 1
    return count


def expired_queue_ends(store: Path, log_begin: int) -> Iterator[tuple[Queue, tuple[int, int]]]:
    """Yield each expired queue, with the physical offset and the queue offset of its last entry.

    Raises StoreAccessError.
    """
    for queue in chain(
        expired_queues(store, log_begin), expired_queues(store, log_begin, BATCH_QUEUE_FOLDER)
    ):
        if queue.queue_id is not None:
            with closing(_reader(Path(queue.path))) as reader:
                last = reader.max_queue_offset() - 1
                place = reader.entry(last).physical_offset, last
            yield Queue(queue.topic, queue.queue_id), place


def expired_queues(
    store: Path, log_begin: int, kind: str = CONSUME_QUEUE_FOLDER
) -> Iterator[QueueFolder]:
    """Yield the folders of queues whose entries all have physical offsets before the beginning of the log.

    Raises StoreAccessError.
    """
    folders = _queue_folders(store, kind)
    return (queue for queue in folders if _has_expired(Path(queue.path), log_begin))


def _has_expired(folder: Path, log_begin: int) -> bool:
    """Return whether the queue has entries, and all their messages lie before the beginning of the log."""
    try:
        with closing(_reader(folder)) as queue:
            last = queue.max_queue_offset() - 1
            return last >= 0 and queue.entry(last).physical_offset < log_begin
    except StoreError:
        return False


def _reader(folder: Path) -> ConsumeQueueReader | BatchQueueReader:
    is_batch = folder.parent.parent.name == BATCH_QUEUE_FOLDER
    return (BatchQueueReader if is_batch else ConsumeQueueReader)(str(folder))


def _queue_folders(store: Path, kind: str = CONSUME_QUEUE_FOLDER) -> Iterator[QueueFolder]:
    return walk_queues(str(store / kind))
