"""Write the files of queues. Each entry of a queue contains the position of one record in the CommitLog.

Mirrors `ConsumeQueue.putMessagePositionInfo`, `.fillPreBlank` (tag rocketmq-all-4.9.3),
`.putMessagePositionInfoWrapper`, `ConsumeQueueExt.put` and `BatchConsumeQueue.putBatchMessagePositionInfo` (tag
rocketmq-all-5.3.3).

All files have the same size. A file is full when its last entry is written. Unwritten bytes are zero.

ConsumeQueue: an entry is appended at the queue's end. In an undamaged queue, an entry's number is its queue offset. An
entry whose queue offset lies before the end is dropped. An entry whose queue offset lies after the end is still
appended at the end, as in a broker, which only logs the gap. But if lost messages explain the gap, pre-blank entries
fill it, so that no later entry moves (`append_entries`). If a queue starts above 0, pre-blank entries fill its first
file up to its first entry.

Extension: each message that was sent to this queue has a unit, a record in consumequeue_ext/. In the message's entry,
the address of the unit replaces the tags code. Messages that are in the queue only because of INNER_MULTI_DISPATCH have
no unit, and their entries keep the tags codes.

Batch queue: each record has one entry. An entry is dropped if the queue already has an entry of this or a later record.
There are no pre-blank entries.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput.core.log.reader import CommitLogReader
from reput.core.queues.kinds import BATCH_QUEUE, CONSUME_QUEUE, EXTENSION, QueueKind, is_light
from reput.errors import CorruptMessageError, MessageNotFoundError
from reput.format.commit_log import SYS_FLAG_INNER_BATCH
from reput.format.consume_queue import (
    MAX_QUEUE_OFFSET,
    PRE_BLANK,
    ConsumeQueueEntry,
    batch_entry,
    encode_batch_entry,
    encode_entry,
    stated_batch_size,
)
from reput.format.consume_queue_ext import (
    END_BYTES,
    FILE_END,
    MAX_UNIT_BYTES,
    ExtensionUnit,
    address_of,
    encode_unit,
)
from reput.format.dtypes import new_entries
from reput.format.properties import INNER_NUM
from reput.io import Disk, Identity, MappedWriter, PooledWriter
from reput.kernels.queue_entries import append_entries

# Maximum number of pre-blank entries (placeholders, which refer to no message) per write.
_MOST_BLANKS = 1 << 16
# Units (records in consumequeue_ext/) are collected in a buffer, which is written when it has this many bytes.
_MOST_BUFFERED_BYTES = 1 << 20
LostRanges = npt.NDArray[np.int64]
"""int64[n, 2]: beginnings and ends of unreadable ranges of the log, as ascending physical offsets."""
NONE_LOST: LostRanges = np.empty((0, 2), np.int64)
BatchSizeOf = Callable[[int], int]
"""A function that returns the number of messages in the inner batch at a physical offset."""


class EntryFilesWriter:
    """The files of one queue, created when they are written to. Entries are numbered from the queue's beginning.

    position  number of the next entry, in batch queues its queue offset; None before the first entry
    """

    def __init__(
        self,
        folder: Path,
        kind: QueueKind,
        file_bytes: int,
        disk: Disk | None = None,
        position: int | None = None,
    ) -> None:
        """Prepare to write files. The existing entries are already durable."""
        self._folder, self._kind, self._file_bytes = folder, kind, file_bytes
        self.position = position
        self._entry_bytes = kind.entry_bytes
        self._file_entries = file_bytes // kind.entry_bytes
        self._files: dict[int, PooledWriter] = {}
        self._disk = disk or Disk()
        self._has_new_files = False
        self._flushed = self.count
        # Number and identity (device and inode) of the newest file, open or closed. If the file at its path has another
        # identity later, another process has replaced the file.
        self._newest: tuple[int, Identity] | None = None
        # Files written since the last call of `check_in_place`, open or closed.
        self._unchecked: dict[int, Identity] = {}

    @property
    def count(self) -> int:
        """Return the number that the next entry gets in the queue's files."""
        return self.position or 0

    def write(self, entries: memoryview, number: int) -> None:
        """Write entries, the first one as entry `number` of the queue. Raises StoreAccessError, StoreFailedError."""
        while entries:
            within = number % self._file_entries
            part = entries[: (self._file_entries - within) * self._entry_bytes]
            self.make(number).write(part, within * self._entry_bytes)
            entries, number = entries[len(part) :], number + len(part) // self._entry_bytes

    def make(self, number: int) -> PooledWriter:
        """Return the file of an entry. Create it if necessary."""
        place = number // self._file_entries
        file = self._files.get(place)
        if file is None:
            if not self._files:
                self._disk.create_folder(self._folder)
            path = self._path(place)
            is_new = not path.exists()
            if self._newest is not None and self._newest[0] == place:
                # Another process may have replaced the file while it was closed.
                self._disk.check_in_place(path, self._newest[1])
            file = self._files[place] = self._disk.open_pooled(path, self._file_bytes)
            self._newest = place, file.identity
            self._has_new_files |= is_new
        self._unchecked[place] = file.identity
        return file

    def _path(self, place: int) -> Path:
        return self._folder / self._kind.file_name(place * self._file_entries)

    def check_in_place(self) -> None:
        """Check that the newest file, and all files written since the last check, still have their names.

        Raises StoreFailedError, StoreAccessError.
        """
        unchecked = self._unchecked.copy()
        if (newest := self._newest) is not None:
            unchecked[newest[0]] = newest[1]
        for place, identity in sorted(unchecked.items()):
            self._disk.check_in_place(self._path(place), identity)
        for place in unchecked.keys() - {max(unchecked, default=0)}:
            # All files before the last one are full, and will not change.
            self._unchecked.pop(place, None)

    def delete_all(self) -> None:
        """Delete the files of the queue, so that the queue can start again."""
        # Delete the newest file first, so that a crash leaves no hole in the queue.
        for path in sorted(self._folder.iterdir(), reverse=True):
            self._disk.delete(path)
        self._disk.sync_folder(self._folder)
        self._flushed, self._newest = 0, None
        self._unchecked.clear()

    def is_due(self, least_pages: int) -> bool:
        """Return whether the entries should be flushed.

        They should if at least `least_pages` of their pages are dirty, or if a full file has dirty pages. If
        `least_pages` is 0, any dirty byte is enough. Mirrors `ConsumeQueue.flush`.
        """
        flushed, written = self._flushed * self._entry_bytes, self.count * self._entry_bytes
        return least_pages == 0 or MappedWriter.is_worth_a_flush(
            flushed, written, least_pages, self._file_bytes
        )

    def start_writeback(self) -> None:
        """Make the system start writing dirty pages."""
        for file in list(self._files.values()):
            file.start_writeback()

    def sync(self) -> None:
        """Make the entries and the names of their files durable. Only the last file stays open.

        Another thread may append meanwhile, because it writes only to the last file. Raises StoreAccessError,
        StoreFailedError.
        """
        # Entries that are appended from now on may not be durable afterwards, so count first.
        count, files, has_new_names = self.count, self._files.copy(), self._has_new_files
        # Clear the flag before the syncs, because a file that is created during the syncs sets it again.
        if has_new_names:
            self._has_new_files = False
        for file in files.values():
            self._disk.check_in_place(Path(file.path), file.identity)
            file.sync()
        # Full files are durable now, and are never written again.
        for place in sorted(files)[:-1]:
            self._files.pop(place).close()
        if has_new_names:
            # The folders of the queue and the topic may be new as well.
            for folder in (self._folder, self._folder.parent, self._folder.parent.parent):
                self._disk.sync_folder(folder)
        self._flushed = count

    def close(self, sync: bool = False) -> None:
        """Close the files. A later write opens them again."""
        for file in self._files.values():
            if sync:
                file.sync()
            file.close()
        self._files.clear()


