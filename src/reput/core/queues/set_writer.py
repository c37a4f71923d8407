"""Write all queues of a writable store: the interface of its forms, and queues in files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.base import StoreConfig
from reput.core.log.dispatch_batch import DispatchBatch, Queue
from reput.core.log.offset_range import OffsetRange
from reput.core.queues.kinds import BATCH_QUEUE, EXTENSION, queue_folder
from reput.core.queues.writer import (
    NONE_LOST,
    BatchQueueWriter,
    BatchSizeOf,
    ConsumeQueueWriter,
    ExtensionWriter,
    LostRanges,
    QueueWriter,
)
from reput.errors import StoreAccessError, StoreError
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
    database              name of the folder with the queues' database in the store; empty for queues in files
    """

    has_logics_timestamp = True
    database = ""

    def __init__(self) -> None:
        self.try_again: Callable[[int], bool] = lambda tries: False

    def append(self, batch: DispatchBatch) -> list[tuple[Queue, int]]:
        """Append a batch. Return each queue that has grown, with its new end. Raises StoreAccessError."""
        raise NotImplementedError

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the next queue offset of each queue."""
        raise NotImplementedError

    def _try(self, write: Callable[[], object], target: str) -> None:
        """Call `write`. After an error, try again as a broker does (`ConsumeQueue.putMessagePositionInfoWrapper`)."""
        tries = 1
        while True:
            try:
                write()
                return
            except StoreAccessError as error:
                _log.warning("append to %s failed, %d times now: %s", target, tries, error)
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

    def add_lost(self, ranges: Iterable[OffsetRange]) -> None:
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
        unopened: Mapping[Queue, tuple[int, int]] | None = None,
    ) -> None:
        """Write the queues in `folder`.

        `extensions` is the folder consumequeue_ext/ if the store has one. `unit_ends` has, for each queue, the position
        in its consumequeue_ext/ files at which its last unit (CqExtUnit) ends. `unopened` has the ends of further
        ConsumeQueues: `position` and `max_physical_offset`. A store may have tens of thousands, of which a writer
        appends to a few.
        """
        super().__init__()
        self._unopened = dict(unopened or {})
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
        ranges = OffsetRange.merged(sorted([*self.lost_ranges(), *found]))
        self.lost = np.array(ranges, np.int64).reshape(-1, 2)

    def append(self, batch: DispatchBatch) -> list[tuple[Queue, int]]:
        """See QueueSetWriter.

        A topic that is not a valid folder name gets no ConsumeQueue. Only a damaged log has such topics.
        """
        grown = []
        for number, name, rows, offsets in batch.by_queue():
            queue = self._queue(name)
            if queue is None:
                continue
            before, messages = queue.position, batch.messages
            if self._extensions is not None and isinstance(queue, ConsumeQueueWriter):
                messages = self._with_units(name, queue, messages[rows], number)
                # `messages` now contains only this queue's messages, so use all its rows.
                rows = np.arange(len(messages))
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
        is_own = (messages["queue"] == number) & (ends > queue.max_physical_offset)
        if is_own.any() and self._extensions is not None:
            units = self._units.get(name)
            if units is None:
                folder = queue_folder(self._extensions, *name)
                end, size = self._unit_ends.get(name, 0), EXTENSION.file_bytes(self._config)
                units = self._units[name] = ExtensionWriter(folder, size, end, self._disk)
            with_units = messages[is_own]
            units.put_all(with_units)
            messages[is_own] = with_units
        return messages

    def _sync_units(self, queues: Iterable[Queue]) -> None:
        """Sync extension units, which must be durable before the entries that lead to them."""
        for name in queues:
            if (units := self._units.get(name)) is not None:
                units.sync()

    def ends(self) -> dict[tuple[str, int], int]:
        ends: dict[tuple[str, int], int] = {
            name: queue.position or 0 for name, queue in self._queues.items()
        }
        ends.update((name, position) for name, (position, _) in self._unopened.items())
        return ends

    def positions(self) -> dict[Queue, tuple[int, int]]:
        return self._unopened | {
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
        """Create a queue, or open one. Raises StoreError for a topic that is not a valid folder name."""
        batches = self._batches
        if name.topic in batches.topics:
            folder = queue_folder(batches.folder, *name)
            file_bytes = BATCH_QUEUE.file_bytes(self._config)
            return BatchQueueWriter(folder, file_bytes, batches.batch_size_of, disk=self._disk)
        folder, entries = queue_folder(self._folder, *name), self._config.queue_entries
        if (end := self._unopened.pop(name, None)) is not None:
            return ConsumeQueueWriter(folder, entries, *end, self._disk)
        return ConsumeQueueWriter(folder, entries, disk=self._disk)
