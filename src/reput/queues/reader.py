"""ConsumeQueue, the reading side: where the n-th message of a queue lies.

Mirrors `ConsumeQueue.getIndexBuffer`, `.getMinOffsetInQueue`, `.getMaxOffsetInQueue` (tag
rocketmq-all-4.9.3). The entries are a run without gaps from the first to the last that is written. The ends are
found once, and from there on as the queue grows; an empty entry between them is damage, and is reported when it
is read.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import partial

from reput.errors import MessageNotFoundError, StoreNotFoundError
from reput.files.open_files import OpenFiles
from reput.files.reader import SparseReader
from reput.files.storage import LOCAL, Storage
from reput.format.consume_queue import (
    ENTRY_BYTES,
    PRE_BLANK,
    ConsumeQueueEntry,
    decode_entries,
    decode_entry,
    encode_entry,
)
from reput.queues.bisection import first_at
from reput.queues.files import QueueFile, list_queue_files
from reput.queues.queue_index import LostEntriesError

_READ_ENTRIES = 512
_BULK_ENTRIES = 1 << 15
_PATIENCE_S = 0.01  # a writer's pages may become visible out of order


class ConsumeQueueReader:
    """The files of one queue; a QueueReader. They may grow, be rolled and expire meanwhile.

    folder  <topic>/<queue id>, where they lie
    """

    _entry_bytes, _patience_s = ENTRY_BYTES, _PATIENCE_S
    _blank = encode_entry(PRE_BLANK)
    _decode = staticmethod(decode_entry)
    _decode_all = staticmethod(decode_entries)

    def __init__(
        self, folder: str, open_files: OpenFiles | None = None, storage: Storage = LOCAL
    ) -> None:
        """Raises StoreAccessError. `open_files`, of the same storage, may be shared between queues."""
        self.folder, self._storage = folder, storage
        self._open_files = OpenFiles(storage.open) if open_files is None else open_files
        self._watch = storage.watch(folder)
        self._files: list[QueueFile] = []
        self._starts: list[int] = []
        self._end: int | None = None  # as it was when last looked at
        # For a minimum physical offset, the queue offset.
        self._least: tuple[int, int] | None = None
        self.refresh()

    def _list(self) -> None:
        files = list_queue_files(self.folder, self._storage, self._entry_bytes)
        if files != self._files:
            gone = set(self._files) - set(files)
            self._open_files.drop((file.path, file.inode) for file in gone)
            self._files, self._starts = files, [file.start for file in files]
            self._end = self._least = None

    def refresh(self) -> bool:
        """Look whether files came or went, for the price of one stat. Returns whether there are any."""
        if self._watch.changed():
            self._list()
        return bool(self._files)

    def close(self) -> None:
        self._open_files.close()

    def entry(self, queue_offset: int) -> ConsumeQueueEntry:
        """The entry with that number.

        Raises:
            MessageNotFoundError: none was written, or it has expired.
            LostEntriesError: it is empty or missing although later entries exist.
            StoreAccessError: a file cannot be read.
        """
        file = self._file_of(queue_offset)
        try:
            if file is None:
                raise self._missing(queue_offset)
            found = self._entry(file, queue_offset)
            if not found.is_written:
                found = self._read_again(file, queue_offset)
        except StoreNotFoundError as error:
            raise MessageNotFoundError(str(error)) from None
        if found == PRE_BLANK:
            where = f"{file.path}: queue offset {queue_offset}"
            raise MessageNotFoundError(f"{where}: no entry there")
        return found

    def entries(self, queue_offset: int, stop: int) -> Iterator[ConsumeQueueEntry]:
        """Entries from that number on to `stop`, as far as the queue goes.

        Raises:
            StoreNotFoundError: a file has expired.
            LostEntriesError: one is empty or missing although later entries exist.
            StoreAccessError: a file cannot be read.
        """
        position = queue_offset
        while position < stop:
            file = self._file_of(position)
            if file is None:
                if position >= self.max_queue_offset():
                    return
                raise self._missing(position)
            for entry in self._read(file, position, min(_READ_ENTRIES, stop - position)):
                if not entry.is_written:
                    if position >= self.max_queue_offset():
                        return
                    entry = self._read_again(file, position)
                yield entry
                position += 1

    def numbered(self, queue_offset: int, stop: int) -> Iterator[tuple[int, ConsumeQueueEntry]]:
        """See QueueReader; raises as `entries` does."""
        return enumerate(self.entries(queue_offset, stop), queue_offset)

    def after(self, queue_offset: int, entry: ConsumeQueueEntry) -> int:
        return queue_offset + 1

    def span(self, queue_offset: int) -> tuple[int, int]:
        return queue_offset, queue_offset + 1

    def entry_bytes(self, queue_offset: int, stop: int) -> Iterator[bytes]:
        """The stored bytes of the entries from that number to `stop`, written or not, some thousand at a time.

        Raises StoreNotFoundError for a file that has expired, StoreAccessError.
        """
        for file in self._files:
            first, last = max(queue_offset, file.start), min(stop, file.stop)
            for begin in range(first, last, _BULK_ENTRIES):
                length = min(_BULK_ENTRIES, last - begin) * self._entry_bytes
                yield self._open(file).read((begin - file.start) * self._entry_bytes, length)

    def max_queue_offset(self) -> int:
        """Queue offset that the next message gets."""
        return self._settled(self._max)

    def min_queue_offset(self, min_physical_offset: int = 0) -> int:
        """Queue offset of the first message at or after that physical offset, else the maximum.

        An empty entry counts as one: whoever reads it learns of the damage.
        """
        return self._settled(lambda: self._min(min_physical_offset))

    def files_before(self, min_physical_offset: int) -> list[str]:
        """Files, oldest first and never the last, all of whose entries are of messages before that offset."""
        found: list[str] = []
        for file in self._files[:-1]:
            last = self._last_entry(file)
            if last is None or not last.is_written or last.physical_offset >= min_physical_offset:
                break
            found.append(file.path)
        return found

    def _last_entry(self, file: QueueFile) -> ConsumeQueueEntry | None:
        """The last entry of a file that is not pre-blank, as far as there is one."""
        for stop in range(file.count, 0, -_READ_ENTRIES):
            begin = max(stop - _READ_ENTRIES, 0)
            if stop == file.count and (last := self._entry(file, file.stop - 1)) != PRE_BLANK:
                return last
            found = list(self._read(file, file.start + begin, stop - begin))
            others = [entry for entry in found if entry != PRE_BLANK]
            if others:
                return others[-1]
        return PRE_BLANK if file.count else None

    def _settled(self, look: Callable[[], int]) -> int:
        """What `look` finds; where a file has expired under it, what it finds in those that are there then."""
        while True:
            before = self._files
            try:
                return look()
            except StoreNotFoundError:
                self._list()
                if self._files == before:
                    raise

    def _max(self) -> int:
        end = self._end
        if not end or not self._is_written(end - 1):
            end = self._last_written()
        for entry in self._on_from(end):
            if not entry.is_written:
                break
            end += 1
        self._end = end
        return end

    def _is_written(self, queue_offset: int) -> bool:
        file = self._file_of(queue_offset)
        return file is not None and self._entry(file, queue_offset).is_written

    def _on_from(self, queue_offset: int) -> Iterator[ConsumeQueueEntry]:
        """Entries, written or not, up to the end of the files."""
        while (file := self._file_of(queue_offset)) is not None:
            yield from self._read(file, queue_offset, _READ_ENTRIES)
            queue_offset = min(queue_offset + _READ_ENTRIES, file.stop)

    def _last_written(self) -> int:
        """One more than the number of the last entry that is written, whatever lies before it."""
        for file in reversed(self._files):
            reader = self._open(file)
            written = bisect_left(
                range(file.count), True, key=lambda n: not self._entry_at(reader, n).is_written
            )
            if reader.has_data(written * self._entry_bytes, file.count * self._entry_bytes):
                last = reader.last_nonzero(file.count * self._entry_bytes)
                stop = written if last is None else last // self._entry_bytes + 1
                while stop > written and not self._entry_at(reader, stop - 1).is_written:
                    stop -= 1
                written = stop
            if written:
                return file.start + written
        return self._starts[0] if self._starts else 0

    def _min(self, min_physical_offset: int) -> int:
        if self._least is None or self._least[0] != min_physical_offset:
            first = self._first_left(min_physical_offset)
            if first is None:
                return self._max()
            self._least = min_physical_offset, first
        return self._least[1]

    def _first_left(self, min_physical_offset: int) -> int | None:
        for file in self._files:
            reader = self._open(file)
            first = first_at(
                min_physical_offset, 0, file.count, partial(self._entry_at, reader),
                partial(self._not_blank, reader),
            )  # fmt: skip
            if first < file.count and file.start + first < self._max():
                return file.start + first
        return None

    def _not_blank(self, reader: SparseReader, number: int, count: int) -> int:
        """The first entry of a file from `number` on that is not pre-blank; `count` if all are."""
        step = _READ_ENTRIES
        while number < count:
            step = min(step, count - number)
            data = reader.read(number * self._entry_bytes, step * self._entry_bytes)
            if data != self._blank * step:
                of_entries = range(0, len(data), self._entry_bytes)
                blank, length = self._blank, self._entry_bytes
                return number + next(
                    (n for n, at in enumerate(of_entries) if data[at : at + length] != blank), step
                )
            number, step = number + step, _BULK_ENTRIES
        return count

    def _file_of(self, queue_offset: int) -> QueueFile | None:
        place = bisect_right(self._starts, queue_offset) - 1
        file = self._files[place] if place >= 0 else None
        return file if file is not None and queue_offset < file.stop else None

    def _missing(self, queue_offset: int) -> MessageNotFoundError | LostEntriesError:
        """What to raise for a queue offset that no file holds."""
        if self._starts and self._starts[0] <= queue_offset < self.max_queue_offset():
            resume = self._starts[bisect_right(self._starts, queue_offset)]
            return self._lost(self.folder, queue_offset * self._entry_bytes, queue_offset, resume)
        return MessageNotFoundError(f"{self.folder}: no file holds queue offset {queue_offset}")

    def _read_again(self, file: QueueFile, queue_offset: int) -> ConsumeQueueEntry:
        """An entry that was empty: it may have been on its way. Raises MessageNotFoundError, LostEntriesError."""
        if queue_offset >= self.max_queue_offset():
            where = f"{file.path}: queue offset {queue_offset}"
            raise MessageNotFoundError(f"{where}: no entry there")
        time.sleep(self._patience_s)
        resume = queue_offset
        for entry in self._on_from(queue_offset):
            if entry.is_written:
                break
            resume += 1
        if resume > queue_offset:
            at = (queue_offset - file.start) * self._entry_bytes
            raise self._lost(file.path, at, queue_offset, resume)
        return entry

    @staticmethod
    def _lost(path: str, position: int, queue_offset: int, resume: int) -> LostEntriesError:
        entries = f"the entries of queue offsets {queue_offset} to {resume - 1} are lost"
        reason = f"{entries}, but later ones exist; rebuild the ConsumeQueues"
        return LostEntriesError(path, position, reason, resume)

    def _entry(self, file: QueueFile, queue_offset: int) -> ConsumeQueueEntry:
        return self._entry_at(self._open(file), queue_offset - file.start)

    def _read(self, file: QueueFile, queue_offset: int, count: int) -> Iterator[ConsumeQueueEntry]:
        """At most so many entries of a file from that one on, read at once."""
        length = min(count, file.stop - queue_offset) * self._entry_bytes
        return self._decode_all(
            self._open(file).read((queue_offset - file.start) * self._entry_bytes, length)
        )

    def _open(self, file: QueueFile) -> SparseReader:
        return self._open_files.get(file.path, file.inode)

    def _entry_at(self, reader: SparseReader, number: int) -> ConsumeQueueEntry:
        return self._decode(reader.read(number * self._entry_bytes, self._entry_bytes))