class QueueWriter(EntryFilesWriter):
    """The common part of writers of queues in files.

    max_physical_offset  physical offset at which the last entry's message ends (in batch queues: begins); -1 without
                         entries

    In RocketMQ: maxPhysicOffset, getMaxPhysicOffset.
    """

    max_physical_offset = -1

    def append(
        self,
        messages: npt.NDArray[np.void],
        rows: npt.NDArray[np.int64],
        queue_offset: npt.NDArray[np.int64],
        lost: LostRanges = NONE_LOST,
    ) -> int:
        """Append the entries of messages[rows]; return the number of accepted entries.

        Args:
            messages: Columns of a DispatchBatch.
            rows: Rows of the messages, in the order of the log.
            queue_offset: Queue offset of each message in this queue. A further element is the queue offset of the next
                message, if known.
            lost: Unreadable ranges of the log, which explain gaps.

        Raises:
            StoreAccessError: a file cannot be written.
        """
        raise NotImplementedError


class ConsumeQueueWriter(QueueWriter):
    """A writer of one ConsumeQueue.

    blanks               number of pre-blank entries written in place of lost messages
    refused_bytes        total size of the messages that were refused since the last entry. They explain a later gap in
                         the queue. -1 for a light queue (LMQ), whose entries follow each other without gaps

    `is_expired` states that the messages of all existing entries have expired. If the next message then does not follow
    the last entry, entries were lost that cannot be derived from the log. In this case, the queue begins again with
    this message, because appending it would misplace all later entries.
    """

    def __init__(
        self,
        folder: Path,
        queue_entries: int,
        position: int | None = None,
        max_physical_offset: int = -1,
        disk: Disk | None = None,
        is_expired: bool = False,
    ) -> None:
        file_bytes = queue_entries * CONSUME_QUEUE.entry_bytes
        super().__init__(folder, CONSUME_QUEUE, file_bytes, disk, position)
        self.max_physical_offset = max_physical_offset
        self._queue_entries, self._is_expired = queue_entries, is_expired
        self.blanks = 0
        self.refused_bytes = -1 if is_light(folder.parent.name) else 0

    def append(
        self,
        messages: npt.NDArray[np.void],
        rows: npt.NDArray[np.int64],
        queue_offset: npt.NDArray[np.int64],
        lost: LostRanges = NONE_LOST,
    ) -> int:
        """See `QueueWriter.append`.

        In RocketMQ: expectLogicOffset, currentLogicOffset.
        """
        if self._is_expired and len(rows):
            # If the next message does not directly follow the queue's last entry, entries are missing, and the log no
            # longer has the messages from which to derive the missing entries. Then begin the queue again with the next
            # message.
            if self.position is not None and queue_offset[0] > self.position:
                self._begin_anew()
            self._is_expired = False
        begin = self.position
        if begin is None:
            begin = first_position(messages[rows], queue_offset[: len(rows)])
        entries = new_entries(len(rows))
        numbers = np.empty(len(rows), np.int64)
        count, position, max_physical_offset, room, refused = append_entries(
            messages, rows, queue_offset, begin, self.max_physical_offset, lost, self.refused_bytes,
            entries, numbers,
        )  # fmt: skip
        if count:
            if self.position is None:
                # A queue that does not begin at 0 fills its first file up to its first entry
                # (`ConsumeQueue.fillPreBlank`).
                self._fill_pre_blank(begin % self._queue_entries, begin)
            self._write(entries[:count], numbers[:count], begin)
            # Set the new end of the queue only after the write, because a failed append is tried again.
            self.position, self.max_physical_offset = int(position), max_physical_offset
            self.blanks += int(position) - begin - int(count)
        self.refused_bytes = room
        if refused and self.position is not None and self.position % self._queue_entries == 0:
            # The broker creates the next file before it checks the entry, so the file exists even if the entry is
            # refused.
            self.make(self.position)
        return int(count)

    def extend(
        self, entries: npt.NDArray[np.uint32], queue_offset: int, max_physical_offset: int
    ) -> None:
        """Append entries that the queue accepts, each directly after the previous one.

        Args:
            entries: RawEntries, as stored in a ConsumeQueue file.
            queue_offset: Queue offset of the first message, which is the position of its entry in a new queue.
            max_physical_offset: Physical offset at which the last message ends.

        Raises:
            StoreAccessError: a file cannot be written.
        """
        begin = queue_offset if self.position is None else self.position
        if self.position is None:
            # As in `append`.
            self._fill_pre_blank(begin % self._queue_entries, begin)
        self.write(entries.data.cast("B"), begin)
        self.position, self.max_physical_offset = begin + len(entries), max_physical_offset

    def _write(
        self, entries: npt.NDArray[np.uint32], numbers: npt.NDArray[np.int64], begin: int
    ) -> None:
        """Write each entry at its position in the queue (in `numbers`).

        Positions from `begin` on that get no entry are filled with pre-blank entries.
        """
        starts = [0]
        # If there are gaps between the entries, pre-blank entries must fill them.
        if numbers[-1] - begin >= len(numbers):
            gaps = np.flatnonzero(np.diff(numbers, prepend=begin - 1) > 1)
            starts = sorted({0, *gaps.tolist()})
        for first, stop in zip(starts, [*starts[1:], len(numbers)], strict=True):
            number = int(numbers[first])
            self._fill_pre_blank(number - begin, number)
            self.write(entries[first:stop].data.cast("B"), number)
            begin = number + stop - first

    def _begin_anew(self) -> None:
        self.delete_all()
        self.position, self.max_physical_offset = None, -1

    def _fill_pre_blank(self, count: int, until: int) -> None:
        """Write `count` pre-blank entries directly before position `until` of the queue."""
        for begin in range(until - count, until, _MOST_BLANKS):
            part = min(_MOST_BLANKS, until - begin)
            self.write(memoryview(encode_entry(PRE_BLANK) * part), begin)


