"""The quick check, in about the time that a command takes to start: headers, ends and samples.

The last entry of each queue must lead to a message of its own, in whatever files it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from reput.errors import (
    MessageNotFoundError,
    MissingExtraError,
    ReputError,
    StoreError,
    StoreNotFoundError,
)
from reput.files.reader import FileReader
from reput.findings import Finding, Kind
from reput.format.commit_log import (
    BLANK_BYTES,
    BLANK_MAGIC,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    MIN_RECORD_BYTES,
    read_size_and_magic,
    read_size_and_physical_offset,
)
from reput.format.consume_queue import ConsumeQueueEntry
from reput.format.file_names import CONSUME_QUEUE_FOLDER, INDEX_FOLDER
from reput.format.properties import LMQ_PREFIX
from reput.format.rocksdb_queue import QueueEnd, decode_value, entry_key, queue_prefix
from reput.index.set_reader import IndexFileSetReader
from reput.index.trust import spot_check
from reput.log.dispatch_batch import Queue
from reput.log.files import CommitLogFile
from reput.log.reader import CommitLogReader
from reput.log.sources import StoreLog
from reput.queues.kinds import Numbering
from reput.queues.queue_index import QueueReader
from reput.queues.reader import ConsumeQueueReader
from reput.queues.rocksdb_database import RocksDatabase
from reput.queues.store_queues import BatchQueueSetReader
from reput.verify.checking.checked_store import CheckedStore


class _Last(NamedTuple):
    """The last entry of a queue: its number, and where it lies in its files, None in a database."""

    queue: Queue
    folder: str
    number: int
    entry: ConsumeQueueEntry
    position: int | None = None


def last_entries(store: CheckedStore, log: CommitLogReader) -> Iterator[Finding]:
    """What the last entry of each queue shows. Raises StoreAccessError."""
    for queue, folder in sorted(store.queues.items()):
        with closing(ConsumeQueueReader(folder)) as reader:
            yield from _of_files(store, log, queue, reader)
    with closing(BatchQueueSetReader(store.path)) as index:
        for topic, queue_id in index.list():
            queue = Queue(topic, queue_id)
            yield from _of_files(store, log, queue, index.queue(*queue))
    if (database := store.facts.local_database(CONSUME_QUEUE_FOLDER)) is not None:
        yield from _of_database(store, log, database)


def _of_files(
    store: CheckedStore, log: CommitLogReader, queue: Queue, reader: QueueReader
) -> Iterator[Finding]:
    try:
        number = reader.max_queue_offset() - 1
        if number < 0:
            return
        entry = reader.entry(number)
    except ReputError as error:
        if not store.is_live:
            yield Finding(Kind.FOREIGN_QUEUE_ENTRY, reader.folder, f"its last entry: {error}")
        return
    has_place = reader.kind.numbering is Numbering.PLACE
    position = number * reader.kind.entry_bytes if has_place else None
    yield from _compared(store, log, _Last(queue, reader.folder, number, entry, position))


def _compared(store: CheckedStore, log: CommitLogReader, last: _Last) -> Iterator[Finding]:
    queue, folder, number, entry, position = last
    at = entry.physical_offset
    if at < store.begin:
        return
    try:
        message = log.get(at)
    except MessageNotFoundError:
        detail = f"its last entry, {number}, leads to {at}, where the log has no message"
        yield Finding(Kind.FOREIGN_QUEUE_ENTRY, folder, detail, None, at)
        return
    except ReputError as error:
        if not store.is_live:
            yield Finding(Kind.FOREIGN_QUEUE_ENTRY, folder, f"its last entry: {error}")
        return
    is_own = (message.topic, message.queue_id) == queue or _may_be_of_others(store, queue)
    if not is_own or message.size_bytes != entry.size:
        detail = f"its last entry, {number}, leads to another message at {at}"
        yield Finding(Kind.FOREIGN_QUEUE_ENTRY, folder, detail, position, at)


def _may_be_of_others(store: CheckedStore, queue: Queue) -> bool:
    """Whether messages of other queues may be in this one."""
    return store.config.enable_multi_dispatch or queue.topic.startswith(LMQ_PREFIX)


def _of_database(store: CheckedStore, log: CommitLogReader, folder: str) -> Iterator[Finding]:
    """The ends that a database states; what a broker has not written yet is no matter."""
    try:
        with closing(RocksDatabase(folder)) as database:
            for end in database.ends():
                yield from _of_end(store, log, database, end)
    except (StoreError, MissingExtraError) as error:
        yield Finding(Kind.QUEUE_FILE_SIZE, folder, f"cannot be read: {error}")


def _of_end(
    store: CheckedStore, log: CommitLogReader, database: RocksDatabase, end: QueueEnd
) -> Iterator[Finding]:
    if end.physical_offset < store.begin:  # a compaction drops entries that have expired
        return
    folder = f"{database.folder}/{end.topic}/{end.queue_id}"
    value = database.get(entry_key(queue_prefix(end.topic, end.queue_id), end.queue_offset))
    found = None if value is None else decode_value(value)
    if found is None or found[0].physical_offset != end.physical_offset:
        detail = f"ends with queue offset {end.queue_offset} at {end.physical_offset}, which has no such entry"
        yield Finding(Kind.MISSING_QUEUE_ENTRY, folder, detail, None, end.physical_offset)
        return
    queue = Queue(end.topic, end.queue_id)
    yield from _compared(store, log, _Last(queue, folder, end.queue_offset, found[0]))


def quick_findings(store: CheckedStore) -> Iterator[Finding]:
    """What the first record of each log file, the last entry of each queue and samples of each IndexFile show.

    Raises StoreAccessError.
    """
    for file in store.files[: store.last_file + 1]:
        try:
            yield from _first_record(file)
        except StoreNotFoundError:
            if not store.is_live:  # else it expired
                raise
    with closing(CommitLogReader(StoreLog(store.path))) as log:
        yield from last_entries(store, log)
        if store.knows_index_sizes:
            yield from _index(store, log)


def _first_record(file: CommitLogFile) -> Iterator[Finding]:
    with FileReader(file.path) as reader:
        head = reader.read(file.gap, min(MIN_RECORD_BYTES, max(file.size - file.gap, 0)))
    magic = read_size_and_magic(head, 0)[1] if len(head) >= BLANK_BYTES else None
    if magic == BLANK_MAGIC:
        return
    is_message = magic in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2) and len(head) == MIN_RECORD_BYTES
    if not is_message or read_size_and_physical_offset(head, 0)[1] != file.start + file.gap:
        yield file.lost(file.start, file.start, "the file does not begin with its first record")


def _index(store: CheckedStore, log: CommitLogReader) -> Iterator[Finding]:
    config = store.config
    files = IndexFileSetReader(store.path / INDEX_FOLDER, config.hash_slots, config.index_items)
    with closing(files):
        yield from files.problems
        current = files.current()
        for file in current:
            last = file.next_item - 1
            verdict = spot_check(file, log, last, None, len(current))
            if verdict.problem:
                yield Finding(Kind.INDEX_HEADER, file.path, verdict.problem)
            elif last and not store.is_live and file.offset(last) >= store.end:
                detail = f"leads to offset {file.offset(last)}, the log ends at {store.end}"
                yield Finding(Kind.INDEX_AHEAD_OF_LOG, file.path, detail)
