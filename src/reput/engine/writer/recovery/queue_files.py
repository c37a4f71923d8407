"""Read the files of a queue by position, as a crash left them, and cut off their end.

Entries are numbered over all files of a queue. A position is the number of an entry. Pre-blank entries are placeholders
without a message.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput import core
from reput.base import StoreConfig
from reput.core import first_at
from reput.errors import StoreError
from reput.format.consume_queue import (
    ENTRY_BYTES,
    PRE_BLANK,
    ConsumeQueueEntry,
    decode_entry,
    encode_entry,
)
from reput.format.dtypes import ENTRY_WORDS, RawEntries, entry_fields
from reput.format.file_names import CONSUME_QUEUE_FOLDER, EXTENSION_FOLDER
from reput.io import Disk, FileReader
from reput.kernels.entry_checks import written_entries

_SOME_ENTRIES, _MANY_ENTRIES = 1 << 12, 1 << 16
_MAX_OFFSET = 2**63 - 1
_NO_ENTRY = ConsumeQueueEntry(0, 0, 0)
BLANK_WORDS = np.frombuffer(encode_entry(PRE_BLANK), np.uint32)


class FoundFiles:
    """The files of one queue as a crash left them.

    starts      the number of each file's first entry, ascending
    times       modification time (ns) of each file when it was listed, by the number of its first entry
    file_bytes  size of a full file
    """

    def __init__(self, folder: Path, kind: core.QueueKind, file_bytes: int) -> None:
        """Find the files. Raises StoreError for a file larger than `file_bytes`."""
        self.folder, self._kind, self.file_bytes = folder, kind, file_bytes
        self._file_entries = file_bytes // kind.entry_bytes
        # Size of each file in bytes, and its modification time (ns), by number of its first entry.
        self._sizes: dict[int, int] = {}
        self.times: dict[int, int] = {}
        # Files whose names do not fit the file size. They are deleted.
        self._odd_files: list[Path] = []
        for start, entry in core.offset_entries(str(folder)):
            # Every file of a queue begins at a multiple of the file size. So this file does not belong to the queue.
            if start % file_bytes:
                self._odd_files.append(Path(entry.path))
                continue
            status = os.stat(entry.path)
            if status.st_size > file_bytes:
                raise StoreError(
                    f"{entry.path}: is larger than {file_bytes} bytes; pass the broker's settings "
                    f"({kind.setting})"
                )
            self._sizes[start // kind.entry_bytes] = status.st_size
            self.times[start // kind.entry_bytes] = status.st_mtime_ns
        self.starts = sorted(self._sizes)

    def path(self, start: int) -> Path:
        """Return the path of the file whose first entry has this number."""
        return self.folder / self._kind.file_name(start)

    def _clear(self, position: int, disk: Disk, is_begun: bool = False) -> None:
        """Clear the entries from `position` on, durably.

        With `is_begun`, keep the empty file that begins at `position`, which a broker creates when the previous file is
        full.
        """
        start = position - position % self._file_entries
        is_begun = is_begun and start == position
        stop = position + is_begun
        # Delete the newest file first, so that the remaining files have no hole between them after a power cut.
        paths = [self.path(other) for other in reversed(self.starts) if other >= stop]
        for path in (*self._odd_files, *paths):
            disk.delete(path)
        if paths or self._odd_files:
            disk.sync_folder(self.folder)
        if start in self._sizes and (start < position or is_begun):
            keep = (position - start) * self._kind.entry_bytes
            disk.clear(self.path(start), keep, self.file_bytes)
        elif is_begun:
            disk.open(self.path(start), self.file_bytes).close()
            disk.sync_folder(self.folder)


class QueueFiles(FoundFiles):
    """The files of one ConsumeQueue.

    first      position of the first entry in the files
    stop       position after the last entry for which the files have room; a missing or short file ends the queue
    has_units  whether the queue has extension files, whose units must be in the order of the entries

    In RocketMQ: recoverConsumeQueue.
    """

    has_units = False

    def __init__(self, folder: Path, queue_entries: int) -> None:
        """Find the queue's files. Raises StoreError for a file larger than the configured size."""
        super().__init__(folder, core.CONSUME_QUEUE, queue_entries * ENTRY_BYTES)
        self._find_stop()

    @classmethod
    def all_of(cls, store: Path, config: StoreConfig) -> dict[core.Queue, QueueFiles]:
        """Return the files of all ConsumeQueues of a store. Raises StoreError for wrong file sizes."""
        names = (core.Queue(*name) for name in core.ConsumeQueueSetReader(store).list())
        queues, extensions = store / CONSUME_QUEUE_FOLDER, store / EXTENSION_FOLDER
        return {name: cls._in(queues, extensions, name, config) for name in names}

    @classmethod
    def _in(
        cls, queues: Path, extensions: Path, name: core.Queue, config: StoreConfig
    ) -> QueueFiles:
        return cls(core.queue_folder(queues, *name), config.queue_entries)

    def _find_stop(self) -> None:
        self.starts = sorted(self._sizes)
        self.first = self.stop = self.starts[0] if self.starts else 0
        for start in self.starts:
            if start != self.stop:
                break
            self.stop += self._sizes[start] // ENTRY_BYTES
            # A short file ends the queue: between its last entry and the next file, positions would be missing.
            if self.stop < start + self._file_entries:
                break

    def has_bit_maps(self, position: int) -> bool:
        """Return whether any entry at or after `position` has a unit with a bit map."""
        return False

    def ends_at(self, position: int) -> bool:
        """Return whether no file begins after `position`.

        A file may begin exactly there, because a broker creates the next file in advance.
        """
        return not self._odd_files and (not self.starts or self.starts[-1] <= position)

    def file_start(self, position: int) -> int:
        """Return the first position of the file that contains, or would contain, `position`."""
        return position - position % self._file_entries

    def read(self, position: int, count: int) -> RawEntries:
        """Return the bytes of up to `count` entries.

        The result has fewer entries at the end of the queue, and none if `position` lies before the first entry.
        """
        count = max(min(count, self.stop - position), 0) if position >= self.first else 0
        return self.read_padded(position, count)

    def read_padded(self, position: int, count: int) -> RawEntries:
        """Return the bytes of `count` entries. Missing entries are zeros.

        Entries can be missing because a file is missing or too short.
        """
        data = np.zeros((count, ENTRY_WORDS), np.uint32)
        done = 0
        while done < count:
            within = (position + done) % self._file_entries
            start, part = position + done - within, data[done : done + self._file_entries - within]
            present = max(self._sizes.get(start, 0) // ENTRY_BYTES - within, 0)
            if present:
                with FileReader(str(self.path(start))) as reader:
                    target = part[:present].reshape(-1).view(np.uint8)
                    reader.read_into(target, within * ENTRY_BYTES)
            done += len(part)
        return data

    def entry(self, position: int) -> ConsumeQueueEntry | None:
        """Return the entry at `position`, or None if it was not written."""
        entry = self._stored_entry(position)
        return entry if entry.is_written else None

    def _stored_entry(self, position: int) -> ConsumeQueueEntry:
        if not self.first <= position < self.stop:
            return _NO_ENTRY
        return decode_entry(self.read(position, 1).tobytes())

    def first_at(self, physical_offset: int, low: int, high: int) -> int:
        """Return the first position in [low, high) that has no entry, or whose entry has at least this physical offset.

        Returns `high` if no such position exists. The entries must ascend by physical offset. Pre-blank entries are
        skipped.
        """
        return first_at(physical_offset, low, high, self._stored_entry, self.next_entry)

    def next_entry(self, position: int, stop: int) -> int:
        """Return the first position in [position, stop) whose entry is not pre-blank; `stop` if all are pre-blank."""
        if position < stop and self.entry(position) != PRE_BLANK:
            return position
        for begin in range(position, stop, _SOME_ENTRIES):
            rows = _not_blank(self.read(begin, min(_SOME_ENTRIES, stop - begin)))
            if len(rows):
                return begin + int(rows[0])
        return max(position, stop)

    def last_before(self, position: int) -> int:
        """Return the last position before `position` whose entry is not pre-blank, or -1 if all are pre-blank."""
        for stop in range(position, self.first, -_SOME_ENTRIES):
            begin = max(stop - _SOME_ENTRIES, self.first)
            # The usual case: the last entry leads to a message, and one small read suffices.
            if stop == position and stop - 1 >= begin and self.entry(stop - 1) != PRE_BLANK:
                return stop - 1
            rows = _not_blank(self.read(begin, stop - begin))
            if len(rows):
                return begin + int(rows[-1])
        return -1

    @property
    def written(self) -> int:
        """Return the position after the last entry. The entries must ascend by physical offset."""
        return self.first_at(_MAX_OFFSET, self.first, self.stop)

    def end_before(self, position: int) -> int:
        """Find the last entry before `position`, and return the physical offset after its message.

        Returns -1 if there is no such message.
        """
        entry = self.entry(self.last_before(position))
        return -1 if entry is None else entry.physical_offset + entry.size

    def has_before(self, physical_offset: int) -> bool:
        """Return whether a message before `physical_offset` has an entry."""
        return self.end_before(self.first_at(physical_offset, self.first, self.stop)) >= 0

    def ordered_stop(self, position: int) -> int:
        """Return the first position at or after `position` whose entry is unwritten or out of order.

        An entry is out of order if its message does not lie after the message of the previous entry.
        """
        before = -1
        for begin in range(position, self.stop, _MANY_ENTRIES):
            part = self.read(begin, min(_MANY_ENTRIES, self.stop - begin))
            count = int(written_entries(part, before))
            if count < len(part):
                return begin + count
            rows = _not_blank(part)
            before = int(physical_offsets(part[rows[-1:]])[0]) if len(rows) else before
        return max(position, self.stop)

    def has_data_from(self, position: int) -> bool:
        """Return whether any byte from `position` on is not zero."""
        for start in self.starts:
            at = max(position - start, 0) * ENTRY_BYTES
            if at < self._sizes[start]:
                with FileReader(str(self.path(start))) as reader:
                    last = reader.last_nonzero(self._sizes[start])
                if last is not None and last >= at:
                    return True
        return False

    def all_entries(self, position: int) -> Iterator[tuple[int, RawEntries]]:
        """Yield, for each file from `position` on, the position of its first entry and its entries.

        Includes files after holes.
        """
        for start in self.starts:
            first = max(position, start)
            count = start + self._sizes[start] // ENTRY_BYTES - first
            if count > 0:
                yield first, self.read_padded(first, count)

    def write(self, positions: npt.NDArray[np.int64], entries: RawEntries, disk: Disk) -> None:
        """Overwrite the entries at these ascending positions, durably. Raises StoreAccessError."""
        disk.create_folder(self.folder)
        places = positions // self._file_entries
        for place in np.unique(places).tolist():
            start = place * self._file_entries
            rows = np.flatnonzero(places == place)
            runs = np.split(rows, np.flatnonzero(np.diff(positions[rows]) > 1) + 1)
            with disk.open(self.path(start), self.file_bytes) as file:
                for run in runs:
                    at = (int(positions[run[0]]) - start) * ENTRY_BYTES
                    file.write(entries[run].data.cast("B"), at)
                file.sync()
            self._sizes[start] = self.file_bytes
        # The folders of the topic and the queue may be new, and their names must survive a power cut.
        for folder in (self.folder, self.folder.parent, self.folder.parent.parent):
            disk.sync_folder(folder)
        self._find_stop()

    def delete_before(self, position: int, disk: Disk) -> None:
        """Delete the files that end before a position, oldest first. Raises StoreAccessError."""
        starts = [start for start in self.starts if start + self._file_entries <= position]
        for start in starts:
            disk.delete(self.path(start))
            del self._sizes[start]
        if starts:
            disk.sync_folder(self.folder)
            self._find_stop()

    def cut(
        self, position: int, durable: int, log_begin: int, disk: Disk, is_begun: bool
    ) -> core.ConsumeQueueWriter:
        """Keep only the entries before `position`, durably, and return a writer that appends to the queue.

        Mirrors `ConsumeQueue.truncateDirtyLogicFiles` (tag rocketmq-all-4.9.3).

        Entries before `durable` are durable already. If `position` is the beginning of a file, no entry of this file is
        kept, and the file is deleted. With `is_begun`, keep this file as an empty file, which a broker creates when the
        previous file is full.
        """
        end = self.end_before(position)
        if end < 0:
            # No remaining entry leads to a message. Delete the pre-blank entries (placeholders), because a broker's
            # queue never ends with them.
            self._clear(0, disk)
            return core.ConsumeQueueWriter(self.folder, self._file_entries, disk=disk)
        self._clear(position, disk, is_begun)
        for start in self.starts:
            # Sync the kept entries. The process that wrote them has died, so they may exist only in the page cache.
            if durable < start + self._file_entries and start < position:
                with disk.open(self.path(start), self.file_bytes) as file:
                    file.sync()
        return core.ConsumeQueueWriter(
            self.folder, self._file_entries, position, end, disk, is_expired=end <= log_begin
        )


def physical_offsets(entries: RawEntries) -> npt.NDArray[np.int64]:
    """Return the physical offsets of entries."""
    return entry_fields(entries)["physical_offset"].astype(np.int64)


def sizes(entries: RawEntries) -> npt.NDArray[np.int64]:
    return entry_fields(entries)["size"].astype(np.int64)


def is_blank(entries: RawEntries) -> npt.NDArray[np.bool_]:
    """Return a flag for each entry: whether the entry is pre-blank."""
    blank: npt.NDArray[np.bool_] = (entries == BLANK_WORDS).all(axis=1)
    return blank


def _not_blank(entries: RawEntries) -> npt.NDArray[np.intp]:
    return np.flatnonzero(~is_blank(entries))
