"""ConsumeQueue: topic and queue -> positions in the CommitLog. The writing side.

Mirrors `ConsumeQueue.putMessagePositionInfo` and `.fillPreBlank` (tag rocketmq-all-4.9.3).

    consumequeue/<topic>/<queue id>/<byte offset of the first entry, 20 digits>

Every file has `queue_entries` entries of 20 bytes and is full when the last is written; what is not written is
zero. An entry goes where the queue ends, which for an unbroken queue is where its queue offset says: a gap in
the queue offsets does not show in the file (the broker only logs it), an entry from before the end is dropped.
The first file of a queue that starts above 0 is filled up to there with pre-blank entries.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput.errors import StoreError
from reput.files.disk import Disk
from reput.format.consume_queue import ENTRY_BYTES, PRE_BLANK, ConsumeQueueEntry, encode_entry
from reput.format.file_names import is_folder_name
from reput.kernels.queue_entries import MAX_QUEUE_OFFSET, append_entries
from reput.queues.queue_files import QueueFiles

_ENTRY_WORDS = ENTRY_BYTES // 4


def check_topic(topic: str) -> None:
    """Raises StoreError for a topic that cannot name a folder."""
    if not is_folder_name(topic):
        raise StoreError(f"topic {topic!r} cannot be the name of a folder")


def queue_folder(consume_queues: Path, topic: str, queue_id: int) -> Path:
    """Where the queue's files are. Raises StoreError for a topic that cannot name a folder."""
    check_topic(topic)
    return consume_queues / topic / str(queue_id)


class ConsumeQueueWriter:
    """One queue that is being written.

    position             entries it has, None before the first
    max_physical_offset  end of the last message it has

    is_expired says that the log holds no message of these entries any more. Where damage left fewer of them than
    there were, the next message does not follow: the queue begins anew with it, else all would be one place off.
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
        self._queue_entries, self._is_expired = queue_entries, is_expired
        self.position, self.max_physical_offset = position, max_physical_offset
        file_bytes = queue_entries * ENTRY_BYTES
        self._files = QueueFiles(folder, file_bytes, ENTRY_BYTES, disk, position or 0)

    def append(
        self,
        messages: npt.NDArray[np.void],
        rows: npt.NDArray[np.int64],
        queue_offset: npt.NDArray[np.int64],
    ) -> int:
        """Append the entries of messages[rows]; return how many were taken.

        `queue_offset` is each message's number in this queue. Raises StoreAccessError.
        """
        if self._is_expired and len(rows):
            if self.position is not None and queue_offset[0] > self.position:
                self._begin_anew()
            self._is_expired = False
        begin = self.position
        if begin is None:
            begin = first_position(messages[rows], queue_offset)
        entries = np.empty((len(rows), _ENTRY_WORDS), np.uint32)
        position, max_physical_offset, refused = append_entries(
            messages, rows, queue_offset, begin, self.max_physical_offset, entries
        )
        taken = int(position) - begin
        if taken:
            if self.position is None:
                self._fill_pre_blank(begin)
            self._files.write(entries[:taken].data.cast("B"), begin)
            # Only now: an append that failed is tried again.
            self.position, self.max_physical_offset = int(position), max_physical_offset
        if refused and self.position is not None and self.position % self._queue_entries == 0:
            # The broker makes the next file before it looks at the entry
            self._files.make(self.position)
        return taken

    def _begin_anew(self) -> None:
        self._files.delete_all()
        self.position, self.max_physical_offset = None, -1

    def is_due(self, least_pages: int) -> bool:
        """Whether so many pages are dirty, or a file is full (`ConsumeQueue.flush`); 0 for anything that is dirty."""
        return self._files.is_due(self.position or 0, least_pages)

    def start_writeback(self) -> None:
        """Have the system write what is dirty."""
        self._files.start_writeback()

    def check_in_place(self) -> None:
        """See `QueueFiles.check_in_place`. Raises StoreFailedError, StoreAccessError."""
        self._files.check_in_place()

    def sync(self) -> None:
        """See `QueueFiles.sync`. Raises StoreAccessError."""
        self._files.sync(self.position or 0)

    def close(self, sync: bool) -> None:
        """Close the files; the queue can still be appended to."""
        self._files.close(sync)

    def _fill_pre_blank(self, until: int) -> None:
        count = until % self._queue_entries
        self._files.write(memoryview(encode_entry(PRE_BLANK) * count), until - count)


def write_expired_queue(
    folder: Path, queue_entries: int, number: int, entry: ConsumeQueueEntry
) -> None:
    """A queue whose last entry is that one, as a broker has it when all its messages have expired: its last file, here
    with pre-blank entries before the last.

    The last one must be an entry of its own: a broker takes a pre-blank entry for one of a message that ends at 2 GiB,
    and dispatches none before that. Raises StoreAccessError.
    """
    files = QueueFiles(folder, queue_entries * ENTRY_BYTES, ENTRY_BYTES, None, 0)
    blank = number % queue_entries
    files.write(memoryview(encode_entry(PRE_BLANK) * blank + encode_entry(entry)), number - blank)
    files.close(sync=True)


def first_position(messages: npt.NDArray[np.void], queue_offset: npt.NDArray[np.int64]) -> int:
    """Where a queue without entries begins: at the queue offset of the first that will be taken."""
    is_behind = messages["physical_offset"] + messages["size"] > -1
    is_taken = is_behind & (queue_offset >= 0) & (queue_offset <= MAX_QUEUE_OFFSET)
    return int(queue_offset[np.argmax(is_taken)]) if is_taken.any() else 0
