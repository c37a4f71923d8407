"""Read queues in RocksDB (`RocksDBConsumeQueueStore`, tag rocketmq-all-5.3.3).

Reading writes nothing into the store's folder and takes no lock: the store may be stopped, killed or in use. Some
queue offsets have no entry, and that is normal: prepared messages in light queues have no entry, and an inner batch has
only one entry for all its queue offsets. A broker bisects over such holes and may return a wrong minimum queue offset.
This reader does not.

A broker keeps new entries in memory, without a write-ahead log (`AbstractRocksDBStorage`). They reach the disk when the
broker writes a whole table, or stops. The reader dispatches missing entries again from the CommitLog, as a broker does
at its start.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from operator import itemgetter

from reput import core
from reput.core import CommitLogReader, Numbering, QueueKind, QueueReader, ScanMode
from reput.engine import compare
from reput.engine.five import rocksdb_database
from reput.engine.five.rocksdb_database import RocksDatabase
from reput.errors import MessageNotFoundError, StoreError, UsageError
from reput.format.commit_log import BLANK_BYTES
from reput.format.consume_queue import ENTRY_BYTES, ConsumeQueueEntry, encode_entry
from reput.format.file_names import CONSUME_QUEUE_FOLDER
from reput.format.properties import SCHEDULE_TOPIC
from reput.format.rocksdb_queue import (
    VALUE,
    VALUE_BYTES,
    decode_value,
    entry_key,
    queue_offset_of,
    queue_prefix,
)
from reput.io import Storage

_BULK_ENTRIES = 1 << 12
_LAST_OFFSET = (1 << 63) - 1
# Number of delay levels that are examined, and longest plausible delay. The tags code of a delayed message is its due
# time. If this gives no plausible delay, the code is the hash of a tag.
_MOST_LEVELS, _LONGEST_DELAY_MS = 1 << 6, 1 << 40
_COLUMNS = ("physical_offset", "size", "tags_code", "store_timestamp")
_QUEUE_IN_ROCKSDB = QueueKind(
    "RocksDB", CONSUME_QUEUE_FOLDER, VALUE_BYTES, VALUE.columns, Numbering.KEY, "", lambda config: 0,
)  # fmt: skip
NumberedEntry = tuple[int, ConsumeQueueEntry, int]
"""Queue offset, entry, and store timestamp (ms)."""


class RocksQueues:
    """The queues of a store in its database, as a QueueIndex. The first request opens the database.

    folder  the folder consumequeue/
    """

    def __init__(
        self,
        folder: str,
        storage: Storage,
        open_log: Callable[[], CommitLogReader],
        delays_ms: Sequence[int],
    ) -> None:
        """Prepare to read the queues. The database is not opened yet.

        `delays_ms` has the delay of each delay level, and is used for levels without a message in the database. For the
        other levels, the delay is computed from the level's newest message: due time minus store time.
        """
        self.folder, self._storage, self._open_log = folder, storage, open_log
        self._delays_ms = delays_ms
        self._opened: tuple[RocksDatabase, UndispatchedEntries, CommitLogReader] | None = None
        self._most_undispatched = rocksdb_database.MOST_UNDISPATCHED

    def topics(self) -> list[str]:
        """Return the topics that have a queue, sorted. Raises StoreAccessError, FormatError, UsageError."""
        return sorted({topic for topic, _ in self.list()})

    def list(self, topic: str | None = None) -> list[tuple[str, int]]:
        """Return (topic, queue id) of every queue, or of the queues of a topic, sorted.

        Raises the errors of `topics`.
        """
        database, newest = self._parts()
        every = {(end.topic, end.queue_id) for end in database.ends()} | newest.queues()
        return sorted(name for name in every if topic in (None, name[0]))

    def queue(self, topic: str, queue_id: int) -> QueueReader:
        """Return one queue. Raises MessageNotFoundError for an unknown queue, and the errors of `topics`."""
        # The key of an entry can contain only queue ids in this range.
        if 0 <= queue_id < 1 << 31:
            reader = RocksQueueReader(self.folder, topic, queue_id, *self._parts())
            if reader.max_queue_offset() > 0:
                return reader
        raise MessageNotFoundError(f"{self.folder}: no queue {queue_id} of topic {topic!r}")

    def close(self) -> None:
        """Close the database. Later calls open it again."""
        if self._opened is not None:
            self._opened[0].close()
            self._opened[2].close()
            self._opened = None

    def _parts(self) -> tuple[RocksDatabase, UndispatchedEntries]:
        if self._opened is not None:
            self._refresh(*self._opened)
        if self._opened is None:
            if not self._storage.is_local:
                raise UsageError(
                    f"{self.folder}: queues in RocksDB need a local store; copy the store"
                )
            database, log = RocksDatabase(self.folder), self._open_log()
            delays = _delays(database, self._delays_ms)
            newest = UndispatchedEntries(log, database.checkpoint(), delays)
            self._opened = database, newest, log
        return self._opened[0], self._opened[1]

    @property
    def held(self) -> int:
        """Return the number of entries in memory that the database did not have when it was opened."""
        return 0 if self._opened is None else self._opened[1].count

    def _refresh(
        self, database: RocksDatabase, newest: UndispatchedEntries, log: CommitLogReader
    ) -> None:
        """Open the database again if it lacked many entries, which therefore had to be read from the log into memory.

        The broker may have written these entries to the database by now. The old database is closed when its last
        reader is closed.
        """
        if newest.count < self._most_undispatched:
            return
        self._most_undispatched = newest.count + rocksdb_database.MOST_UNDISPATCHED
        # While another process changes the files, the database cannot be opened. Then a later call tries again.
        with suppress(StoreError):
            later = RocksDatabase(self.folder)
            start = later.checkpoint()
            if start <= database.checkpoint():
                # The checkpoint is the physical offset up to which a database has entries. The checkpoint has not
                # advanced, so the reopened database has no new entries. Keep the database that is already open.
                later.close()
                return
            delays = _delays(later, self._delays_ms)
            self._opened = later, UndispatchedEntries(log, start, delays), log
            self._most_undispatched = rocksdb_database.MOST_UNDISPATCHED


class RocksQueueReader:
    """One queue, as a QueueReader: its entries in the database, then newer entries that are derived from the log.

    Attributes:
        queue: topic and queue id
    """

    kind = _QUEUE_IN_ROCKSDB

    def __init__(
        self,
        folder: str,
        topic: str,
        queue_id: int,
        database: RocksDatabase,
        newest: UndispatchedEntries,
    ) -> None:
        self.folder = f"{folder}/{topic}/{queue_id}"
        self._database, self._newest, self.queue = database, newest, (topic, queue_id)
        self._prefix = queue_prefix(topic, queue_id)

    def entry(self, queue_offset: int) -> ConsumeQueueEntry:
        """Return the entry of a queue offset. Raises MessageNotFoundError, FormatError."""
        entry = next(self._numbered(queue_offset), None) if queue_offset >= 0 else None
        if entry is None or entry[0] != queue_offset:
            raise MessageNotFoundError(
                f"{self.folder}: queue offset {queue_offset}: no entry there"
            )
        return entry[1]

    def entries(self, queue_offset: int, stop: int) -> Iterator[ConsumeQueueEntry]:
        """See QueueReader."""
        return (entry for _, entry in self.numbered(queue_offset, stop))

    def numbered(self, queue_offset: int, stop: int) -> Iterator[tuple[int, ConsumeQueueEntry]]:
        """See QueueReader."""
        for number, entry, _ in self._numbered(max(queue_offset, 0)):
            if number >= stop:
                return
            yield number, entry

    def after(self, queue_offset: int, entry: ConsumeQueueEntry) -> int:
        return queue_offset + 1

    def span(self, queue_offset: int) -> tuple[int, int]:
        return queue_offset, queue_offset + 1

    def entry_bytes(self, queue_offset: int, stop: int) -> Iterator[bytes]:
        """See QueueReader. Each value begins with the bytes of a ConsumeQueue entry."""
        first, last, last_in_database = max(queue_offset, 0), max(stop, 0), self._last_stored()
        keys = (first, max(first, min(last, last_in_database + 1)))
        values = self._database.values(*(entry_key(self._prefix, key) for key in keys))
        while block := list(islice(values, _BULK_ENTRIES)):
            yield _entries_in(block)
        newest = self._newest.entries(*self.queue, max(first, last_in_database + 1))
        some = [encode_entry(entry) for number, entry, _ in newest if number < last]
        if some:
            yield b"".join(some)

    def max_queue_offset(self) -> int:
        """Return the queue offset after the last entry; 0 for a queue without entries."""
        newest = self._newest.entries(*self.queue, 0)
        last = self._last_stored()
        return max(newest[-1][0] + 1 if newest else 0, last + 1)

    def min_queue_offset(self, min_physical_offset: int = 0) -> int:
        """Return the queue offset of the first entry at or after a physical offset, or else `max_queue_offset()`."""
        return self._first(lambda entry: entry[1].physical_offset >= min_physical_offset)

    def _first(self, is_after: Callable[[NumberedEntry], bool]) -> int:
        """Return the queue offset of the first entry for which `is_after` is true, or else `max_queue_offset()`."""
        first = next(self._numbered(0), None)
        stop = self.max_queue_offset()
        if first is None or is_after(first):
            return stop if first is None else first[0]
        low, high = first[0] + 1, stop
        while low < high:
            middle = (low + high) // 2
            entry = next(self._numbered(middle), None)
            if entry is None or is_after(entry):
                high = middle
            else:
                low = entry[0] + 1
        entry = next(self._numbered(low), None)
        return stop if entry is None else entry[0]

    def _numbered(self, queue_offset: int) -> Iterator[NumberedEntry]:
        """Yield entries from a queue offset on: first the database's, then the entries that it lacks."""
        last, last_in_database = queue_offset - 1, self._last_stored()
        for key, value in self._database.items(entry_key(self._prefix, queue_offset)):
            number, decoded = queue_offset_of(key, self._prefix), decode_value(value)
            if number is None or number > last_in_database:
                # The next queue begins here, or only invalid entries follow.
                break
            if decoded is not None and decoded[0].is_written:
                last = number
                yield number, *decoded
        yield from self._newest.entries(*self.queue, last + 1)

    def _last_stored(self) -> int:
        """Return the queue offset of the last entry in the database; -1 if there is none.

        A broker that cuts its log moves the end of a queue back, but leaves the later entries, which are then invalid.
        """
        end = self._database.end(*self.queue)
        if end is not None:
            return end.queue_offset
        # If the database does not state where the queue ends, its last entry is the one with the highest queue offset.
        item = self._database.item_before(entry_key(self._prefix, _LAST_OFFSET))
        number = None if item is None else queue_offset_of(item[0], self._prefix)
        return -1 if number is None else number


