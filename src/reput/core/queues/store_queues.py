"""Read all queues of a store, of all kinds. Readers stay open and notice changes."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from os import PathLike, fspath
from typing import Generic, TypeVar

from reput.base import Closing, StoreConfig
from reput.core.log.reader import CommitLogReader
from reput.core.queues.forms import FILES, QueueForm, QueuesOf, queue_forms
from reput.core.queues.kinds import (
    BATCH_QUEUE,
    CONSUME_QUEUE,
    EXTENSION,
    QueueKind,
    walk_queues,
    walk_queues_of,
    walk_topics,
)
from reput.core.queues.queue_index import QueueIndex, QueueReader
from reput.core.queues.reader import (
    BatchQueueReader,
    ConsumeQueueReader,
    ExtendedQueueReader,
    ExtensionFiles,
)
from reput.errors import MessageNotFoundError
from reput.format.consume_queue import ConsumeQueueEntry
from reput.format.file_names import is_folder_name
from reput.io import LOCAL, OpenFiles, Storage, Watched

# Number of readers that are kept for later calls.
_MOST_QUEUES = 1 << 12
_Reader = TypeVar("_Reader", ConsumeQueueReader, BatchQueueReader)


class QueueSetReader(Closing, Generic[_Reader]):
    """The queues below one folder of a store, as a QueueIndex. Not thread-safe.

    folder  the folder with <topic>/<queue id>
    """

    kind: QueueKind

    def __init__(self, store: str | PathLike[str], storage: Storage = LOCAL) -> None:
        self.folder, self._storage = os.path.join(fspath(store), self.kind.folder), storage
        self._open_files = OpenFiles(storage.open)
        self._queues: OrderedDict[tuple[str, int], _Reader] = OrderedDict()
        # List the topics again only when the folder has changed: a cluster may have tens of thousands of topics.
        self._topics = Watched(storage.watch(self.folder), self._list_topics, list[str]())

    def topics(self) -> list[str]:
        """Return the topics that have a folder, sorted. Raises StoreAccessError."""
        return list(self._topics.get())

    def _list_topics(self) -> list[str]:
        return [entry.name for entry in walk_topics(self.folder, self._storage)]

    def list(self, topic: str | None = None) -> list[tuple[str, int]]:
        """Return (topic, queue id) of every queue, or of the queues of a topic, sorted. Raises StoreAccessError."""
        if topic is None:
            folders = walk_queues(self.folder, self._storage)
        elif is_folder_name(topic):
            folders = walk_queues_of(self.folder, topic, self._storage)
        else:
            return []
        return sorted(
            (queue.topic, queue.queue_id) for queue in folders if queue.queue_id is not None
        )

    def queue(self, topic: str, queue_id: int) -> _Reader:
        """Return the reader of a queue with its current files (`findConsumeQueue`). Later callers share the reader.

        Raises StoreAccessError, and MessageNotFoundError for an unknown queue.
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
        """Close all files. Queues that are requested later are opened again."""
        self._queues.clear()
        self._open_files.close()


class ConsumeQueueSetReader(QueueSetReader[ConsumeQueueReader]):
    """The queues below `consumequeue/`, with tags codes from `consumequeue_ext/` if the store has it.

    In RocketMQ: consumeQueueTable.
    """

    kind = CONSUME_QUEUE

    def __init__(self, store: str | PathLike[str], storage: Storage = LOCAL) -> None:
        super().__init__(store, storage)
        extensions = os.path.join(fspath(store), EXTENSION.folder)
        self._extensions = None if storage.entry(extensions) is None else extensions

    def _open(self, folder: str, topic: str, queue_id: int) -> ConsumeQueueReader:
        if self._extensions is not None:
            extension = os.path.join(self._extensions, topic, str(queue_id))
            units = ExtensionFiles(extension, self._open_files, self._storage)
            return ExtendedQueueReader(folder, units, self._open_files, self._storage)
        return ConsumeQueueReader(folder, self._open_files, self._storage)


class BatchQueueSetReader(QueueSetReader[BatchQueueReader]):
    """The queues below `batchconsumequeue/`."""

    kind = BATCH_QUEUE

    def _open(self, folder: str, topic: str, queue_id: int) -> BatchQueueReader:
        return BatchQueueReader(folder, self._open_files, self._storage)


