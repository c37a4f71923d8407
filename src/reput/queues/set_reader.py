"""All ConsumeQueues of a store, the reading side: readers are kept, and notice what changes."""

from __future__ import annotations

import os
from collections import OrderedDict
from os import PathLike, fspath
from typing import Generic, Self, TypeVar

from reput.errors import MessageNotFoundError
from reput.files.open_files import OpenFiles
from reput.files.storage import LOCAL, Storage
from reput.format.file_names import (
    BATCH_QUEUE_FOLDER,
    CONSUME_QUEUE_FOLDER,
    EXTENSION_FOLDER,
    is_folder_name,
)
from reput.queues.batch_reader import BatchQueueReader
from reput.queues.extended_reader import ExtendedQueueReader, ExtensionFiles
from reput.queues.reader import ConsumeQueueReader

_MOST_QUEUES = 1 << 12
_Reader = TypeVar("_Reader", ConsumeQueueReader, BatchQueueReader)


class QueueSetReader(Generic[_Reader]):
    """The queues below one folder of a store; a QueueIndex. Not for use from several threads at once.

    folder  <topic>/<queue id> are below it
    """

    _name: str

    def __init__(self, store: str | PathLike[str], storage: Storage = LOCAL) -> None:
        self.folder, self._storage = os.path.join(fspath(store), self._name), storage
        self._open_files = OpenFiles(storage.open)
        self._queues: OrderedDict[tuple[str, int], _Reader] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def topics(self) -> list[str]:
        """Topics that have a folder, sorted. Raises StoreAccessError."""
        return sorted(entry.name for entry in self._storage.list(self.folder) if entry.is_dir())

    def list(self) -> list[tuple[str, int]]:
        """(topic, queue id) of every queue, sorted. Raises StoreAccessError."""
        return sorted(
            (topic, int(entry.name))
            for topic in self.topics()
            for entry in self._storage.list(os.path.join(self.folder, topic))
            if entry.name.isascii() and entry.name.isdigit() and entry.is_dir()
        )

    def queue(self, topic: str, queue_id: int) -> _Reader:
        """The reader of a queue, as its files are now; it is the same one for the next who asks.

        Raises MessageNotFoundError where there is no such queue, StoreAccessError.
        """
        reader = self._queues.get((topic, queue_id))
        if reader is not None and reader.refresh():
            self._queues.move_to_end((topic, queue_id))
            return reader
        folder = os.path.join(self.folder, topic, str(queue_id))
        if not is_folder_name(topic) or queue_id < 0 or self._storage.entry(folder) is None:
            self._queues.pop((topic, queue_id), None)
            raise MessageNotFoundError(f"{self.folder}: no queue {queue_id} of topic {topic!r}")
        if reader is None:
            reader = self._queues[topic, queue_id] = self._open(folder, topic, queue_id)
            if len(self._queues) > _MOST_QUEUES:
                self._queues.popitem(last=False)
        return reader

    def _open(self, folder: str, topic: str, queue_id: int) -> _Reader:
        raise NotImplementedError

    def close(self) -> None:
        """Close all files. A queue that is asked for afterwards is opened again."""
        self._queues.clear()
        self._open_files.close()


class ConsumeQueueSetReader(QueueSetReader[ConsumeQueueReader]):
    """The queues below `consumequeue/`, with the tags codes of `consumequeue_ext/` where a store has that."""

    _name = CONSUME_QUEUE_FOLDER

    def __init__(self, store: str | PathLike[str], storage: Storage = LOCAL) -> None:
        super().__init__(store, storage)
        extensions = os.path.join(fspath(store), EXTENSION_FOLDER)
        self._extensions = None if storage.entry(extensions) is None else extensions

    def _open(self, folder: str, topic: str, queue_id: int) -> ConsumeQueueReader:
        if self._extensions is not None:
            extension = os.path.join(self._extensions, topic, str(queue_id))
            units = ExtensionFiles(extension, self._open_files, self._storage)
            return ExtendedQueueReader(folder, units, self._open_files, self._storage)
        return ConsumeQueueReader(folder, self._open_files, self._storage)


class BatchQueueSetReader(QueueSetReader[BatchQueueReader]):
    """The queues below `batchconsumequeue/`."""

    _name = BATCH_QUEUE_FOLDER

    def _open(self, folder: str, topic: str, queue_id: int) -> BatchQueueReader:
        return BatchQueueReader(folder, self._open_files, self._storage)
