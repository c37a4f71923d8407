"""The queues of a store, in whatever files it keeps them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from os import PathLike, fspath

from reput.config import StoreConfig
from reput.errors import MessageNotFoundError
from reput.files.storage import LOCAL, Storage
from reput.format.file_names import BATCH_QUEUE_FOLDER, CONSUME_QUEUE_FOLDER
from reput.log.reader import CommitLogReader
from reput.log.sources import StoreLog
from reput.queues.queue_index import QueueIndex, QueueReader
from reput.queues.rocksdb_database import is_database
from reput.queues.rocksdb_reader import RocksQueues
from reput.queues.set_reader import BatchQueueSetReader, ConsumeQueueSetReader


def open_queues(
    store: str | PathLike[str],
    storage: Storage = LOCAL,
    open_log: Callable[[], CommitLogReader] | None = None,
    config: StoreConfig | None = None,
) -> QueueIndex:
    """The queues of the store in a folder: ConsumeQueues, batch queues where it has their folder, or RocksDB.

    Args:
        store: has the queues.
        storage: of the store.
        open_log: opens the log that they are of; without it, it is the store's own.
        config: the broker's settings; its delay levels count for messages that RocksDB lacks, where no entry of the
            level shows its delay. A broker's defaults without it.

    Raises:
        StoreAccessError.
    """
    parts: list[QueueIndex] = [ConsumeQueueSetReader(store, storage)]
    batches = storage.entry(os.path.join(fspath(store), BATCH_QUEUE_FOLDER))
    if batches is not None and batches.is_dir():
        parts.append(BatchQueueSetReader(store, storage))
    folder = os.path.join(fspath(store), CONSUME_QUEUE_FOLDER)
    if is_database(folder, storage):
        rocks = RocksQueues(
            folder, storage, open_log or (lambda: CommitLogReader(StoreLog(store, storage))),
            (config or StoreConfig()).delay_table_ms(),
        )  # fmt: skip
        # With rocksdbCQDoubleWriteEnable the folder also has files.
        parts = [*parts, rocks] if parts[0].topics() else [*parts[1:], rocks]
    return parts[0] if len(parts) == 1 else JoinedQueues(parts)


class JoinedQueues:
    """Several indexes of queues as one; a QueueIndex. A queue that two of them have is the first one's.

    folder  of the first
    """

    def __init__(self, parts: Sequence[QueueIndex]) -> None:
        self._parts = parts
        self.folder = parts[0].folder

    def topics(self) -> list[str]:
        """Topics that have a queue, sorted. Raises StoreAccessError."""
        return sorted({topic for part in self._parts for topic in part.topics()})

    def list(self) -> list[tuple[str, int]]:
        """(topic, queue id) of every queue, sorted. Raises StoreAccessError."""
        return sorted({queue for part in self._parts for queue in part.list()})

    def queue(self, topic: str, queue_id: int) -> QueueReader:
        """One queue. Raises MessageNotFoundError where there is none, StoreAccessError."""
        for part in self._parts[:-1]:
            try:
                return part.queue(topic, queue_id)
            except MessageNotFoundError:
                continue
        return self._parts[-1].queue(topic, queue_id)

    def close(self) -> None:
        """Close all files. A queue that is asked for afterwards is opened again."""
        for part in self._parts:
            part.close()
