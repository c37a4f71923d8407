"""All ConsumeQueues of a store that is alive, the writing side."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from threading import Lock

import numpy as np
import numpy.typing as npt

from reput.config import StoreConfig
from reput.errors import StoreAccessError, StoreError
from reput.files.disk import Disk
from reput.log.dispatch_batch import DispatchBatch, Queue
from reput.queues.writer import ConsumeQueueWriter, queue_folder

_MOST_OPEN_FILES = 512
_log = logging.getLogger("reput.dispatch")


class ConsumeQueueSetWriter:
    """Appends batches; one thread appends, another may sync. Queues are opened when they are appended to.

    try_again  called with the number of tries after an append that failed; returns whether to make another
    """

    def __init__(
        self, folder: Path, config: StoreConfig, disk: Disk, queues: dict[Queue, ConsumeQueueWriter]
    ) -> None:
        self._folder, self._config, self._disk, self._queues = folder, config, disk, queues
        self._dirty: set[Queue] = set()
        self._lock = Lock()
        self._syncing = Lock()  # taken before the other
        self.try_again: Callable[[int], bool] = lambda tries: False

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
            self._append(queue, batch, entries.rows[part], entries.queue_offset[part])
            if queue.position != before:
                with self._lock:
                    self._dirty.add(name)
                grown.append((name, queue.position or 0))
        if len(self._dirty) > _MOST_OPEN_FILES:
            self._sync_and_close()
        return grown

    def _append(
        self,
        queue: ConsumeQueueWriter,
        batch: DispatchBatch,
        rows: npt.NDArray[np.int64],
        queue_offset: npt.NDArray[np.int64],
    ) -> None:
        """As ConsumeQueueWriter.append, tried again as ConsumeQueue.putMessagePositionInfoWrapper does."""
        tries = 1
        while True:
            try:
                queue.append(batch.messages, rows, queue_offset)
                return
            except StoreAccessError as error:
                _log.warning("append to a ConsumeQueue failed, %d times now: %s", tries, error)
                if not self.try_again(tries):
                    raise
                tries += 1

    def ends(self) -> dict[tuple[str, int], int]:
        """What the next message of each queue gets."""
        return {name: queue.position or 0 for name, queue in self._queues.items()}

    def positions(self) -> dict[Queue, tuple[int, int]]:
        """Of each queue that has entries, position after the last, and physical offset at which its message ends."""
        return {
            name: (queue.position, queue.max_physical_offset)
            for name, queue in self._queues.items()
            if queue.position is not None
        }

    def sync(self, least_pages: int = 0) -> None:
        """Make entries durable, of the queues that have so many dirty pages. Raises StoreAccessError."""
        with self._syncing:
            dirty = self._take_dirty(least_pages)
            for queue in dirty:
                queue.start_writeback()
            for queue in dirty:
                queue.sync()

    def _take_dirty(self, least_pages: int = 0) -> list[ConsumeQueueWriter]:
        with self._lock:
            dirty = {name for name in self._dirty if self._queues[name].is_due(least_pages)}
            self._dirty -= dirty
        return [self._queues[name] for name in dirty]

    def close(self, sync: bool) -> None:
        if sync:
            self.sync()
        for queue in self._queues.values():
            queue.close(sync=False)

    def _queue(self, name: Queue) -> ConsumeQueueWriter | None:
        queue = self._queues.get(name)
        if queue is None:
            try:
                folder = queue_folder(self._folder, *name)
            except StoreError:
                return None
            queue = ConsumeQueueWriter(folder, self._config.queue_entries, disk=self._disk)
            self._queues[name] = queue
        return queue

    def _sync_and_close(self) -> None:
        """A store can have more queues than a process may have open files."""
        with self._syncing:  # what is being synced must not be closed
            for queue in self._take_dirty():
                queue.sync()
                queue.close(sync=False)
