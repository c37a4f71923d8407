"""All ConsumeQueues of a store that is alive, the writing side."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.config import StoreConfig
from reput.errors import StoreAccessError, StoreError
from reput.files.disk import Disk
from reput.log.dispatch_batch import DispatchBatch, Queue
from reput.log.offset_range import OffsetRange, merged
from reput.queues.batch_writer import BatchQueueWriter, BatchSizeOf
from reput.queues.extended_writer import ExtensionWriter
from reput.queues.writer import NONE_LOST, ConsumeQueueWriter, LostRanges, queue_folder

_log = logging.getLogger("reput.dispatch")


@dataclass(frozen=True)
class BatchQueues:
    """The batch queues of a store (5.x).

    topics         those with batch queues; queues of others are ConsumeQueues
    folder         batchconsumequeue/
    queues         those that there are
    batch_size_of  asks the log
    close          closes it
    """

    topics: frozenset[str] = frozenset()
    folder: Path = Path()
    queues: Mapping[Queue, BatchQueueWriter] = field(default_factory=dict)
    batch_size_of: BatchSizeOf = lambda physical_offset: 1
    close: Callable[[], None] = lambda: None


class BatchEnd(NamedTuple):
    """Entries of a batch queue, what its next message gets, where the record of its last entry begins."""

    entries: int
    position: int
    max_physical_offset: int


class ConsumeQueueSetWriter:
    """Appends batches; one thread appends, another may sync. Queues are opened when they are appended to.

    try_again             called with the number of tries after an append that failed; returns whether to make another
    has_logics_timestamp  whether a broker notes the time of the newest entry in `checkpoint`
    lost                  ranges of the log that cannot be read, in order, as far as it was dispatched
    """

    has_logics_timestamp = True

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
        """`extensions` is consumequeue_ext/ of a store that has it, and `unit_ends` says where the units end there."""
        self._extensions, self._unit_ends = extensions, unit_ends or {}
        self._units: dict[Queue, ExtensionWriter] = {}
        self._folder, self._config, self._disk = folder, config, disk
        self._batches = batches or BatchQueues()
        self._queues: dict[Queue, ConsumeQueueWriter | BatchQueueWriter] = {
            **queues,
            **self._batches.queues,
        }
        self._dirty: set[Queue] = set()
        self._lock = Lock()
        self._syncing = Lock()  # taken before the other
        self.try_again: Callable[[int], bool] = lambda tries: False
        self.lost: LostRanges = NONE_LOST

    def add_lost(self, found: Iterable[OffsetRange]) -> None:
        """Note damage of the log: it explains gaps in the queue offsets of the messages after it."""
        ranges = merged(sorted([*self.lost_ranges(), *found]))
        self.lost = np.array(ranges, np.int64).reshape(-1, 2)

    def append(self, batch: DispatchBatch) -> list[tuple[Queue, int]]:
        """Append a batch; returns each queue that grew with its new end. Raises StoreAccessError.

        A queue whose topic is no folder name, which only a damaged log can have, has no ConsumeQueue.
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
                rows = np.arange(len(messages))
            self._append(queue, messages, rows, entries.queue_offset[part])
            if queue.position != before:
                with self._lock:
                    self._dirty.add(name)
                grown.append((name, queue.position or 0))
        return grown

    def _append(
        self,
        queue: ConsumeQueueWriter | BatchQueueWriter,
        messages: npt.NDArray[np.void],
        rows: npt.NDArray[np.int64],
        queue_offset: npt.NDArray[np.int64],
    ) -> None:
        """As ConsumeQueueWriter.append, tried again as ConsumeQueue.putMessagePositionInfoWrapper does."""
        tries = 1
        while True:
            try:
                if isinstance(queue, BatchQueueWriter):
                    queue.append(messages, rows, queue_offset)
                else:
                    queue.append(messages, rows, queue_offset, self.lost)
                return
            except StoreAccessError as error:
                _log.warning("append to a ConsumeQueue failed, %d times now: %s", tries, error)
                if not self.try_again(tries):
                    raise
                tries += 1

    def _with_units(
        self, name: Queue, queue: ConsumeQueueWriter, messages: npt.NDArray[np.void], number: int
    ) -> npt.NDArray[np.void]:
        """Write units for the queue's own messages that it does not have yet, and put their addresses into these."""
        ends = messages["physical_offset"] + messages["size"]
        own = (messages["queue"] == number) & (ends > queue.max_physical_offset)
        if own.any() and self._extensions is not None:
            units = self._units.get(name)
            if units is None:
                folder = queue_folder(self._extensions, *name)
                end, size = self._unit_ends.get(name, 0), self._config.extension_file_bytes
                units = self._units[name] = ExtensionWriter(folder, size, end, self._disk)
            with_units = messages[own]
            units.put_all(with_units)
            messages[own] = with_units
        return messages

    def _sync_units(self, queues: Iterable[Queue]) -> None:
        """Before entries that lead to them."""
        for name in queues:
            if (units := self._units.get(name)) is not None:
                units.sync()

    def ends(self) -> dict[tuple[str, int], int]:
        """What the next message of each queue gets."""
        return {name: queue.position or 0 for name, queue in self._queues.items()}

    def positions(self) -> dict[Queue, tuple[int, int]]:
        """Of each queue that has entries, position after the last, and physical offset at which its message ends."""
        return {
            name: (queue.position, queue.max_physical_offset)
            for name, queue in self._queues.items()
            if isinstance(queue, ConsumeQueueWriter) and queue.position is not None
        }

    def lost_ranges(self) -> tuple[OffsetRange, ...]:
        return tuple(OffsetRange(*part) for part in self.lost.tolist())

    def refused_bytes(self) -> dict[Queue, int]:
        """Of each queue that refused messages since its last entry, their bytes."""
        return {
            name: queue.refused_bytes
            for name, queue in self._queues.items()
            if isinstance(queue, ConsumeQueueWriter) and queue.refused_bytes > 0
        }

    def batch_ends(self) -> dict[Queue, BatchEnd]:
        """Of each batch queue that has entries."""
        return {
            name: BatchEnd(queue.count, queue.position, queue.max_physical_offset)
            for name, queue in self._queues.items()
            if isinstance(queue, BatchQueueWriter) and queue.position is not None
        }

    def sync(self, least_pages: int = 0) -> None:
        """Make entries durable, of the queues that have so many dirty pages. Raises StoreAccessError."""
        with self._syncing:
            if self._units:
                self._sync_units(list(self._units))
            dirty = self._take_dirty(least_pages)
            for queue in dirty:
                queue.start_writeback()
            for queue in dirty:
                queue.sync()

    def check_in_place(self) -> None:
        """Check that the files that were appended to still have their names.

        Raises StoreFailedError, StoreAccessError.
        """
        for queue in list(self._queues.values()):
            queue.check_in_place()

    def _take_dirty(self, least_pages: int = 0) -> list[ConsumeQueueWriter | BatchQueueWriter]:
        with self._lock:
            dirty = {name for name in self._dirty if self._queues[name].is_due(least_pages)}
            self._dirty -= dirty
        return [self._queues[name] for name in dirty]

    def disown(self) -> None:
        """In a forked child: nothing is done to files that are only open."""

    def close(self, sync: bool) -> None:
        if sync:
            self.sync()
        for queue in self._queues.values():
            queue.close(sync=False)
        for units in self._units.values():
            units.close()
        self._batches.close()

    def _queue(self, name: Queue) -> ConsumeQueueWriter | BatchQueueWriter | None:
        queue = self._queues.get(name)
        if queue is None:
            try:
                queue = self._new_queue(name)
            except StoreError:
                return None
            self._queues[name] = queue
        return queue

    def _new_queue(self, name: Queue) -> ConsumeQueueWriter | BatchQueueWriter:
        """Raises StoreError for a topic that cannot name a folder."""
        batches = self._batches
        if name.topic in batches.topics:
            folder = queue_folder(batches.folder, *name)
            file_bytes = self._config.batch_queue_file_bytes
            return BatchQueueWriter(folder, file_bytes, batches.batch_size_of, disk=self._disk)
        folder = queue_folder(self._folder, *name)
        return ConsumeQueueWriter(folder, self._config.queue_entries, disk=self._disk)