def write_expired_queue(
    folder: Path, queue_entries: int, number: int, entry: ConsumeQueueEntry
) -> None:
    """Write what a broker keeps of a queue whose messages have all expired.

    A broker keeps only the last file of such a queue. This function writes this file, with pre-blank entries before the
    last entry. The last entry must be a real one: a broker mistakes a pre-blank entry for a message that ends at 2 GiB,
    and dispatches no message before that offset. Raises StoreAccessError.
    """
    files = EntryFilesWriter(folder, CONSUME_QUEUE, queue_entries * CONSUME_QUEUE.entry_bytes)
    blank = number % queue_entries
    files.write(memoryview(encode_entry(PRE_BLANK) * blank + encode_entry(entry)), number - blank)
    files.close(sync=True)


def first_position(messages: npt.NDArray[np.void], queue_offset: npt.NDArray[np.int64]) -> int:
    """Return the number that the first entry of a still empty queue gets.

    This number is the queue offset of the first message that the queue accepts; 0 if the queue accepts no message.
    """
    is_behind = messages["physical_offset"] + messages["size"] > -1
    is_placed = is_behind & (queue_offset >= 0) & (queue_offset <= MAX_QUEUE_OFFSET)
    return int(queue_offset[np.argmax(is_placed)]) if is_placed.any() else 0


