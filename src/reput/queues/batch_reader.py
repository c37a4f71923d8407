"""BatchConsumeQueue, the reading side: where the record lies that holds the n-th message of a queue.

Mirrors `BatchConsumeQueue` (tag rocketmq-all-5.3.3): entries ascend by their base offsets, so the entry of a queue
offset is found by bisection. Unlike the broker, each entry that is read must begin where the one before it ends.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice

from reput.errors import MessageNotFoundError
from reput.files.open_files import OpenFiles
from reput.files.storage import LOCAL, Storage
from reput.format.batch_consume_queue import (
    BATCH_ENTRY_BYTES,
    BatchEntry,
    decode_batch_entries,
    decode_batch_entry,
)
from reput.format.consume_queue import ConsumeQueueEntry, encode_entry
from reput.queues.queue_index import LostEntriesError
from reput.queues.reader import ConsumeQueueReader

_BULK_ENTRIES = 1 << 12


class _EntryFiles(ConsumeQueueReader):
    """The same files with longer entries, by the number of the entry in its queue."""

    _entry_bytes, _patience_s = BATCH_ENTRY_BYTES, 0.0  # a bisection meets many that are lost
    _decode = staticmethod(decode_batch_entry)
    _decode_all = staticmethod(decode_batch_entries)


class BatchQueueReader:
    """The files of one batch queue; a QueueReader. They may grow, be rolled and expire meanwhile.

    folder  <topic>/<queue id>, where they lie
    """

    def __init__(
        self, folder: str, open_files: OpenFiles | None = None, storage: Storage = LOCAL
    ) -> None:
        """Raises StoreAccessError. `open_files`, of the same storage, may be shared between queues."""
        self.folder = folder
        self._files = _EntryFiles(folder, open_files, storage)

    def refresh(self) -> bool:
        """Look whether files came or went. Returns whether there are any."""
        return self._files.refresh()

    def close(self) -> None:
        self._files.close()

    def entry(self, queue_offset: int) -> ConsumeQueueEntry:
        """The entry that holds this queue offset. Raises as QueueReader says."""
        found = self._entry_at(self._number_of(queue_offset))
        if found.base_offset <= queue_offset < found.stop:
            return found
        if queue_offset < self.max_queue_offset():
            raise self._lost(queue_offset, self._number_of(queue_offset) + 1)
        raise MessageNotFoundError(f"{self.folder}: queue offset {queue_offset}: no entry there")

    def entries(self, queue_offset: int, stop: int) -> Iterator[ConsumeQueueEntry]:
        """See QueueReader: one entry for a batch, the first of them may begin before `queue_offset`."""
        return (entry for _, entry in self.numbered(queue_offset, stop))

    def numbered(self, queue_offset: int, stop: int) -> Iterator[tuple[int, BatchEntry]]:
        """See QueueReader."""
        if queue_offset >= min(stop, self.max_queue_offset()):
            return
        number, expected = self._number_of(queue_offset), None
        entries = self._files.entries(number, self._files.max_queue_offset())
        while (entry := self._next(entries, queue_offset, expected, number)) is not None:
            if entry.base_offset >= stop:
                return
            is_first = expected is None and entry.base_offset <= queue_offset < entry.stop
            if not is_first and (entry.base_offset != expected or entry.batch_size < 1):
                raise self._lost(queue_offset if expected is None else expected, number)
            yield entry.base_offset, entry
            expected, number = entry.stop, number + 1

    def _next(
        self,
        entries: Iterator[ConsumeQueueEntry],
        queue_offset: int,
        expected: int | None,
        number: int,
    ) -> BatchEntry | None:
        try:
            entry = next(entries, None)
        except LostEntriesError:  # it speaks of numbers of entries
            raise self._lost(queue_offset if expected is None else expected, number) from None
        assert entry is None or isinstance(entry, BatchEntry)
        return entry

    def after(self, queue_offset: int, entry: ConsumeQueueEntry) -> int:
        """See QueueReader."""
        return entry.stop if isinstance(entry, BatchEntry) else queue_offset + 1

    def span(self, queue_offset: int) -> tuple[int, int]:
        """See QueueReader; of a lost number all that are lost with it."""
        if not 0 <= queue_offset < self.max_queue_offset():
            return queue_offset, queue_offset + 1
        number = self._number_of(queue_offset)
        found = self._last_from(queue_offset, number + 1)
        if found is None:
            return 0, self._lost(queue_offset, number).resume_offset
        if queue_offset < found.stop:
            return found.base_offset, found.stop
        first = max(found.stop, found.base_offset + 1)
        return min(first, queue_offset), self._lost(queue_offset, number + 1).resume_offset

    def entry_bytes(self, queue_offset: int, stop: int) -> Iterator[bytes]:
        """See QueueReader; raises LostEntriesError, too."""
        entries = self.entries(queue_offset, stop)
        while some := list(islice(entries, _BULK_ENTRIES)):
            yield b"".join(map(encode_entry, some))

    def max_queue_offset(self) -> int:
        """Queue offset that the next message gets."""
        count = self._files.max_queue_offset()
        return self._entry_at(count - 1).stop if count > self._first() else 0

    def min_queue_offset(self, min_physical_offset: int = 0) -> int:
        """Queue offset of the first message at or after that physical offset, else the maximum."""
        number = self._files.min_queue_offset(min_physical_offset)
        if number >= self._files.max_queue_offset():
            return self.max_queue_offset()
        try:
            return self._entry_at(number).base_offset
        except LostEntriesError as error:
            return self._entry_at(error.resume_offset).base_offset

    def files_before(self, min_physical_offset: int) -> list[str]:
        """Files, oldest first and never the last, all of whose entries are of messages before that offset."""
        return self._files.files_before(min_physical_offset)

    def _first(self) -> int:
        return self._files.min_queue_offset()

    def _entry_at(self, number: int) -> BatchEntry:
        found = self._files.entry(number)
        assert isinstance(found, BatchEntry)
        return found

    def _number_of(self, queue_offset: int) -> int:
        """Number of the last entry whose base is not after the queue offset; the first one's where there is none.

        Raises LostEntriesError, and MessageNotFoundError where the queue has no entry.
        """
        first, stop = self._first(), self._files.max_queue_offset()
        low, high = first, stop
        while low < high:
            middle = (low + high) // 2
            if self._base_near(middle, high) <= queue_offset:
                low = middle + 1
            else:
                high = middle
        return max(low - 1, first)

    def _last_from(self, queue_offset: int, number: int) -> BatchEntry | None:
        """The last entry before that number which is there and does not begin after the queue offset."""
        for before in range(number - 1, self._first() - 1, -1):
            try:
                found = self._entry_at(before)
            except LostEntriesError:
                continue
            if found.base_offset <= queue_offset:
                return found
        return None

    def _base_near(self, number: int, stop: int) -> int:
        """The base of an entry; of the next one that is there where it is lost."""
        try:
            return self._entry_at(number).base_offset
        except LostEntriesError as error:
            if error.resume_offset >= stop:  # which begins after what is sought
                return sys.maxsize
            return self._entry_at(error.resume_offset).base_offset

    def _lost(self, queue_offset: int, number: int) -> LostEntriesError:
        """The error that the entry of this queue offset is lost; the search for a later one begins at `number`."""
        resume, stop = self.max_queue_offset(), self._files.max_queue_offset()
        while number < stop:
            try:
                entry = self._entry_at(number)
            except LostEntriesError as error:
                number = max(error.resume_offset, number + 1)
                continue
            if entry.base_offset > queue_offset and entry.batch_size > 0:
                resume = entry.base_offset
                break
            number += 1
        entries = f"the entries of queue offsets {queue_offset} to {resume - 1} are lost"
        reason = f"{entries}, but later ones exist; rebuild the ConsumeQueues"
        position = number * BATCH_ENTRY_BYTES
        return LostEntriesError(self.folder, position, reason, max(resume, queue_offset + 1))