class UndispatchedEntries:
    """The entries that the database on disk lacks: the entries of the newest messages in the log. Not thread-safe.

    count  number of entries found; all of them are in memory
    """

    def __init__(self, log: CommitLogReader, start: int, delays_ms: tuple[int, ...]) -> None:
        """Dispatch from physical offset `start` on. `delays_ms` are the delays of the levels, level 1 first."""
        self._log, self._position, self._delays_ms = log, start, delays_ms
        self._queues: dict[tuple[str, int], list[NumberedEntry]] = {}
        self.count = 0

    def queues(self) -> set[tuple[str, int]]:
        """Return topic and queue id of the queues with undispatched entries. Raises StoreError."""
        self._follow()
        return set(self._queues)

    def entries(self, topic: str, queue_id: int, queue_offset: int) -> list[NumberedEntry]:
        """Return a queue's entries from a queue offset on, ascending. Raises StoreError."""
        self._follow()
        entries = self._queues.get((topic, queue_id), [])
        return entries[bisect_left(entries, queue_offset, key=itemgetter(0)) :]

    def _follow(self) -> None:
        """Dispatch the messages that were appended to the log since the last call."""
        self._log.refresh()
        # Messages that have expired need no entries.
        self._position = max(self._position, self._log.min_offset)
        while (file := self._log.file_at(self._position)) is not None:
            length = min(BLANK_BYTES, file.end - self._position)
            if not any(self._log.read(file, self._position, length)):
                # No record has been written at this position yet.
                return
            before = self._position
            self._scan(file.end)
            if self._position == before:
                # The next record is damaged or incomplete. A later call tries again.
                return

    def _scan(self, stop: int) -> None:
        file = self._log.file_at(self._position)
        assert file is not None
        scan = core.FileScan(
            file, self._position, stop, ScanMode.GROWING_READER,
            compare.rocksdb_rules(self._delays_ms), open_file=self._log.source.open,
        )  # fmt: skip
        for batch in scan.batches():
            for queue, rows, queue_offset in compare.dispatched_entries(batch):
                self.count += len(rows)
                columns = (queue_offset, *(rows[name] for name in _COLUMNS))
                self._add(queue, zip(*(c.tolist() for c in columns), strict=True))
        self._position = (
            file.end if scan.end.finished and not scan.end.unreadable else scan.end.position
        )

    def _add(self, queue: tuple[str, int], rows: object) -> None:
        entries = self._queues.setdefault(queue, [])
        for queue_offset, physical_offset, size, tags_code, timestamp in rows:  # type: ignore[attr-defined]
            entry = ConsumeQueueEntry(physical_offset, size, tags_code)
            # The message was dispatched again, for example after the log was cut. The new entry replaces the old ones
            # from its queue offset on.
            if entries and queue_offset <= entries[-1][0]:
                del entries[bisect_left(entries, queue_offset, key=itemgetter(0)) :]
            entries.append((queue_offset, entry, timestamp))


