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
from reput.files.disk import Disk
from reput.format.batch_consume_queue import (
    BATCH_ENTRY_BYTES,
    batch_entry,
    encode_batch_entry,
    stated_batch_size,
)
from reput.format.commit_log import SYS_FLAG_INNER_BATCH
from reput.format.consume_queue import ConsumeQueueEntry
from reput.format.properties import INNER_NUM
from reput.log.keyed_record import read_properties
from reput.log.reader import CommitLogReader
from reput.queues.queue_files import QueueFiles

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
        self._batch_size_of = batch_size_of
        self.count, self.position, self.max_physical_offset = count, position, max_physical_offset
        self._files = QueueFiles(folder, file_bytes, BATCH_ENTRY_BYTES, disk, count)

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
        self._files.write(memoryview(entries), self.count)
        # Only now: an append that failed is tried again.
        taken = len(entries) // BATCH_ENTRY_BYTES
        self.count, self.position, self.max_physical_offset = self.count + taken, position, last
        return taken

    def is_due(self, least_pages: int) -> bool:
        """Whether so many pages are dirty, or a file is full; 0 for anything that is dirty."""
        return self._files.is_due(self.count, least_pages)

    def start_writeback(self) -> None:
        """Have the system write what is dirty."""
        self._files.start_writeback()

    def check_in_place(self) -> None:
        """See `QueueFiles.check_in_place`. Raises StoreFailedError, StoreAccessError."""
        self._files.check_in_place()

    def sync(self) -> None:
        """See `QueueFiles.sync`. Raises StoreAccessError."""
        self._files.sync(self.count)

    def close(self, sync: bool) -> None:
        """Close the files; the queue can still be appended to."""
        self._files.close(sync)