class _FileForm(QueueForm):
    """ConsumeQueue files, with extension files if the store has them."""

    name, title, has_all = FILES, "files", True

    def folder(self, store: str) -> str:
        return os.path.join(store, CONSUME_QUEUE.folder)

    def open(self, queues: QueuesOf) -> QueueIndex:
        return ConsumeQueueSetReader(queues.store, queues.storage)

    def expired_files(self, store: str, log_begin: int) -> Iterator[str]:
        with ConsumeQueueSetReader(store) as index:
            for name in index.list():
                queue = index.queue(*name)
                yield from queue.files_before(log_begin)
                if isinstance(queue, ExtendedQueueReader):
                    yield from queue.unit_files_before(log_begin)


class _BatchForm(QueueForm):
    """Batch queues (5.x). They have the messages of some topics."""

    name, title = "batch", "batch queues"
    signs = (BATCH_QUEUE.folder + "/",)

    def open(self, queues: QueuesOf) -> QueueIndex:
        return BatchQueueSetReader(queues.store, queues.storage)

    def expired_files(self, store: str, log_begin: int) -> Iterator[str]:
        with BatchQueueSetReader(store) as index:
            for name in index.list():
                yield from index.queue(*name).files_before(log_begin)

    def _end_of(self, entry: ConsumeQueueEntry) -> int:
        # Like a broker, state where the newest record begins, because its size is not that of the entry's batch.
        return entry.physical_offset


FILE_FORM, BATCH_FORM = _FileForm(), _BatchForm()


def open_queues(
    store: str | PathLike[str],
    storage: Storage = LOCAL,
    open_log: Callable[[], CommitLogReader] | None = None,
    config: StoreConfig | None = None,
) -> QueueIndex:
    """Return the queues of the store in a folder, in all forms that it has.

    Args:
        store: folder with the queues.
        storage: storage of the store.
        open_log: opens the log of the queues; by default the store's own log.
        config: the broker's settings; by default the settings of a new broker. Only queues in RocksDB need them, for
            the delays of the levels of scheduled messages. If a level has messages in the database, its newest message
            shows the delay, and the setting is not used.

    Raises:
        StoreAccessError: a file cannot be read.
    """
    queues = QueuesOf.of(fspath(store), storage)
    queues = replace(queues, open_log=open_log or queues.open_log, config=config or queues.config)
    files, forms = FILE_FORM.open(queues), queue_forms(queues.store, storage)
    parts = [form.open(queues) for form in forms]
    # With rocksdbCQDoubleWriteEnable, a store with a database also has ConsumeQueue files. A broker prefers them.
    if not any(form.has_all for form in forms) or files.topics():
        parts = [files, *parts]
    return parts[0] if len(parts) == 1 else JoinedQueues(parts)


class JoinedQueues:
    """Several indexes of queues as one QueueIndex. If two indexes have the same queue, the first one wins.

    folder  folder of the first index
    """

    def __init__(self, parts: Sequence[QueueIndex]) -> None:
        self._parts = parts
        self.folder = parts[0].folder

    def _indexes(self) -> Sequence[QueueIndex]:
        return self._parts

    def topics(self) -> list[str]:
        """Return the topics that have a queue, sorted. Raises StoreAccessError."""
        return sorted({topic for part in self._indexes() for topic in part.topics()})

    def list(self, topic: str | None = None) -> list[tuple[str, int]]:
        """Return (topic, queue id) of every queue, or of the queues of a topic, sorted. Raises StoreAccessError."""
        return sorted({queue for part in self._indexes() for queue in part.list(topic)})

    def queue(self, topic: str, queue_id: int) -> QueueReader:
        """Return one queue. Raises StoreAccessError, and MessageNotFoundError for an unknown queue."""
        for part in self._parts[:-1]:
            try:
                return part.queue(topic, queue_id)
            except MessageNotFoundError:
                continue
        return self._parts[-1].queue(topic, queue_id)

    def close(self) -> None:
        """Close all files. Queues that are requested later are opened again."""
        for part in self._parts:
            part.close()