def batch_size_in(log: CommitLogReader) -> BatchSizeOf:
    """Return a function that reads batch sizes from records of a log. If a record states no size, the size is 1."""

    def batch_size_of(physical_offset: int) -> int:
        try:
            text = log.locate(physical_offset, in_place=False).properties().get(INNER_NUM)
        # The message may state a wrong physical offset, at which no record lies.
        except (MessageNotFoundError, CorruptMessageError):
            return 1
        return stated_batch_size(text) or 1

    return batch_size_of


class BatchQueueWriter(QueueWriter):
    """A writer of one batch queue."""

    def __init__(
        self,
        folder: Path,
        file_bytes: int,
        batch_size_of: BatchSizeOf,
        count: int = 0,
        position: int | None = None,
        max_physical_offset: int = -1,
        disk: Disk | None = None,
    ) -> None:
        self._batch_size_of, self._count = batch_size_of, count
        super().__init__(folder, BATCH_QUEUE, file_bytes, disk, position)
        self.max_physical_offset = max_physical_offset

    @property
    def count(self) -> int:
        return self._count

    def append(
        self,
        messages: npt.NDArray[np.void],
        rows: npt.NDArray[np.int64],
        queue_offset: npt.NDArray[np.int64],
        lost: LostRanges = NONE_LOST,
    ) -> int:
        """See `QueueWriter.append`."""
        of_queue = messages[rows]
        columns = (
            of_queue["physical_offset"], of_queue["size"], of_queue["tags_code"],
            of_queue["store_timestamp"], queue_offset, of_queue["sys_flag"],
        )  # fmt: skip
        entries, last, position = bytearray(), self.max_physical_offset, self.position
        for at, size, code, timestamp, base, flag in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            # After a crash, dispatch begins again a little earlier, with messages that the queue already has.
            if at <= last:
                continue
            count = self._batch_size_of(at) if flag & SYS_FLAG_INNER_BATCH else 1
            entry = batch_entry(ConsumeQueueEntry(at, size, code), timestamp, base, count)
            entries += encode_batch_entry(entry)
            last, position = at, entry.stop
        self.write(memoryview(entries), self.count)
        # The entries are counted only after the write, because a failed append is tried again.
        written = len(entries) // BATCH_QUEUE.entry_bytes
        self._count, self.position, self.max_physical_offset = self._count + written, position, last
        return written


