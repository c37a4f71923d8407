"""Write all queues of a writable store: in files, or in RocksDB.

`RocksQueueSetWriter` mirrors `RocksDBConsumeQueueStore.putMessagePosition` and `.truncateDirty`, and
`RocksDBConsumeQueueOffsetTable` (tag rocketmq-all-5.3.3). It writes all additions of a batch (entries, ends of
queues, and the offset up to which messages are dispatched) at once, without a write-ahead log. After a crash the
database is in the state after an earlier batch, and missing entries are dispatched again from the CommitLog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.base import StoreConfig
from reput.core.log.dispatch_batch import DispatchBatch, Queue
from reput.core.log.offset_range import OffsetRange, merged
from reput.core.queues import rocksdb_database
from reput.core.queues.kinds import BATCH_QUEUE, EXTENSION, queue_folder
from reput.core.queues.rocksdb_dispatch import (
    dispatched_entries,
    entry_columns,
    entry_keys,
    entry_values,
)
from reput.core.queues.rocksdb_writer import opened_to_write
from reput.core.queues.writer import (
    NONE_LOST,
    BatchQueueWriter,
    BatchSizeOf,
    ConsumeQueueWriter,
    ExtensionWriter,
    LostRanges,
    QueueWriter,
)
from reput.errors import FormatError, StoreAccessError, StoreError
from reput.format.commit_log import SYS_FLAG_COMMIT, SYS_FLAG_INNER_BATCH, SYS_FLAG_TRANSACTION_MASK
from reput.format.rocksdb_queue import (
    CHECKPOINT_KEY,
    OFFSETS_FAMILY,
    QueueEnd,
    decode_checkpoint,
    decode_end,
    decode_value,
    encode_checkpoint,
    encode_end,
    end_key,
    entry_key,
    queue_offset_of,
    queue_prefix,
)
from reput.io import Disk

_log = logging.getLogger("reput.dispatch")


@dataclass(frozen=True)
class BatchQueues:
    """The batch queues of a store (5.x).

    topics         topics with batch queues; queues of other topics are ConsumeQueues
    folder         the folder batchconsumequeue/
    queues         writers of the existing queues
    batch_size_of  function that reads a batch's number of messages from the log
    close          function that closes the log
    """

    topics: frozenset[str] = frozenset()
    folder: Path = Path()
    queues: Mapping[Queue, BatchQueueWriter] = field(default_factory=dict)
    batch_size_of: BatchSizeOf = lambda physical_offset: 1
    close: Callable[[], None] = lambda: None


class BatchEnd(NamedTuple):
    """The end of a batch queue: number of entries, next queue offset, physical offset of the last entry's record."""

    entries: int
    position: int
    max_physical_offset: int


