"""Join the queues of a store and of its archive: older entries come from the archive, newer ones from the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from reput import core
from reput.core import LostEntriesError, QueueReader
from reput.errors import MessageNotFoundError
from reput.format.consume_queue import ENTRY_BYTES, ConsumeQueueEntry
from reput.io import ArchiveStorage


class ContinuedQueues(core.JoinedQueues):
    """A QueueIndex of a store and its archive.

    Entries of messages that are older than the store's log come from the archive.

    folder  folder of the store's queues
    """

    def __init__(
        self,
        newer: core.QueueIndex,
        archive: Callable[[], ArchiveStorage],
        begin: Callable[[], int],
    ) -> None:
        """Join the queues of a store (`newer`) with the queues of its archive.

        `begin` returns the physical offset at which the store's log currently begins. `archive` returns the archive.
        """
        super().__init__([newer])
        self._newer, self._archive, self._begin = newer, archive, begin
        self._opened: tuple[ArchiveStorage, core.QueueIndex] | None = None

    def _older(self) -> core.QueueIndex:
        archive = self._archive()
        if self._opened is None or self._opened[0] is not archive:
            self._opened = archive, core.open_queues(archive.root, archive)
        return self._opened[1]

    def _indexes(self) -> Sequence[core.QueueIndex]:
        return self._newer, self._older()

    def queue(self, topic: str, queue_id: int) -> QueueReader:
        """Return one queue. Raises StoreAccessError, and MessageNotFoundError for an unknown queue."""
        begin = self._begin()
        try:
            older = self._older().queue(topic, queue_id)
        except MessageNotFoundError:
            # The store has this queue, but its archive does not.
            return self._newer.queue(topic, queue_id)
        try:
            newer = self._newer.queue(topic, queue_id)
        except MessageNotFoundError:
            # The archive has this queue, but the store does not have it any more.
            return older
        return ContinuedQueue(older, newer, begin)

    def close(self) -> None:
        """Close all files. Queues that are requested later are opened again."""
        self._newer.close()
        if self._opened is not None:
            self._opened[1].close()


class ContinuedQueue:
    """One queue of a store and its archive, as a QueueReader.

    folder  folder of the queue in the store
    kind    kind of the store's queue
    """

    def __init__(self, older: QueueReader, newer: QueueReader, begin: int) -> None:
        """Join the queue's readers: `older` reads the archive, `newer` the store.

        `begin` is the physical offset at which the store's log begins.
        """
        self._older, self._newer, self._begin = older, newer, begin
        self.folder: str = newer.folder
        self.kind: core.QueueKind = newer.kind
        # The archive's entries end at `_stop`, the store's begin at `_split`. Entries in between expired before they
        # were archived.
        self._split = newer.min_queue_offset(begin)
        self._stop = min(older.max_queue_offset(), self._split)

    def entry(self, queue_offset: int) -> ConsumeQueueEntry:
        """See QueueReader."""
        if queue_offset >= self._split:
            return self._newer.entry(queue_offset)
        if queue_offset >= self._stop:
            raise self._lost(queue_offset)
        return self._older.entry(queue_offset)

    def entries(self, queue_offset: int, stop: int) -> Iterator[ConsumeQueueEntry]:
        """See QueueReader."""
        return (entry for _, entry in self.numbered(queue_offset, stop))

    def numbered(self, queue_offset: int, stop: int) -> Iterator[tuple[int, ConsumeQueueEntry]]:
        """See QueueReader."""
        if queue_offset < min(self._split, stop):
            if queue_offset < self._stop:
                yield from self._older.numbered(queue_offset, min(stop, self._stop))
            if self._stop < min(self._split, stop):
                raise self._lost(max(queue_offset, self._stop))
        if self._split < stop:
            yield from self._newer.numbered(max(queue_offset, self._split), stop)

    def after(self, queue_offset: int, entry: ConsumeQueueEntry) -> int:
        """See QueueReader."""
        return self._of(queue_offset).after(queue_offset, entry)

    def span(self, queue_offset: int) -> tuple[int, int]:
        """See QueueReader."""
        if self._stop <= queue_offset < self._split:
            return self._stop, self._split
        return self._of(queue_offset).span(queue_offset)

    def entry_bytes(self, queue_offset: int, stop: int) -> Iterator[bytes]:
        """See QueueReader. Also raises LostEntriesError."""
        if queue_offset < self._stop:
            yield from self._older.entry_bytes(queue_offset, min(stop, self._stop))
        if max(queue_offset, self._stop) < min(self._split, stop):
            raise self._lost(max(queue_offset, self._stop))
        if self._split < stop:
            yield from self._newer.entry_bytes(max(queue_offset, self._split), stop)

    def min_queue_offset(self, min_physical_offset: int = 0) -> int:
        """See QueueReader."""
        newer = self._newer.min_queue_offset(max(min_physical_offset, self._begin))
        if newer == self._split:
            # The entry belongs to an archived message, or the store has lost it.
            older = self._older.min_queue_offset(min_physical_offset)
            if older < self._stop:
                return older
        return newer

    def max_queue_offset(self) -> int:
        """See QueueReader."""
        # A queue without entries in the store ends where its archived entries end.
        return self._newer.max_queue_offset() or self._older.max_queue_offset()

    def _of(self, queue_offset: int) -> QueueReader:
        return self._older if queue_offset < self._stop else self._newer

    def _lost(self, queue_offset: int) -> LostEntriesError:
        reason = (
            f"queue offsets {queue_offset} to {self._split - 1} expired before they were archived"
        )
        return LostEntriesError(self.folder, queue_offset * ENTRY_BYTES, reason, self._split)
