"""BatchConsumeQueue, the writing side: an entry for each record, in files that follow each other.

Mirrors `BatchConsumeQueue.putBatchMessagePositionInfo` (tag rocketmq-all-5.3.3): an entry is dropped where the queue
has one of a later record, and there is no pre-blank.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptMessageError, MessageNotFoundError
from reput.files.dirty_pages import is_worth_a_flush
from reput.files.disk import Disk
from reput.files.writer import FileWriter
from reput.format.batch_consume_queue import (
    BATCH_ENTRY_BYTES,
    batch_entry,
    encode_batch_entry,
    stated_batch_size,
)
from reput.format.commit_log import SYS_FLAG_INNER_BATCH
from reput.format.consume_queue import ConsumeQueueEntry
from reput.format.file_names import offset_file_name
from reput.format.properties import INNER_NUM
from reput.log.keyed_record import read_properties
from reput.log.reader import CommitLogReader

BatchSizeOf = Callable[[int], int]
"""How many messages the inner batch at a physical offset holds."""


def batch_size_in(log: CommitLogReader) -> BatchSizeOf:
    """What the records of a log say; 1 where one does not."""

    def batch_size_of(physical_offset: int) -> int:
        try:
            stated = read_properties(log.locate(physical_offset)).get(INNER_NUM)
        except (MessageNotFoundError, CorruptMessageError):  # states another offset than its own
            return 1
        return stated_batch_size(stated) or 1

    return batch_size_of


class BatchQueueWriter:
    """One batch queue that is being written.

    count                entries it has
    position             queue offset that its next message gets, None before the first
    max_physical_offset  where the record of its last entry begins, -1 without one
    """

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
        self._folder, self._file_bytes, self._batch_size_of = folder, file_bytes, batch_size_of
        self._file_entries = file_bytes // BATCH_ENTRY_BYTES
        self.count, self.position, self.max_physical_offset = count, position, max_physical_offset
        self._files: dict[int, FileWriter] = {}
        self._disk = disk or Disk()
        self._has_new_files = False
        self._flushed = count

    def append(
        self,
        messages: npt.NDArray[np.void],
        rows: npt.NDArray[np.int64],
        queue_offset: npt.NDArray[np.int64],
    ) -> int:
        """Append the entries of messages[rows]; return how many were taken. Raises StoreAccessError."""
        of_queue = messages[rows]
        columns = (
            of_queue["physical_offset"], of_queue["size"], of_queue["tags_code"],
            of_queue["store_timestamp"], queue_offset, of_queue["sys_flag"],
        )  # fmt: skip
        entries, last, position = bytearray(), self.max_physical_offset, self.position
        for at, size, code, timestamp, base, flag in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            if at <= last:
                continue
            count = self._batch_size_of(at) if flag & SYS_FLAG_INNER_BATCH else 1
            entry = batch_entry(ConsumeQueueEntry(at, size, code), timestamp, base, count)
            entries += encode_batch_entry(entry)
            last, position = at, entry.stop
        self._write(memoryview(entries))
        # Only now: an append that failed is tried again.
        taken = len(entries) // BATCH_ENTRY_BYTES
        self.count, self.position, self.max_physical_offset = self.count + taken, position, last
        return taken

    def is_due(self, least_pages: int) -> bool:
        """Whether so many pages are dirty, or a file is full; 0 for anything that is dirty."""
        flushed, written = self._flushed * BATCH_ENTRY_BYTES, self.count * BATCH_ENTRY_BYTES
        return least_pages == 0 or is_worth_a_flush(flushed, written, least_pages, self._file_bytes)

    def start_writeback(self) -> None:
        for file in list(self._files.values()):
            file.start_writeback()

    @property
    def open_files(self) -> int:
        return len(self._files)

    def sync(self) -> None:
        """As ConsumeQueueWriter.sync. Raises StoreAccessError."""
        reached, files, has_new_names = self.count, self._files.copy(), self._has_new_files
        if has_new_names:  # set again by whoever makes a file from now on
            self._has_new_files = False
        for file in files.values():
            file.sync()
        for number in sorted(files)[:-1]:
            self._files.pop(number).close()
        if has_new_names:
            for folder in (self._folder, self._folder.parent, self._folder.parent.parent):
                self._disk.sync_folder(folder)
        self._flushed = reached

    def close(self, sync: bool) -> None:
        """Close the files; the queue can still be appended to."""
        for file in self._files.values():
            if sync:
                file.sync()
            file.close()
        self._files.clear()

    def _write(self, entries: memoryview) -> None:
        number = self.count
        while entries:
            within = number % self._file_entries
            part = entries[: (self._file_entries - within) * BATCH_ENTRY_BYTES]
            self._file(number // self._file_entries).write(part, within * BATCH_ENTRY_BYTES)
            entries, number = entries[len(part) :], number + len(part) // BATCH_ENTRY_BYTES

    def _file(self, number: int) -> FileWriter:
        file = self._files.get(number)
        if file is None:
            if not self._files:
                self._disk.create_folder(self._folder)
            path = self._folder / offset_file_name(number * self._file_bytes)
            self._has_new_files |= not path.exists()
            file = self._files[number] = self._disk.open(path, self._file_bytes)
        return file
