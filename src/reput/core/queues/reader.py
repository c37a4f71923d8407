"""Read queues in files: find the physical offset of a queue's n-th message.

Mirrors `ConsumeQueue.getIndexBuffer`, `.getMinOffsetInQueue`, `.getMaxOffsetInQueue` (tag rocketmq-all-4.9.3),
`ConsumeQueueExt.get` and `BatchConsumeQueue` (tag rocketmq-all-5.3.3).

There are no gaps between the first and the last written entry. A reader searches for both ends once, then follows them
as the queue grows. An empty entry between the ends is damage, and is reported when it is read. If the extension unit of
an entry is unreadable, the entry keeps the unit's address in place of its tags code. Filters by tag then read the
message itself. Entries of a batch queue ascend by their base offsets, so a queue offset is found by bisection. Unlike a
broker, the reader requires each entry to begin where the previous one ends.
"""

from __future__ import annotations

import sys
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from reput.core.queues.kinds import (
    BATCH_QUEUE,
    CONSUME_QUEUE,
    EXTENSION,
    QueueFile,
    QueueKind,
    follow_growth,
    list_queue_files,
)
from reput.core.queues.queue_index import LostEntriesError
from reput.errors import MessageNotFoundError, StoreNotFoundError
from reput.format.consume_queue import PRE_BLANK, BatchEntry, ConsumeQueueEntry, encode_entry
from reput.format.consume_queue_ext import (
    UNIT_BYTES,
    ExtensionUnit,
    decode_unit,
    is_address,
    position_of,
    unit_size,
)
from reput.io import LOCAL, GrowthWatch, OpenFiles, SparseReader, Storage, Watched

_READ_ENTRIES = 512
_BULK_ENTRIES = 1 << 15
_BATCH_ENTRIES = 1 << 12
# Number of results of `min_queue_offset` that a queue keeps.
_MOST_PLACES = 1 << 8
# Seconds to wait before an empty entry is read again. A writer may already have written the entry: the writer's memory
# pages may become visible to readers out of order.
_PATIENCE_S = 0.01
_BLANK = encode_entry(PRE_BLANK)