class ExtensionWriter(EntryFilesWriter):
    """A writer of units in the extension files of one queue. Each file has its full size from the beginning.

    position  lowest byte offset at which the next unit can begin
    """

    position: int

    def __init__(
        self, folder: Path, file_bytes: int, position: int = 0, disk: Disk | None = None
    ) -> None:
        super().__init__(folder, EXTENSION, file_bytes, disk, position)
        self._buffer = bytearray()

    def put(self, unit: ExtensionUnit) -> int | None:
        """Return the address of the unit; None if a broker would not write it. Raises StoreAccessError."""
        data = encode_unit(unit) if unit.size_bytes <= MAX_UNIT_BYTES else b""
        if not data or len(data) + END_BYTES > self._file_bytes:
            return None
        within = self.position % self._file_bytes
        # A unit never crosses the end of a file (`ConsumeQueueExt.put`).
        if within + len(data) + END_BYTES > self._file_bytes:
            self._buffer += FILE_END
            self.position += len(FILE_END)
            self.flush()
            # The next extension unit begins in the next file. The rest of this file stays zero.
            self.position += self._file_bytes - self.position % self._file_bytes
        address = address_of(self.position)
        self._buffer += data
        self.position += len(data)
        if len(self._buffer) >= _MOST_BUFFERED_BYTES:
            self.flush()
        return address

    def put_all(self, messages: npt.NDArray[np.void]) -> None:
        """For each message, put a unit without a bit map, and replace the message's tags code by the unit's address."""
        codes, times = messages["tags_code"], messages["store_timestamp"]
        for row, (code, time) in enumerate(zip(codes.tolist(), times.tolist(), strict=True)):
            address = self.put(ExtensionUnit(code, time, b""))
            # If no extension unit was written, the entry keeps its tags code.
            if address is not None:
                codes[row] = address
        self.flush()

    def flush(self) -> None:
        """Write the buffer. Raises StoreAccessError."""
        if self._buffer:
            with memoryview(bytes(self._buffer)) as data:
                self.write(data, self.position - len(data))
            self._buffer.clear()