class QueueSetWriter:
    """The common interface of the writers of a store's queues.

    try_again             called after each failed try of an append; takes the number of tries so far, and returns
                          whether to try again
    has_logics_timestamp  whether a broker writes the time of the newest entry to `checkpoint`
    """

    has_logics_timestamp = True

    def __init__(self) -> None:
        self.try_again: Callable[[int], bool] = lambda tries: False

    def append(self, batch: DispatchBatch) -> list[tuple[Queue, int]]:
        """Append a batch. Return each queue that has grown, with its new end. Raises StoreAccessError."""
        raise NotImplementedError

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the next queue offset of each queue."""
        raise NotImplementedError

    def _try(self, write: Callable[[], object], what: str) -> None:
        """Call `write`. After an error, try again as a broker does (`ConsumeQueue.putMessagePositionInfoWrapper`)."""
        tries = 1
        while True:
            try:
                write()
                return
            except StoreAccessError as error:
                _log.warning("append to %s failed, %d times now: %s", what, tries, error)
                if not self.try_again(tries):
                    raise
                tries += 1

    def positions(self) -> dict[Queue, tuple[int, int]]:
        """Return the end of each ConsumeQueue with entries: its next queue offset, and where its last message ends.

        A broker keeps the next queue offsets in `CommitLog.topicQueueTable`.
        """
        return {}

    def batch_ends(self) -> dict[Queue, BatchEnd]:
        """Return the end of each batch queue with entries."""
        return {}

    def add_lost(self, found: Iterable[OffsetRange]) -> None:
        """Remember damaged ranges of the log. They explain gaps in the queue offsets of later messages."""

    def lost_ranges(self) -> tuple[OffsetRange, ...]:
        """Return the damaged ranges in the dispatched part of the log."""
        return ()

    def refused_bytes(self) -> dict[Queue, int]:
        """Return, by queue, the total size of the messages whose entries were refused since the queue's last entry.

        A refused entry is not written. Queues without refused entries are not in the result.
        """
        return {}

    def sync(self, least_pages: int = 0) -> None:
        """Make entries durable in queues with at least this number of dirty pages. Raises StoreAccessError."""

    def check_in_place(self) -> None:
        """Check that files with new entries still have their names.

        Raises StoreFailedError, StoreAccessError.
        """
        raise NotImplementedError

    def disown(self) -> None:
        """Drop files inherited by a forked child, without writing to them."""

    def close(self, sync: bool) -> None:
        """Close the files. Raises StoreAccessError."""
        raise NotImplementedError


class ConsumeQueueSetWriter(QueueSetWriter):
    """A writer of queues in files. One thread appends, another may sync. The first append to a queue opens its files.

    lost  unreadable ranges in the dispatched part of the log, in order

    In RocketMQ: doFlush, recoverTopicQueueTable.
    """

    def __init__(
        self,
        folder: Path,
        config: StoreConfig,
        disk: Disk,
        queues: Mapping[Queue, ConsumeQueueWriter],
        batches: BatchQueues | None = None,
        extensions: Path | None = None,
        unit_ends: Mapping[Queue, int] | None = None,
    ) -> None:
        """Write the queues in `folder`.

        `extensions` is the folder consumequeue_ext/ if the store has one. `unit_ends` has, for each queue, the position
        in its consumequeue_ext/ files at which its last unit (CqExtUnit) ends.
        """
        super().__init__()
        self._extensions, self._unit_ends = extensions, unit_ends or {}
        self._units: dict[Queue, ExtensionWriter] = {}
        self._folder, self._config, self._disk = folder, config, disk
        self._batches = batches or BatchQueues()
        self._queues: dict[Queue, QueueWriter] = {
            **queues,
            **self._batches.queues,
        }
        # `_lock` protects `_dirty`, which the appending and the syncing thread change.
        self._dirty: set[Queue] = set()
        self._lock = Lock()
        # A thread that needs `_syncing` and `_lock` takes `_syncing` first.
        self._syncing = Lock()
        self.lost: LostRanges = NONE_LOST

    def add_lost(self, found: Iterable[OffsetRange]) -> None:
        ranges = merged(sorted([*self.lost_ranges(), *found]))
        self.lost = np.array(ranges, np.int64).reshape(-1, 2)

    def append(self, batch: DispatchBatch) -> list[tuple[Queue, int]]:
        """See QueueSetWriter.

        A topic that is not a valid folder name gets no ConsumeQueue. Only a damaged log has such topics.
        """
        entries = batch.queue_entries()
        bounds = entries.bounds.tolist()
        grown = []
        for number, name in enumerate(batch.queues):
            start, stop = bounds[number], bounds[number + 1]
            queue = self._queue(name) if start < stop else None
            if queue is None:
                continue
            before, part = queue.position, slice(start, stop)
            messages, rows = batch.messages, entries.rows[part]
            if self._extensions is not None and isinstance(queue, ConsumeQueueWriter):
                messages = self._with_units(name, queue, messages[rows], number)
                # `messages` now contains only this queue's messages, so use all its rows.
                rows = np.arange(len(messages))
            offsets = entries.queue_offset[part]
            self._try(partial(queue.append, messages, rows, offsets, self.lost), "a ConsumeQueue")
            if queue.position != before:
                with self._lock:
                    self._dirty.add(name)
                grown.append((name, queue.position or 0))
        return grown

    def _with_units(
        self, name: Queue, queue: ConsumeQueueWriter, messages: npt.NDArray[np.void], number: int
    ) -> npt.NDArray[np.void]:
        """Write an extension unit for each new message, and replace its tags code by the unit's address.

        Messages that are in the queue only because of INNER_MULTI_DISPATCH get no unit, and keep their tags codes.
        Returns the messages.
        """
        ends = messages["physical_offset"] + messages["size"]
        own = (messages["queue"] == number) & (ends > queue.max_physical_offset)
        if own.any() and self._extensions is not None:
            units = self._units.get(name)
            if units is None:
                folder = queue_folder(self._extensions, *name)
                end, size = self._unit_ends.get(name, 0), EXTENSION.file_bytes(self._config)
                units = self._units[name] = ExtensionWriter(folder, size, end, self._disk)
            with_units = messages[own]
            units.put_all(with_units)
            messages[own] = with_units
        return messages

    def _sync_units(self, queues: Iterable[Queue]) -> None:
        """Sync extension units, which must be durable before the entries that lead to them."""
        for name in queues:
            if (units := self._units.get(name)) is not None:
                units.sync()

    def ends(self) -> dict[tuple[str, int], int]:
        return {name: queue.position or 0 for name, queue in self._queues.items()}

    def positions(self) -> dict[Queue, tuple[int, int]]:
        return {
            name: (queue.position, queue.max_physical_offset)
            for name, queue in self._queues.items()
            if isinstance(queue, ConsumeQueueWriter) and queue.position is not None
        }

    def lost_ranges(self) -> tuple[OffsetRange, ...]:
        return tuple(OffsetRange(*part) for part in self.lost.tolist())

    def refused_bytes(self) -> dict[Queue, int]:
        return {
            name: queue.refused_bytes
            for name, queue in self._queues.items()
            if isinstance(queue, ConsumeQueueWriter) and queue.refused_bytes > 0
        }

    def batch_ends(self) -> dict[Queue, BatchEnd]:
        return {
            name: BatchEnd(queue.count, queue.position, queue.max_physical_offset)
            for name, queue in self._queues.items()
            if isinstance(queue, BatchQueueWriter) and queue.position is not None
        }

    def sync(self, least_pages: int = 0) -> None:
        with self._syncing:
            if self._units:
                self._sync_units(list(self._units))
            dirty = self._take_dirty(least_pages)
            for queue in dirty:
                # Writeback is started for all queues first, so that the disk works on them in parallel.
                queue.start_writeback()
            for queue in dirty:
                queue.sync()

    def check_in_place(self) -> None:
        for queue in list(self._queues.values()):
            queue.check_in_place()

    def _take_dirty(self, least_pages: int = 0) -> list[QueueWriter]:
        with self._lock:
            dirty = {name for name in self._dirty if self._queues[name].is_due(least_pages)}
            self._dirty -= dirty
        return [self._queues[name] for name in dirty]

    def close(self, sync: bool) -> None:
        if sync:
            self.sync()
        for queue in self._queues.values():
            queue.close(sync=False)
        for units in self._units.values():
            units.close()
        self._batches.close()

    def _queue(self, name: Queue) -> QueueWriter | None:
        queue = self._queues.get(name)
        if queue is None:
            try:
                queue = self._new_queue(name)
            except StoreError:
                return None
            self._queues[name] = queue
        return queue

    def _new_queue(self, name: Queue) -> QueueWriter:
        """Create a queue. Raises StoreError for a topic that is not a valid folder name."""
        batches = self._batches
        if name.topic in batches.topics:
            folder = queue_folder(batches.folder, *name)
            file_bytes = BATCH_QUEUE.file_bytes(self._config)
            return BatchQueueWriter(folder, file_bytes, batches.batch_size_of, disk=self._disk)
        folder = queue_folder(self._folder, *name)
        return ConsumeQueueWriter(folder, self._config.queue_entries, disk=self._disk)


class RocksQueueSetWriter(QueueSetWriter):
    """A writer of queues in a database. One thread appends.

    The database states the physical offset up to which it has entries. The key of an entry contains its queue offset,
    so gaps need no filler entries. Nothing is synced: the database writes a table when its memory is full, and recovery
    dispatches the messages after the stated offset again. Readers must keep all entries in memory that are not yet in a
    table, so a table is written at least every `MOST_UNDISPATCHED` entries.
    """

    has_logics_timestamp = False

    def __init__(
        self, folder: Path, batch_size_of: BatchSizeOf, close_log: Callable[[], None] = lambda: None
    ) -> None:
        """Open the database in `folder`, which is consumequeue/.

        `batch_size_of` reads from the log, which `close_log` closes. Raises MissingExtraError, StoreAccessError,
        FormatError.
        """
        super().__init__()
        self._folder, self._batch_size_of, self._close_log = folder, batch_size_of, close_log
        self._database = opened_to_write(folder)
        self._next: dict[Queue, int] = {}
        self._unwritten = 0
        # Messages before this physical offset keep their entries, and are not appended again.
        self.begin = 0

    def checkpoint(self) -> int:
        """Return the physical offset up to which messages are dispatched. Raises StoreAccessError."""
        return decode_checkpoint(self._database.value(OFFSETS_FAMILY, CHECKPOINT_KEY))

    def cut(self, physical_offset: int) -> None:
        """Remove the entries of messages at or after an offset. Raises StoreAccessError.

        If a queue has no entries left, its stored end is removed as well. A broker keeps the entries instead: it only
        moves the ends of the queues back, and overwrites the entries later.
        """
        if self.checkpoint() <= physical_offset:
            # The database has no entries of messages at or after this offset.
            return
        changes = self._database.changes()
        for end in list(self._ends()):
            if end.physical_offset >= physical_offset:
                kept = None
                for number, offset, key in self._backwards(end):
                    if offset < physical_offset:
                        kept = offset, number
                        break
                    changes.delete(key)
                for which in (b"max", b"min") if kept is None else ():
                    changes.delete(end_key(end.topic, end.queue_id, which), OFFSETS_FAMILY)
                if kept is not None:
                    changes.put(end_key(end.topic, end.queue_id), encode_end(*kept), OFFSETS_FAMILY)
        changes.put(CHECKPOINT_KEY, encode_checkpoint(physical_offset), OFFSETS_FAMILY)
        self._database.write(changes)
        # Without a write-ahead log, only a flush makes the changes durable.
        self._database.flush()

    def _ends(self) -> Iterator[QueueEnd]:
        for key, value in self._database.items(OFFSETS_FAMILY):
            if (end := decode_end(key, value)) is not None:
                yield end

    def _backwards(self, end: QueueEnd) -> Iterator[tuple[int, int, bytes]]:
        """Yield queue offset, physical offset and key of a queue's entries, from its end to its beginning."""
        prefix = queue_prefix(end.topic, end.queue_id)
        for key, value in self._database.items_before(entry_key(prefix, end.queue_offset)):
            number, entry = queue_offset_of(key, prefix), decode_value(value)
            if number is None:
                return
            if entry is None:
                raise FormatError(
                    str(self._folder), 0, f"queue offset {number}: the value is not an entry"
                )
            yield number, entry[0].physical_offset, key

    def load_ends(self, batch_topics: frozenset[str]) -> None:
        """Find the next queue offset of each queue. Raises StoreAccessError.

        In topics with batch queues, the stored end of a queue is the first queue offset of its last inner batch. After
        a restart, a broker continues with the second queue offset of this batch. This method continues after the whole
        batch.
        """
        for end in self._ends():
            size = 1
            if end.topic in batch_topics:
                size = self._batch_size_of(end.physical_offset)
            self._next[Queue(end.topic, end.queue_id)] = end.queue_offset + size

    def append(self, batch: DispatchBatch) -> list[tuple[Queue, int]]:
        changes = self._database.changes()
        ends: dict[Queue, int] = {}
        for queue, messages, queue_offset in dispatched_entries(batch):
            is_new = messages["physical_offset"] >= self.begin
            messages, queue_offset = messages[is_new], queue_offset[is_new]
            if not len(messages):
                continue
            keys, values = entry_keys(queue, queue_offset), entry_values(entry_columns(messages))
            self._unwritten += len(keys)
            for key, value in zip(keys, values, strict=True):
                changes.put(key, value)
            at, last = int(messages["physical_offset"][-1]), int(queue_offset[-1])
            changes.put(end_key(*queue), encode_end(at, last), OFFSETS_FAMILY)
            is_inner = int(messages["sys_flag"][-1]) & SYS_FLAG_INNER_BATCH
            ends[queue] = last + (self._batch_size_of(at) if is_inner else 1)
        # Write the checkpoint together with the entries, so that both have the same state after a crash.
        if (stop := _stop(batch)) is not None:
            changes.put(CHECKPOINT_KEY, encode_checkpoint(stop), OFFSETS_FAMILY)
        self._try(partial(self._database.write, changes), "RocksDB")
        if self._unwritten >= rocksdb_database.MOST_UNDISPATCHED:
            self._try(self._database.flush, "RocksDB")
            self._unwritten = 0
        self._next |= ends
        return list(ends.items())

    def ends(self) -> dict[tuple[str, int], int]:
        return {(topic, queue_id): end for (topic, queue_id), end in self._next.items()}

    def check_in_place(self) -> None:
        self._database.check_in_place()

    def disown(self) -> None:
        """In a forked child, leave the database to the parent. The child never closes it, not even when it ends."""
        self._database.disown()

    def close(self, sync: bool) -> None:
        """Write the entries that are still in memory to files, and close the database. Raises StoreAccessError."""
        self._close_log()
        self._database.close()


def _stop(batch: DispatchBatch) -> int | None:
    """Return the physical offset after the newest message that a broker dispatches to queues.

    Returns None if a broker dispatches no message of the batch.
    """
    messages = batch.messages
    kind = messages["sys_flag"] & SYS_FLAG_TRANSACTION_MASK
    dispatched = messages[(kind == 0) | (kind == SYS_FLAG_COMMIT)]
    if not len(dispatched):
        return None
    ends = dispatched["physical_offset"].astype(np.int64) + dispatched["size"]
    return int(ends.max())