def _entries_in(values: Sequence[bytes]) -> bytes:
    """Return the ConsumeQueue entries in some values, joined.

    Each value begins with an entry. Values that do not have VALUE_BYTES bytes are ignored.
    """
    if any(len(value) != VALUE_BYTES for value in values):
        values = [value for value in values if len(value) == VALUE_BYTES]
    # Import NumPy here, because a query by key does not need it.
    import numpy as np

    rows = np.frombuffer(b"".join(values), np.uint8).reshape(-1, VALUE_BYTES)
    return rows[:, :ENTRY_BYTES].tobytes()


def _delays(database: RocksDatabase, otherwise: Sequence[int]) -> tuple[int, ...]:
    """Return each level's delay (ms), from level 1 on, according to the newest delayed message of the level.

    Levels without such a message have the delays in `otherwise`.
    """
    evident = {
        level: delay
        for level in range(_MOST_LEVELS)
        if (delay := _shown_delay(database, level)) is not None
    }
    delays: list[int] = []
    for level in range(max(len(otherwise), max(evident, default=-1) + 1)):
        usual = otherwise[min(level, len(otherwise) - 1)]
        delays.append(evident.get(level, usual))
    return tuple(delays)


def _shown_delay(database: RocksDatabase, level: int) -> int | None:
    prefix = queue_prefix(SCHEDULE_TOPIC, level)
    item = database.item_before(entry_key(prefix, _LAST_OFFSET))
    if item is None or queue_offset_of(item[0], prefix) is None:
        return None
    value = decode_value(item[1])
    # The entry of a delayed message has its due time in place of a tags code. The due time minus the store timestamp is
    # the delay.
    delay = -1 if value is None else value[0].tags_code - value[1]
    # If `delay` is not plausible, the tags code is not a due time, but the hash of a tag.
    return delay if 0 < delay <= _LONGEST_DELAY_MS else None
