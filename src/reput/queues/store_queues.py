"""The queues of a store, in whatever files it keeps them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from os import PathLike, fspath

from reput.errors import MessageNotFoundError
from reput.files.storage import LOCAL, Storage
from reput.format.file_names import BATCH_QUEUE_FOLDER
from reput.queues.queue_index import QueueIndex, QueueReader
from reput.queues.set_reader import BatchQueueSetReader, ConsumeQueueSetReader


def open_queues(store: str | PathLike[str], storage: Storage = LOCAL) -> QueueIndex:
    """The queues of the store in a folder: ConsumeQueues, and batch queues where it has their folder.

    Raises StoreAccessError.
    """
    batches = storage.entry(os.path.join(fspath(store), BATCH_QUEUE_FOLDER))
    if batches is None or not batches.is_dir():
        return ConsumeQueueSetReader(store, storage)
    return JoinedQueues(
        (ConsumeQueueSetReader(store, storage), BatchQueueSetReader(store, storage))
    )


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
