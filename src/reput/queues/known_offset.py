"""The greatest physical offset that the queues of a store know: a 5.x broker begins its recovery with it.

Mirrors `ConsumeQueueStoreInterface.getMaxPhyOffsetInConsumeQueue` (tag rocketmq-all-5.3.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from reput.errors import FormatError, MessageNotFoundError
from reput.files.storage import LOCAL
from reput.format.consume_queue import ConsumeQueueEntry
from reput.format.file_names import CONSUME_QUEUE_FOLDER
from reput.queues.queue_index import QueueIndex
from reput.queues.rocksdb_database import RocksDatabase, is_database
from reput.queues.set_reader import BatchQueueSetReader, ConsumeQueueSetReader


class KnownOffset(NamedTuple):
    """The offset, and whether the queues are in RocksDB.

    A ConsumeQueue and RocksDB know the end of their newest record, a batch queue its beginning. -1 without queues in
    files, 0 for a database without entries.
    """

    physical_offset: int
    in_rocksdb: bool = False


def known_offset(store: str | PathLike[str]) -> KnownOffset:
    """What the queues of a store know. An end that cannot be read counts as none.

    Raises StoreAccessError, and for queues in RocksDB FormatError and MissingExtraError.
    """
    folder = Path(store) / CONSUME_QUEUE_FOLDER
    if is_database(str(folder), LOCAL):
        with closing(RocksDatabase(str(folder))) as database:
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
