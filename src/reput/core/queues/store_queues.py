"""Read all queues of a store, of all kinds. Readers stay open and notice changes."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from os import PathLike, fspath
from typing import Generic, NamedTuple, TypeVar

from reput.base import Closing, StoreConfig
from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import StoreLog
from reput.core.queues.folders import walk_queues, walk_queues_of, walk_topics
from reput.core.queues.kinds import BATCH_QUEUE, CONSUME_QUEUE, EXTENSION, QueueKind
from reput.core.queues.queue_index import QueueIndex, QueueReader
from reput.core.queues.reader import (
    BatchQueueReader,
    ConsumeQueueReader,
    ExtendedQueueReader,
    ExtensionFiles,
)
from reput.core.queues.rocksdb_database import RocksDatabase, is_database, queue_database
from reput.core.queues.rocksdb_reader import RocksQueues
from reput.errors import FormatError, MessageNotFoundError
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
            found = walk_queues(self.folder, self._storage)
        elif is_folder_name(topic):
            found = walk_queues_of(self.folder, topic, self._storage)
        else:
            return []
        return sorted(
            (queue.topic, queue.queue_id) for queue in found if queue.queue_id is not None
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


def open_queues(
    store: str | PathLike[str],
    storage: Storage = LOCAL,
    open_log: Callable[[], CommitLogReader] | None = None,
    config: StoreConfig | None = None,
) -> QueueIndex:
    """Return the queues of the store in a folder: ConsumeQueues and batch queues in files, or RocksDB.

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
    parts: list[QueueIndex] = [ConsumeQueueSetReader(store, storage)]
    batches = storage.entry(os.path.join(fspath(store), BATCH_QUEUE.folder))
    if batches is not None and batches.is_dir():
        parts.append(BatchQueueSetReader(store, storage))
    folder = "" if storage.is_archive else queue_database(fspath(store), storage)
    if folder and is_database(folder, storage):
        rocks = RocksQueues(
            folder, storage, open_log or (lambda: CommitLogReader(StoreLog(store, storage))),
            (config or StoreConfig()).delay_table_ms(),
        )  # fmt: skip
        # With rocksdbCQDoubleWriteEnable, the store also has ConsumeQueue files. A broker prefers them.
        parts = [*parts, rocks] if parts[0].topics() else [*parts[1:], rocks]
    return parts[0] if len(parts) == 1 else JoinedQueues(parts)


class JoinedQueues:
    """Several indexes of queues as one QueueIndex. If two indexes have the same queue, the first one wins.

    folder  folder of the first index
    """

    def __init__(self, parts: Sequence[QueueIndex]) -> None:
        self._parts = parts
        self.folder = parts[0].folder

    def topics(self) -> list[str]:
        """Return the topics that have a queue, sorted. Raises StoreAccessError."""
        return sorted({topic for part in self._parts for topic in part.topics()})

    def list(self, topic: str | None = None) -> list[tuple[str, int]]:
        """Return (topic, queue id) of every queue, or of the queues of a topic, sorted. Raises StoreAccessError."""
        return sorted({queue for part in self._parts for queue in part.list(topic)})

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


class KnownOffset(NamedTuple):
    """The greatest physical offset in a store's queues, and whether these queues are in RocksDB.

    ConsumeQueues and RocksDB state where their newest record ends. Batch queues state where their newest record begins.
    The offset is -1 if the store has no queue files, and 0 for a database without entries.
    """

    physical_offset: int
    in_rocksdb: bool = False


def known_offset(store: str | PathLike[str]) -> KnownOffset:
    """Return the greatest physical offset in the queues of a store. The recovery of a 5.x broker uses it.

    Mirrors `ConsumeQueueStoreInterface.getMaxPhyOffsetInConsumeQueue` (tag rocketmq-all-5.3.3). Queues whose last
    entry cannot be read are ignored.

    Raises StoreAccessError, and for queues in RocksDB also FormatError and MissingExtraError.
    """
    folder = queue_database(fspath(store), LOCAL)
    if is_database(folder, LOCAL):
        with closing(RocksDatabase(folder)) as database:
            return KnownOffset(database.checkpoint(), True)
    ends = [-1]
    with ConsumeQueueSetReader(store) as queues, BatchQueueSetReader(store) as batches:
        ends += [entry.physical_offset + entry.size for entry in _last_entries(queues)]
        ends += [entry.physical_offset for entry in _last_entries(batches)]
    return KnownOffset(max(ends))


def _last_entries(queues: QueueIndex) -> Iterator[ConsumeQueueEntry]:
    for name in queues.list():
        queue = queues.queue(*name)
        with suppress(MessageNotFoundError, FormatError):
            yield queue.entry(queue.max_queue_offset() - 1)