class ConsumeQueueReader:
    """The files of one queue, as a QueueReader. Files may grow, be created and expire while it is open.

    folder  folder of the files, <topic>/<queue id>
    """

    def __init__(
        self,
        folder: str,
        open_files: OpenFiles | None = None,
        storage: Storage = LOCAL,
        kind: QueueKind = CONSUME_QUEUE,
    ) -> None:
        """Open a queue. Queues of one storage may share `open_files`. Raises StoreAccessError."""
        self.folder, self.kind, self._storage = folder, kind, storage
        self._entry_bytes = kind.entry_bytes
        self._open_files = OpenFiles(storage.open) if open_files is None else open_files
        self._watch = GrowthWatch(storage.watch(folder))
        self._listing = Watched(self._watch, self._list, None)
        self._files: list[QueueFile] = []
        self._starts: list[int] = []
        # The queue's end, as the last search found it.
        self._end: int | None = None
        # The argument of the last call of `min_queue_offset`, and the result.
        self._least: tuple[int, int] | None = None
        # Earlier results by argument. Each is compared with the entries around it before it is used again.
        self._places: dict[int, int] = {}
        self.refresh()

    def _list(self) -> None:
        files = list_queue_files(self.folder, self._storage, self.kind)
        follow_growth(self._watch, files, self.kind)
        if files != self._files:
            removed = set(self._files) - set(files)
            self._open_files.drop((file.path, file.inode) for file in removed)
            self._files, self._starts = files, [file.start for file in files]
            self._end = self._least = None
            self._places.clear()

    def refresh(self) -> bool:
        """List the files again if the folder or their sizes have changed. Return whether there are any files."""
        self._listing.get()
        return bool(self._files)

    def close(self) -> None:
        self._open_files.close()

    def entry(self, queue_offset: int) -> ConsumeQueueEntry:
        """Return the entry of a queue offset.

        Raises:
            MessageNotFoundError: the entry was not written, or has expired.
            LostEntriesError: the entry is empty or missing although later entries exist.
            StoreAccessError: a file cannot be read.
        """
        file = self._file_of(queue_offset)
        try:
            if file is None:
                raise self._missing(queue_offset)
            entry = self._entry(file, queue_offset)
            if not entry.is_written:
                entry = self._read_again(file, queue_offset)
        except StoreNotFoundError as error:
            raise MessageNotFoundError(str(error)) from None
        if entry == PRE_BLANK:
            # A pre-blank entry leads to no message: it only fills a place in the queue.
            where = f"{file.path}: queue offset {queue_offset}"
            raise MessageNotFoundError(f"{where}: no entry there")
        return entry

    def entries(self, queue_offset: int, stop: int) -> Iterator[ConsumeQueueEntry]:
        """Yield the existing entries from `queue_offset` to before `stop`.

        Raises:
            StoreNotFoundError: a file has expired.
            LostEntriesError: an entry is empty or missing although later entries exist.
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
        """Yield the bytes of entries from `queue_offset` to before `stop`, in large pieces.

        Entries that were never written are included, as zeros. Raises StoreAccessError, and StoreNotFoundError for a
        file that has expired.
        """
        for file in self._files:
            first, last = max(queue_offset, file.start), min(stop, file.stop)
            for begin in range(first, last, _BULK_ENTRIES):
                length = min(_BULK_ENTRIES, last - begin) * self._entry_bytes
                yield self._open(file).read((begin - file.start) * self._entry_bytes, length)

    def max_queue_offset(self) -> int:
        """Return the queue offset that the next message gets.

        In RocketMQ: getMessageTotalInQueue.
        """
        return self._settled(self._max)

    def min_queue_offset(self, min_physical_offset: int = 0) -> int:
        """Return the queue offset of the first message at or after a physical offset, or else `max_queue_offset()`.

        An empty entry counts as a message, so that reading it reports the damage. Given the log's first offset, this
        mirrors `ConsumeQueue.correctMinOffset`.
        """
        return self._settled(lambda: self._min(min_physical_offset))

    def files_before(self, min_physical_offset: int) -> list[str]:
        """Return the files whose entries all belong to messages before a physical offset, oldest first.

        The queue's last file is never returned.
        """
        paths: list[str] = []
        for file in self._files[:-1]:
            last = self._last_entry(file)
            if last is None or not last.is_written or last.physical_offset >= min_physical_offset:
                # Entries are in order, so all later files have newer messages.
                break
            paths.append(file.path)
        return paths

    def _last_entry(self, file: QueueFile) -> ConsumeQueueEntry | None:
        """Return a file's last entry that is not pre-blank. If all are pre-blank, return PRE_BLANK.

        Returns None for an empty file.
        """
        for stop in range(file.count, 0, -_READ_ENTRIES):
            begin = max(stop - _READ_ENTRIES, 0)
            if stop == file.count and (last := self._entry(file, file.stop - 1)) != PRE_BLANK:
                return last
            entries = list(self._read(file, file.start + begin, stop - begin))
            written = [entry for entry in entries if entry != PRE_BLANK]
            if written:
                return written[-1]
        return PRE_BLANK if file.count else None

    def _settled(self, look: Callable[[], int]) -> int:
        """Return the result of `look`. If a file has expired meanwhile, list the files again and repeat the call."""
        while True:
            before = self._files
            try:
                return look()
            except StoreNotFoundError:
                self._list()
                if self._files == before:
                    raise

    def _max(self) -> int:
        # The end only moves forwards, unless the entry before it was cut off.
        end = self._end or 0
        later = self._on_from(end - 1) if end else iter(())
        last = next(later, None)
        if last is None or not last.is_written:
            end = self._last_written()
            later = self._on_from(end)
        for entry in later:
            if not entry.is_written:
                break
            end += 1
        self._end = end
        return end

    def _on_from(self, queue_offset: int) -> Iterator[ConsumeQueueEntry]:
        """Yield the entries from a queue offset to the end of the files.

        A place in which no entry was written yields an empty entry.
        """
        while (file := self._file_of(queue_offset)) is not None:
            yield from self._read(file, queue_offset, _READ_ENTRIES)
            queue_offset = min(queue_offset + _READ_ENTRIES, file.stop)

    def _last_written(self) -> int:
        """Return the position after the last written entry. Gaps before this entry are ignored."""
        for file in reversed(self._files):
            reader = self._open(file)
            written = self._bisected(reader, file.count)
            # An empty entry before the end misleads the bisection, so the rest of the file is searched for data.
            if reader.has_data(written * self._entry_bytes, file.count * self._entry_bytes):
                last = reader.last_nonzero(file.count * self._entry_bytes)
                stop = written if last is None else last // self._entry_bytes + 1
                while stop > written and not self._entry_at(reader, stop - 1).is_written:
                    stop -= 1
                written = stop
            if written:
                return file.start + written
        return self._starts[0] if self._starts else 0

    def _bisected(self, reader: SparseReader, count: int) -> int:
        """Return the number of the first empty entry of a file with `count` entries. The others are in order.

        The last steps of the bisection need one read together.
        """
        blocks = range(0, count, _READ_ENTRIES)
        after = bisect_left(blocks, True, key=lambda n: not self._entry_at(reader, n).is_written)
        if not after:
            return 0
        begin, size = blocks[after - 1], self._entry_bytes
        length = min(_READ_ENTRIES, count - begin)
        data, decode = reader.read(begin * size, length * size), self.kind.decode
        return begin + bisect_left(
            range(length),
            True,
            key=lambda n: not decode(data[n * size : (n + 1) * size]).is_written,
        )

    def _min(self, min_physical_offset: int) -> int:
        if self._least is None or self._least[0] != min_physical_offset:
            first = self._places.get(min_physical_offset)
            if first is None or not self._parts_at(first, min_physical_offset):
                first = self._first_left(min_physical_offset)
                if first is None:
                    # All entries belong to expired messages.
                    return self._max()
                if len(self._places) >= _MOST_PLACES:
                    self._places.clear()
                self._places[min_physical_offset] = first
            self._least = min_physical_offset, first
        return self._least[1]

    def _parts_at(self, queue_offset: int, physical_offset: int) -> bool:
        """Return whether the entry of a queue offset is the first one that leads to or after a physical offset.

        In an ordered queue, the entries on either side show it.
        """
        if not self._leads(queue_offset, lambda offset: offset >= physical_offset):
            return False
        is_first = queue_offset == self._starts[0]
        return is_first or self._leads(queue_offset - 1, lambda offset: offset < physical_offset)

    def _leads(self, queue_offset: int, is_right: Callable[[int], bool]) -> bool:
        file = self._file_of(queue_offset)
        entry = PRE_BLANK if file is None else self._entry(file, queue_offset)
        return entry != PRE_BLANK and entry.is_written and is_right(entry.physical_offset)

    def _first_left(self, min_physical_offset: int) -> int | None:
        for file in self._files:
            reader = self._open(file)
            first = first_at(
                min_physical_offset, 0, file.count, partial(self._entry_at, reader),
                partial(self._not_blank, reader),
            )  # fmt: skip
            # The found entry may be an unwritten one after the end of the queue.
            if first < file.count and file.start + first < self._max():
                return file.start + first
        return None

    def _not_blank(self, reader: SparseReader, number: int, count: int) -> int:
        """Return the number of the first entry at or after `number` that is not pre-blank, or `count` if all are.

        A pre-blank entry is a placeholder that refers to no message. The numbers count the entries of one file.
        """
        step = _READ_ENTRIES
        while number < count:
            step = min(step, count - number)
            data = reader.read(number * self._entry_bytes, step * self._entry_bytes)
            if data != _BLANK * step:
                of_entries = range(0, len(data), self._entry_bytes)
                length = self._entry_bytes
                return number + next(
                    (n for n, at in enumerate(of_entries) if data[at : at + length] != _BLANK), step
                )
            # Long runs of pre-blank entries are skipped with large reads.
            number, step = number + step, _BULK_ENTRIES
        return count

    def _file_of(self, queue_offset: int) -> QueueFile | None:
        place = bisect_right(self._starts, queue_offset) - 1
        file = self._files[place] if place >= 0 else None
        return file if file is not None and queue_offset < file.stop else None

    def _missing(self, queue_offset: int) -> MessageNotFoundError | LostEntriesError:
        """Return the error for a queue offset that no file contains."""
        if self._starts and self._starts[0] <= queue_offset < self.max_queue_offset():
            resume = self._starts[bisect_right(self._starts, queue_offset)]
            return self._lost(self.folder, queue_offset * self._entry_bytes, queue_offset, resume)
        return MessageNotFoundError(f"{self.folder}: no file holds queue offset {queue_offset}")

    def _read_again(self, file: QueueFile, queue_offset: int) -> ConsumeQueueEntry:
        """Read an empty entry again, in case it was just being written.

        Raises MessageNotFoundError, LostEntriesError.
        """
        if queue_offset >= self.max_queue_offset():
            where = f"{file.path}: queue offset {queue_offset}"
            raise MessageNotFoundError(f"{where}: no entry there")
        # Wait for an entry that is just being written. Do not wait in a batch queue: its bisection may meet many lost
        # entries, and would wait at each of them.
        if self.kind is CONSUME_QUEUE:
            time.sleep(_PATIENCE_S)
        resume = queue_offset
        for entry in self._on_from(queue_offset):
            if entry.is_written:
                break
            resume += 1
        if resume > queue_offset:
            at = (queue_offset - file.start) * self._entry_bytes
            raise self._lost(file.path, at, queue_offset, resume)
        # The entry was just being written, and is complete now.
        return entry

    @staticmethod
    def _lost(path: str, position: int, queue_offset: int, resume: int) -> LostEntriesError:
        entries = f"the entries of queue offsets {queue_offset} to {resume - 1} are lost"
        reason = f"{entries}, but later ones exist; rebuild the ConsumeQueues"
        return LostEntriesError(path, position, reason, resume)

    def _entry(self, file: QueueFile, queue_offset: int) -> ConsumeQueueEntry:
        return self._entry_at(self._open(file), queue_offset - file.start)

    def _read(self, file: QueueFile, queue_offset: int, count: int) -> Iterator[ConsumeQueueEntry]:
        """Yield up to `count` entries of a file from a queue offset on, with one read."""
        length = min(count, file.stop - queue_offset) * self._entry_bytes
        return self.kind.decode_all(
            self._open(file).read((queue_offset - file.start) * self._entry_bytes, length)
        )

    def _open(self, file: QueueFile) -> SparseReader:
        return self._open_files.get(file.path, file.inode)

    def _entry_at(self, reader: SparseReader, number: int) -> ConsumeQueueEntry:
        return self.kind.decode(reader.read(number * self._entry_bytes, self._entry_bytes))


class ExtensionFiles:
    """The extension files of one queue.

    folder  folder of the files, <topic>/<queue id>
    """

    def __init__(self, folder: str, open_files: OpenFiles, storage: Storage = LOCAL) -> None:
        self.folder, self._storage, self._open_files = folder, storage, open_files
        self._watch = GrowthWatch(storage.watch(folder))
        self._files = Watched(self._watch, self._list, list[QueueFile]())

    def unit(self, address: int) -> ExtensionUnit | None:
        """Return the unit with this address; None if it is missing or unreadable. Raises StoreAccessError."""
        files, position = self._files.get(), position_of(address)
        place = bisect_right(files, position, key=lambda file: file.start) - 1
        if place < 0 or position >= files[place].stop:
            return None
        file = files[place]
        try:
            reader, at = self._open_files.get(file.path, file.inode), position - file.start
            head = reader.read(at, min(UNIT_BYTES, file.count - at))
            size = unit_size(head) if len(head) == UNIT_BYTES else 0
            if not UNIT_BYTES <= size <= file.count - at:
                # A damaged size must not lead beyond the end of the file.
                return None
            return decode_unit(head if size == UNIT_BYTES else reader.read(at, size))
        # The file has expired.
        except StoreNotFoundError:
            return None

    def files_before(self, address: int) -> list[str]:
        """Return files that end before the unit with this address, oldest first. Raises StoreAccessError."""
        position = position_of(address)
        return [file.path for file in self._files.get() if file.stop <= position]

    def _list(self) -> list[QueueFile]:
        files = list_queue_files(self.folder, self._storage, EXTENSION)
        follow_growth(self._watch, files, EXTENSION)
        return files


class ExtendedQueueReader(ConsumeQueueReader):
    """A ConsumeQueueReader that replaces addresses of extension units by the tags codes in the units."""

    def __init__(
        self, folder: str, units: ExtensionFiles, open_files: OpenFiles, storage: Storage = LOCAL
    ) -> None:
        super().__init__(folder, open_files, storage)
        self.units = units

    def entry(self, queue_offset: int) -> ConsumeQueueEntry:
        return self._resolved(super().entry(queue_offset))

    def entries(self, queue_offset: int, stop: int) -> Iterator[ConsumeQueueEntry]:
        return map(self._resolved, super().entries(queue_offset, stop))

    def stored_entry(self, queue_offset: int) -> ConsumeQueueEntry:
        """Return the entry as it is stored. Its tags code may be the address of its unit in the ConsumeQueueExt."""
        return super().entry(queue_offset)

    def unit_files_before(self, min_physical_offset: int) -> list[str]:
        """Return the extension files whose units all belong to messages before a physical offset, oldest first."""
        stop = self.max_queue_offset()
        for number in range(self.min_queue_offset(min_physical_offset), stop):
            entry = self.stored_entry(number)
            if is_address(entry.tags_code):
                return self.units.files_before(entry.tags_code)
        return []

    def _resolved(self, entry: ConsumeQueueEntry) -> ConsumeQueueEntry:
        if not is_address(entry.tags_code):
            return entry
        unit = self.units.unit(entry.tags_code)
        return entry if unit is None else entry._replace(tags_code=unit.tags_code)


class BatchQueueReader:
    """The files of one batch queue, as a QueueReader. Files may grow, be created and expire while it is open.

    folder  folder of the files, <topic>/<queue id>
    """

    kind = BATCH_QUEUE

    def __init__(
        self, folder: str, open_files: OpenFiles | None = None, storage: Storage = LOCAL
    ) -> None:
        """Open a queue. Queues of one storage may share `open_files`. Raises StoreAccessError."""
        self.folder = folder
        self._files = ConsumeQueueReader(folder, open_files, storage, BATCH_QUEUE)

    def refresh(self) -> bool:
        """List the files again if they have changed; return whether there are any files."""
        return self._files.refresh()

    def close(self) -> None:
        self._files.close()

    def entry(self, queue_offset: int) -> ConsumeQueueEntry:
        """Return the entry that contains this queue offset. Raises the errors of QueueReader."""
        number = self._number_of(queue_offset)
        try:
            entry = self._entry_at(number)
        # The original error names numbers of entries, not queue offsets.
        except LostEntriesError:
            raise self._lost(queue_offset, number) from None
        if entry.base_offset <= queue_offset < entry.stop:
            return entry
        if queue_offset < self.max_queue_offset():
            raise self._lost(queue_offset, number + 1)
        raise MessageNotFoundError(f"{self.folder}: queue offset {queue_offset}: no entry there")

    def entries(self, queue_offset: int, stop: int) -> Iterator[ConsumeQueueEntry]:
        """See QueueReader. A batch has one entry, so the first entry may begin before `queue_offset`."""
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
        # The original error names numbers of entries, not queue offsets.
        except LostEntriesError:
            raise self._lost(queue_offset if expected is None else expected, number) from None
        assert entry is None or isinstance(entry, BatchEntry)
        return entry

    def after(self, queue_offset: int, entry: ConsumeQueueEntry) -> int:
        """See QueueReader."""
        return entry.stop if isinstance(entry, BatchEntry) else queue_offset + 1

    def span(self, queue_offset: int) -> tuple[int, int]:
        """See QueueReader. For a lost queue offset, return the whole range of lost offsets around it."""
        if not 0 <= queue_offset < self.max_queue_offset():
            return queue_offset, queue_offset + 1
        number = self._number_of(queue_offset)
        last = self._last_from(queue_offset, number + 1)
        if last is None:
            return 0, self._lost(queue_offset, number).resume_offset
        if queue_offset < last.stop:
            return last.base_offset, last.stop
        first = max(last.stop, last.base_offset + 1)
        return min(first, queue_offset), self._lost(queue_offset, number + 1).resume_offset

    def entry_bytes(self, queue_offset: int, stop: int) -> Iterator[bytes]:
        """See QueueReader. Also raises LostEntriesError."""
        entries = self.entries(queue_offset, stop)
        while some := list(islice(entries, _BATCH_ENTRIES)):
            yield b"".join(map(encode_entry, some))

    def max_queue_offset(self) -> int:
        """Return the queue offset that the next message gets."""
        count = self._files.max_queue_offset()
        return self._entry_at(count - 1).stop if count > self._first() else 0

    def min_queue_offset(self, min_physical_offset: int = 0) -> int:
        """Return the queue offset of the first message at or after a physical offset, or else `max_queue_offset()`."""
        number = self._files.min_queue_offset(min_physical_offset)
        if number >= self._files.max_queue_offset():
            return self.max_queue_offset()
        try:
            return self._entry_at(number).base_offset
        except LostEntriesError as error:
            # The entry is lost, so use the next existing entry in its place.
            return self._entry_at(error.resume_offset).base_offset

    def files_before(self, min_physical_offset: int) -> list[str]:
        """Return the files whose entries all belong to messages before a physical offset, oldest first.

        The queue's last file is never returned.
        """
        return self._files.files_before(min_physical_offset)

    def _first(self) -> int:
        return self._files.min_queue_offset()

    def _entry_at(self, number: int) -> BatchEntry:
        entry = self._files.entry(number)
        assert isinstance(entry, BatchEntry)
        return entry

    def _number_of(self, queue_offset: int) -> int:
        """Return the number of the last entry with a base offset of at most `queue_offset`.

        Return the number of the first entry if no entry has such a base offset. Raises LostEntriesError, and
        MessageNotFoundError if the queue has no entry.
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
        """Search backwards, from entry `number` - 1 on, for an entry whose base offset is at most `queue_offset`.

        Return the first such entry that is found. Lost entries are skipped. Return None if no such entry exists.
        """
        for before in range(number - 1, self._first() - 1, -1):
            try:
                entry = self._entry_at(before)
            except LostEntriesError:
                continue
            if entry.base_offset <= queue_offset:
                return entry
        return None

    def _base_near(self, number: int, stop: int) -> int:
        """Return the base offset of an entry. If the entry is lost, use the next existing entry."""
        try:
            return self._entry_at(number).base_offset
        except LostEntriesError as error:
            # No entry is left before `stop`.
            if error.resume_offset >= stop:
                return sys.maxsize
            return self._entry_at(error.resume_offset).base_offset

    def _lost(self, queue_offset: int, number: int) -> LostEntriesError:
        """Return the error for a lost entry of this queue offset.

        The error states where reading can continue: at the first intact entry after the lost one. The search for this
        entry begins at entry `number`.
        """
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
        position = number * BATCH_QUEUE.entry_bytes
        return LostEntriesError(self.folder, position, reason, max(resume, queue_offset + 1))


def first_at(
    physical_offset: int,
    low: int,
    high: int,
    entry_of: Callable[[int], ConsumeQueueEntry],
    next_entry: Callable[[int, int], int],
) -> int:
    """Bisect for the first place whose entry is not written yet, or leads to a message at or after an offset.

    Return `high` if no entry meets this condition. The bisection skips pre-blank entries, because they have no physical
    offset.

    Args:
        physical_offset: Offset in the log.
        low: The first place.
        high: The place after the last one. The entries from `low` to `high` are in order.
        entry_of: Returns the entry at a place.
        next_entry: Returns the first place in a range [from, to) whose entry is not pre-blank, or `to`.
    """
    begin, stop = low, high
    while begin < stop:
        at = middle = (begin + stop) // 2
        entry = entry_of(middle)
        if entry == PRE_BLANK:
            at = next_entry(middle, stop)
            if at < stop:
                entry = entry_of(at)
        if at == stop or not entry.is_written or entry.physical_offset >= physical_offset:
            stop = middle
        else:
            begin = at + 1
    return next_entry(max(begin, low), high)
