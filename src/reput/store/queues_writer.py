"""All ConsumeQueues of a store that is alive, the writing side."""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from reput.config import StoreConfig
from reput.errors import StoreError
from reput.files.disk import Disk
from reput.store.consume_queue import ConsumeQueue, queue_folder
from reput.store.dispatch_batch import DispatchBatch, Queue

_MOST_OPEN_FILES = 512


class QueuesWriter:
    """Appends batches; one thread appends, another may sync. Queues are opened when they are appended to."""

    def __init__(
        self, folder: Path, config: StoreConfig, disk: Disk, queues: dict[Queue, ConsumeQueue]
    ) -> None:
        self._folder, self._config, self._disk, self._queues = folder, config, disk, queues
        self._dirty: set[Queue] = set()
        self._lock = Lock()
        self._syncing = Lock()  # taken before the other

    def append(self, batch: DispatchBatch) -> list[tuple[Queue, int]]:
        """Append a batch; returns each queue that grew with its new end. Raises StoreAccessError.

        A queue whose topic is no folder name, which only a damaged log can have, has no ConsumeQueue.
        """
        entries = batch.queue_entries()
        bounds = entries.bounds.tolist()
        grown = []
        with self._lock:
            for number, name in enumerate(batch.queues):
                start, stop = bounds[number], bounds[number + 1]
                queue = self._queue(name) if start < stop else None
                if queue is None:
                    continue
                place = slice(start, stop)
                if queue.append(batch.messages, entries.rows[place], entries.queue_offset[place]):
                    self._dirty.add(name)
                    grown.append((name, queue.position or 0))
        if len(self._dirty) > _MOST_OPEN_FILES:
            self._sync_and_close()
        return grown

    def ends(self) -> dict[tuple[str, int], int]:
        """What the next message of each queue gets."""
        return {name: queue.position or 0 for name, queue in self._queues.items()}

    def positions(self) -> dict[Queue, tuple[int, int]]:
        """Of each queue that has entries, position behind the last, and physical offset at which its message ends."""
        return {
            name: (queue.position, queue.max_physical_offset)
            for name, queue in self._queues.items()
            if queue.position is not None
        }

    def sync(self) -> None:
        """Make all entries durable. Raises StoreAccessError."""
        with self._syncing:
            dirty = self._take_dirty()
            for queue in dirty:
                queue.start_writeback()
            for queue in dirty:
                queue.sync()

    def _take_dirty(self) -> list[ConsumeQueue]:
        with self._lock:
            dirty = [self._queues[name] for name in self._dirty]
            self._dirty.clear()
        return dirty

    def close(self, sync: bool) -> None:
        if sync:
            self.sync()
        for queue in self._queues.values():
            queue.close(sync=False)

    def _queue(self, name: Queue) -> ConsumeQueue | None:
        queue = self._queues.get(name)
        if queue is None:
            try:
                folder = queue_folder(self._folder, *name)
            except StoreError:
                return None
            queue = ConsumeQueue(folder, self._config.queue_entries, disk=self._disk)
            self._queues[name] = queue
        return queue

    def _sync_and_close(self) -> None:
        """A store can have more queues than a process may have open files."""
        with self._syncing:  # what is being synced must not be closed
            for queue in self._take_dirty():
                queue.sync()
                queue.close(sync=False)
