"""The files of one ConsumeQueue as a crash left them: read by position, cut off at one."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput.config import StoreConfig
from reput.errors import StoreError
from reput.files.disk import Disk
from reput.files.reader import FileReader
from reput.format.consume_queue import ENTRY_BYTES, PRE_BLANK, ConsumeQueueEntry, decode_entry
from reput.format.file_names import CONSUME_QUEUE_FOLDER, parse_offset_file_name
from reput.log.dispatch_batch import Queue
from reput.queues.set_reader import ConsumeQueueSetReader
from reput.queues.writer import ConsumeQueueWriter, queue_folder

_ENTRY_WORDS = ENTRY_BYTES // 4
_CLEARED_BYTES = 1 << 20
_MAX_OFFSET = 2**63 - 1


class QueueFiles:
    """Positions are those of entries, counted over all files; what lies after the first gap is not reached.

    first  position of the first entry that the files have room for
    stop   position after the last
    """

    def __init__(self, folder: Path, queue_entries: int) -> None:
        """Raises StoreError for a file that is too large for the settings."""
        self.folder, self._queue_entries = folder, queue_entries
        self._sizes: dict[int, int] = {}  # bytes, by position of the first entry
        self._others: list[Path] = []  # names that no such queue has
        for path in folder.iterdir() if folder.is_dir() else ():
            start = parse_offset_file_name(path.name)
            if start is None:
                continue
            if start % (queue_entries * ENTRY_BYTES):
                self._others.append(path)
                continue
            self._sizes[start // ENTRY_BYTES] = self._size(path)
        self.starts = sorted(self._sizes)
        self.first = self.stop = self.starts[0] if self.starts else 0
        for start in self.starts:
            if start != self.stop:
                break
            self.stop += self._sizes[start] // ENTRY_BYTES
            if self.stop < start + queue_entries:
                break

    def _size(self, path: Path) -> int:
        size = path.stat().st_size
        if size > self._queue_entries * ENTRY_BYTES:
            raise StoreError(
                f"{path}: is larger than {self._queue_entries} entries; "
                "give the broker's settings (mappedFileSizeConsumeQueue)"
            )
        return size

    def ends_at(self, position: int) -> bool:
        """Whether there is no file behind that position but the next, which a broker makes early."""
        return not self._others and (not self.starts or self.starts[-1] <= position)

    def path(self, start: int) -> Path:
        return self.folder / f"{start * ENTRY_BYTES:020d}"

    def read(self, position: int, count: int) -> npt.NDArray[np.uint32]:
        """uint32[n, 5], the bytes of up to `count` entries; fewer where the files end, none before they begin."""
        count = max(min(count, self.stop - position), 0) if position >= self.first else 0
        return self.read_padded(position, count)

    def read_padded(self, position: int, count: int) -> npt.NDArray[np.uint32]:
        """uint32[count, 5], the bytes of that many entries; zeros where no file has them, after a gap too."""
        data = np.zeros((count, _ENTRY_WORDS), np.uint32)
        done = 0
        while done < count:
            within = (position + done) % self._queue_entries
            start, part = position + done - within, data[done : done + self._queue_entries - within]
            there = max(self._sizes.get(start, 0) // ENTRY_BYTES - within, 0)
            if there:
                with FileReader(str(self.path(start))) as reader:
                    target = part[:there].reshape(-1).view(np.uint8)
                    reader.read_into(target, within * ENTRY_BYTES)
            done += len(part)
        return data

    def place(self, position: int) -> tuple[str, int]:
        """Path of the file that has, or would have, that entry, and its first byte there."""
        within = position % self._queue_entries
        return str(self.path(position - within)), within * ENTRY_BYTES

    def entry(self, position: int) -> ConsumeQueueEntry | None:
        """The entry there, None where none is written."""
        if not self.first <= position < self.stop:
            return None
        entry = decode_entry(self.read(position, 1).tobytes())
        return entry if entry.is_written else None

    def first_at(self, physical_offset: int, low: int, high: int) -> int:
        """The first position from `low` to `high` of a message at or after that offset, or of nothing; else `high`.

        The entries between must be in order.
        """
        return bisect_left(
            range(high), True, lo=min(low, high), key=lambda at: self._is_at(at, physical_offset)
        )

    def _is_at(self, position: int, physical_offset: int) -> bool:
        entry = self.entry(position)
        if entry is None:
            return True
        return entry != PRE_BLANK and entry.physical_offset >= physical_offset

    @property
    def written(self) -> int:
        """Position after the last entry, where the entries are in order."""
        return self.first_at(_MAX_OFFSET, self.first, self.stop)

    def end_before(self, position: int) -> int:
        """Physical offset at which the message of the entry before `position` ends; -1 where there is none."""
        entry = self.entry(position - 1)
        if entry is None or entry == PRE_BLANK:
            return -1
        return entry.physical_offset + entry.size

    def has_before(self, physical_offset: int) -> bool:
        """Whether a message before that offset has an entry."""
        return self.end_before(self.first_at(physical_offset, self.first, self.stop)) >= 0

    def cut(
        self, position: int, durable: int, log_begin: int, disk: Disk, is_begun: bool
    ) -> ConsumeQueueWriter:
        """Keep the entries before `position`, nothing behind them, durably; the queue, to be appended to.

        Those before `durable` are so already. With `is_begun` a full file is followed by an empty one.
        """
        end = self.end_before(position)
        if end < 0:  # a queue does not end with pre-blank entries
            self._clear(0, disk)
            return ConsumeQueueWriter(self.folder, self._queue_entries, disk=disk)
        self._clear(position, disk, is_begun)
        for start in self.starts:
            if durable < start + self._queue_entries and start < position:
                with disk.open(self.path(start), self._queue_entries * ENTRY_BYTES) as file:
                    file.sync()
        return ConsumeQueueWriter(
            self.folder, self._queue_entries, position, end, disk, is_expired=end <= log_begin
        )

    def _clear(self, position: int, disk: Disk, is_begun: bool = False) -> None:
        start = position - position % self._queue_entries
        is_begun = is_begun and start == position
        kept = position + is_begun
        gone = [self.path(other) for other in reversed(self.starts) if other >= kept]
        for path in (*self._others, *gone):
            disk.delete(path)
        if gone or self._others:
            disk.sync_folder(self.folder)
        if start in self._sizes and (start < position or is_begun):
            self._clear_file(start, (position - start) * ENTRY_BYTES, disk)
        elif is_begun:
            disk.open(self.path(start), self._queue_entries * ENTRY_BYTES).close()
            disk.sync_folder(self.folder)

    def _clear_file(self, start: int, keep: int, disk: Disk) -> None:
        """Zeros from byte `keep` on, and the size that it should have."""
        size = self._queue_entries * ENTRY_BYTES
        with FileReader(str(self.path(start))) as reader:
            last = reader.last_nonzero(self._sizes[start])
        stop = 0 if last is None else last + 1
        if stop <= keep and self._sizes[start] == size:
            return
        with disk.open(self.path(start), size) as file:
            for begin in range(keep, stop, _CLEARED_BYTES):
                file.write(bytes(min(_CLEARED_BYTES, stop - begin)), begin)
            file.sync()


def find_queues(store: Path, config: StoreConfig) -> dict[Queue, QueueFiles]:
    """Raises StoreError for files of another size."""
    folder = store / CONSUME_QUEUE_FOLDER
    return {
        Queue(topic, queue_id): QueueFiles(
            queue_folder(folder, topic, queue_id), config.queue_entries
        )
        for topic, queue_id in ConsumeQueueSetReader(store).list()
    }
