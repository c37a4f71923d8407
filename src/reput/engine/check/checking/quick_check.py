"""Run the quick check: headers, ends and samples. It takes about as long as a command takes to start.

In each queue, of whatever kind, the last entry must lead to its message. Samples from the whole log show whether
queues, first files of queues, or IndexFiles are missing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from reput.base import Finding, Kind
from reput.core import (
    BatchQueueSetReader,
    CommitLogFile,
    CommitLogReader,
    ConsumeQueueReader,
    IndexFileReader,
    IndexFileSetReader,
    Numbering,
    OffsetRange,
    Queue,
    QueueIndex,
    QueueReader,
    RocksDatabase,
    StoreLog,
    open_queues,
    read_keyed_record,
)
from reput.core.index.reader import UNCOUNTED_ITEMS
from reput.core.index.trust import spot_check
from reput.core.log.queued_record import own_place
from reput.core.log.samples import sampled_records
from reput.engine.check.checking.checked_store import CheckedStore
from reput.engine.check.checking.next_start import absent, next_start, of_index_file
from reput.errors import (
    FormatError,
    MessageNotFoundError,
    MissingExtraError,
    ReputError,
    StoreError,
    StoreNotFoundError,
    raise_if_refused,
)
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
from reput.format.index_file import IndexHeader
from reput.format.properties import LMQ_PREFIX
from reput.format.rocksdb_queue import QueueEnd, decode_value, entry_key, queue_prefix
from reput.io import FileReader

# Each sample reads one record, so this bounds the time for a log of any size.
_SAMPLES = 128


class _Items(NamedTuple):
    total: int


class _IndexEnds(NamedTuple):
    """The header of an IndexFile, in the form of `next_start.SeenIndexFile`."""

    path: str
    header: IndexHeader
    items: int
    last: int
    spans: dict[int, _Items]

    @classmethod
    def of(cls, store: CheckedStore, file: IndexFileReader, last: int) -> _IndexEnds:
        """Return an IndexFile's header, and the number of its items that a starting broker does not index again.

        After a crash, a broker indexes messages again from the first log file that its recovery checks.
        """
        starts = [each.start for each in store.files]
        place = starts.index(store.checked) if store.checked in starts else 0
        before = bisect_left(range(1, last + 1), store.checked, key=file.offset)
        newest = file.offset(last) if last > 0 else -1
        spans = {place - 1: _Items(before)} if before and place else {}
        return cls(file.path, file.header(), max(last, 0), newest, spans)


class _Last(NamedTuple):
    """The last entry of a queue.

    `position` is the entry's byte offset, counted over all files of the queue. It is None in a database.
    """

    queue: Queue
    folder: str
    number: int
    entry: ConsumeQueueEntry
    position: int | None = None


def last_entries(store: CheckedStore, log: CommitLogReader) -> Iterator[Finding]:
    """Check the last entry of each queue. Raises StoreAccessError."""
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
        raise_if_refused(error)
        if not store.is_live:
            yield Finding(Kind.FOREIGN_QUEUE_ENTRY, reader.folder, f"its last entry: {error}")
        return
    has_place = reader.kind.numbering is Numbering.PLACE
    position = number * reader.kind.entry_bytes if has_place else None
    yield from _compared(store, log, _Last(queue, reader.folder, number, entry, position))


def _compared(store: CheckedStore, log: CommitLogReader, last: _Last) -> Iterator[Finding]:
    queue, folder, number, entry, position = last
    at = entry.physical_offset
    # The message has expired, so it cannot be compared. A queue keeps its last entry nevertheless.
    if at < store.begin:
        return
    try:
        message = log.get(at)
    except MessageNotFoundError:
        if at < store.begin_now():  # The message has expired since the check began.
            return
        detail = f"its last entry, {number}, leads to {at}, but the log has no message there"
        yield Finding(Kind.FOREIGN_QUEUE_ENTRY, folder, detail, None, at)
        return
    except ReputError as error:
        raise_if_refused(error)
        if not store.is_live:
            yield Finding(Kind.FOREIGN_QUEUE_ENTRY, folder, f"its last entry: {error}")
        return
    is_own = (message.topic, message.queue_id) == queue or _may_be_of_others(store, queue)
    if not is_own or message.size_bytes != entry.size:
        detail = f"its last entry, {number}, leads to another message at {at}"
        yield Finding(Kind.FOREIGN_QUEUE_ENTRY, folder, detail, position, at)


def _may_be_of_others(store: CheckedStore, queue: Queue) -> bool:
    """Return whether entries of the queue may lead to messages that name another queue, as in a light queue (LMQ)."""
    return store.config.enable_multi_dispatch or queue.topic.startswith(LMQ_PREFIX)


def _of_database(store: CheckedStore, log: CommitLogReader, folder: str) -> Iterator[Finding]:
    """Check the last entry of each queue in a RocksDB database.

    The database states the end of each queue. Like a broker, the check ignores entries after this end.
    """
    try:
        with closing(RocksDatabase(folder)) as database:
            for end in database.ends():
                yield from _of_end(store, log, database, end)
    except (StoreError, MissingExtraError) as error:
        raise_if_refused(error)
        yield Finding(Kind.QUEUE_FILE_SIZE, folder, f"cannot be read: {error}")


def _of_end(
    store: CheckedStore, log: CommitLogReader, database: RocksDatabase, end: QueueEnd
) -> Iterator[Finding]:
    # The message has expired, and compaction may have dropped its entry.
    if end.physical_offset < store.begin:
        return
    folder = f"{database.folder}/{end.topic}/{end.queue_id}"
    value = database.get(entry_key(queue_prefix(end.topic, end.queue_id), end.queue_offset))
    found = None if value is None else decode_value(value)
    if found is None or found[0].physical_offset != end.physical_offset:
        if end.physical_offset < store.begin_now():
            return
        detail = f"ends with queue offset {end.queue_offset} at {end.physical_offset}, but it has no such entry"
        yield Finding(Kind.MISSING_QUEUE_ENTRY, folder, detail, None, end.physical_offset)
        return
    queue = Queue(end.topic, end.queue_id)
    yield from _compared(store, log, _Last(queue, folder, end.queue_offset, found[0]))


def quick_findings(store: CheckedStore) -> Iterator[Finding]:
    """Check the first record of each log file, the last entry of each queue and samples of each IndexFile.

    Raises StoreAccessError.
    """
    for file in store.files[: store.last_file + 1]:
        if file.start >= store.end and _is_new(store, file):
            break
        try:
            yield from _first_record(file)
        except StoreNotFoundError:
            if not store.is_live:  # In a live store, the error means that the file has expired.
                raise
    with closing(CommitLogReader(StoreLog(store.path))) as log:
        yield from last_entries(store, log)
        yield from missing_indexes(store, log)
        tables: list[_IndexEnds] = []
        if store.knows_index_sizes:
            yield from _index(store, log, tables)
    yield from next_start(store, tables)


def missing_indexes(store: CheckedStore, log: CommitLogReader) -> Iterator[Finding]:
    """Yield missing queues, missing first files of queues, and missing indexes. Raises StoreAccessError."""
    try:
        with closing(open_queues(store.path, config=store.config)) as index:
            queues = set(index.list())
            known_end = store.facts.known_offset.physical_offset if queues else store.end
            yield from _missing_queues(store, log, index, queues, known_end)
    # `last_entries` has reported the error.
    except (FormatError, MissingExtraError):
        return


def _missing_queues(
    store: CheckedStore,
    log: CommitLogReader,
    index: QueueIndex,
    queues: Collection[tuple[str, int]],
    known_end: int,
) -> Iterator[Finding]:
    seen: list[tuple[Queue, int, int, int]] = []
    firsts: dict[Queue, int] = {}
    for record in sampled_records(log, OffsetRange(store.begin, store.end), _SAMPLES):
        place = own_place(record)
        at = record.physical_offset
        # Skip messages that lie in the log after the newest message that has a queue entry: they may not be dispatched
        # yet, which is not damage.
        if place is None or at > known_end or at >= store.end:
            continue
        queue, number = Queue(place[0], place[1]), place[2]
        seen.append((queue, number, at, len(read_keyed_record(record).keys)))
        if tuple(queue) in queues and queue not in firsts:
            firsts[queue] = index.queue(*queue).min_queue_offset(0)
    without: dict[Queue, tuple[int, int]] = {}
    cut: dict[Queue, tuple[int, int]] = {}
    keys, begin = 0, store.begin_now()
    for queue, number, at, its_keys in seen:
        if at < begin:  # Messages that expired meanwhile need no entry.
            continue
        keys += its_keys
        if queue not in firsts:
            count, first = without.get(queue, (0, at))
            without[queue] = count + 1, first
        elif number < firsts[queue]:
            count, first = cut.get(queue, (0, at))
            cut[queue] = count + 1, first
    for finding in absent(store, without, 0 if store.index else keys, bool(queues)):
        yield replace(finding, cost=_COSTS[finding.kind])
    for queue, (count, first) in sorted(cut.items()):
        folder = index.queue(*queue).folder
        detail = f"begins with entry {firsts[queue]}, but the log has earlier messages of the queue"
        yield Finding(
            Kind.MISSING_QUEUE_ENTRY, folder, detail, physical_offset=first, count=count,
            cost="messages before it cannot be consumed",
            at_next_start="does not notice it; the entries stay missing",
        )  # fmt: skip


_COSTS = {
    Kind.QUEUES_DELETED: "no message can be consumed",
    Kind.MISSING_QUEUE: "no message of it can be consumed",
    Kind.INDEX_DELETED: "no message can be found by key",
}


def _is_new(store: CheckedStore, file: CommitLogFile) -> bool:
    """Return whether a log file may have no record because it is new.

    Brokers create later files in advance. The first file of a log is new only if the checkpoint has no time of a
    message. Otherwise its records were lost.
    """
    was_written = store.facts.checkpoint.physic_msg_timestamp > 0
    return store.is_live or file.start > store.begin or not was_written


def _first_record(file: CommitLogFile) -> Iterator[Finding]:
    with FileReader(file.path) as reader:
        head = reader.read(file.gap, min(MIN_RECORD_BYTES, max(file.size - file.gap, 0)))
    magic = read_size_and_magic(head, 0)[1] if len(head) >= BLANK_BYTES else None
    if magic == BLANK_MAGIC:
        return
    is_message = magic in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2) and len(head) == MIN_RECORD_BYTES
    if not is_message or read_size_and_physical_offset(head, 0)[1] != file.start + file.gap:
        yield file.lost(
            file.start, file.start, "the file does not begin with a record of this offset"
        )


def _index(
    store: CheckedStore, log: CommitLogReader, tables: list[_IndexEnds]
) -> Iterator[Finding]:
    """Check headers and samples of IndexFiles. Append each header to `tables`."""
    config = store.config
    files = IndexFileSetReader(store.path / INDEX_FOLDER, config.hash_slots, config.index_items)
    with closing(files):
        yield from files.problems
        current = files.current()
        for file in current:
            last = file.next_item - 1
            tables.append(_IndexEnds.of(store, file, last))
            # A broker fills the slot of one item before the header counts this item. A writer of Reput fills the
            # slots of many items before the header counts these items.
            uncounted = UNCOUNTED_ITEMS if store.is_live and file is current[-1] else 1
            if last <= 0 and file.used_slots() > uncounted:
                detail = (
                    "its header counts no item, but its slots lead to items: the header is lost"
                )
                at_start = of_index_file(store, tables[-1])
                yield Finding(Kind.INDEX_HEADER, file.path, detail, 0, at_next_start=at_start)
                continue
            verdict = spot_check(file, log, last, None, len(current))
            if verdict.problem:
                at_start = of_index_file(store, tables[-1])
                yield Finding(Kind.INDEX_HEADER, file.path, verdict.problem, at_next_start=at_start)
            elif last and not store.is_live and file.offset(last) >= store.end:
                detail = f"leads to offset {file.offset(last)}, but the log ends at {store.end}"
                yield Finding(Kind.INDEX_AHEAD_OF_LOG, file.path, detail)
