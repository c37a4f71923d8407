"""ConsumeQueue: topic and queue -> positions in the CommitLog. The writing side.

Mirrors `ConsumeQueue.putMessagePositionInfo` and `.fillPreBlank` (tag rocketmq-all-4.9.3).

    consumequeue/<topic>/<queue id>/<byte offset of the first entry, 20 digits>

Every file has `queue_entries` entries of 20 bytes and is full when the last is written; what is not written is
zero. An entry goes where the queue ends, which for an unbroken queue is where its queue offset says. An entry from
before the end is dropped. A gap in the queue offsets is closed up (the broker only logs it), unless lost messages
explain it: then it is filled with pre-blank entries, so that no later entry moves (`append_entries`). The first file
of a queue that starts above 0 is filled up to there with such entries.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput.errors import StoreError
from reput.files.disk import Disk
from reput.format.consume_queue import ENTRY_BYTES, PRE_BLANK, ConsumeQueueEntry, encode_entry
from reput.format.file_names import is_folder_name
from reput.format.properties import LMQ_PREFIX
from reput.kernels.queue_entries import MAX_QUEUE_OFFSET, append_entries
from reput.queues.queue_files import QueueFiles

_ENTRY_WORDS = ENTRY_BYTES // 4
_MOST_BLANKS = 1 << 16
LostRanges = npt.NDArray[np.int64]
"""int64[n, 2]: physical offsets, in order, that no record can be read from."""
NONE_LOST: LostRanges = np.empty((0, 2), np.int64)


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
    blanks               pre-blank entries written in place of lost messages
    refused_bytes        of messages that were refused since the last was taken; -1 for a light queue

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
        self.blanks = 0
        self.refused_bytes = -1 if is_light(folder.parent.name) else 0
        file_bytes = queue_entries * ENTRY_BYTES
        self._files = QueueFiles(folder, file_bytes, ENTRY_BYTES, disk, position or 0)

    def append(
        self,
        messages: npt.NDArray[np.void],
        rows: npt.NDArray[np.int64],
        queue_offset: npt.NDArray[np.int64],
        lost: LostRanges = NONE_LOST,
    ) -> int:
        """Append the entries of messages[rows]; return how many were taken.

        Args:
            messages: Columns of a DispatchBatch.
            rows: Of the messages, in the order of the log.
            queue_offset: Of each message, in this queue; and of the message after the last, where that is known.
            lost: Ranges of the log that cannot be read; they explain gaps.

        Raises:
            StoreAccessError.
        """
        if self._is_expired and len(rows):
            if self.position is not None and queue_offset[0] > self.position:
                self._begin_anew()
            self._is_expired = False
        begin = self.position
        if begin is None:
            begin = first_position(messages[rows], queue_offset[: len(rows)])
        entries = np.empty((len(rows), _ENTRY_WORDS), np.uint32)
        numbers = np.empty(len(rows), np.int64)
        taken, position, max_physical_offset, room, refused = append_entries(
            messages, rows, queue_offset, begin, self.max_physical_offset, lost, self.refused_bytes,
            entries, numbers,
        )  # fmt: skip
        if taken:
            if self.position is None:
                self._fill_pre_blank(begin % self._queue_entries, begin)
            self._write(entries[:taken], numbers[:taken], begin)
            # Only now: an append that failed is tried again.
            self.position, self.max_physical_offset = int(position), max_physical_offset
            self.blanks += int(position) - begin - int(taken)
        self.refused_bytes = room
        if refused and self.position is not None and self.position % self._queue_entries == 0:
            # The broker makes the next file before it looks at the entry
            self._files.make(self.position)
        return int(taken)

    def _write(
        self, entries: npt.NDArray[np.uint32], numbers: npt.NDArray[np.int64], begin: int
    ) -> None:
        """Write entries where their numbers say, and pre-blank ones into the gaps between them from `begin` on."""
        starts = [0]
        if numbers[-1] - begin >= len(numbers):
            gaps = np.flatnonzero(np.diff(numbers, prepend=begin - 1) > 1)
            starts = sorted({0, *gaps.tolist()})
        for first, stop in zip(starts, [*starts[1:], len(numbers)], strict=True):
            number = int(numbers[first])
            self._fill_pre_blank(number - begin, number)
            self._files.write(entries[first:stop].data.cast("B"), number)
            begin = number + stop - first

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

    def _fill_pre_blank(self, count: int, until: int) -> None:
        """Write the pre-blank entries before number `until`."""
        for begin in range(until - count, until, _MOST_BLANKS):
            part = min(_MOST_BLANKS, until - begin)
            self._files.write(memoryview(encode_entry(PRE_BLANK) * part), begin)


def is_light(topic: str) -> bool:
    """Whether a queue of that name is a light one, whose entries follow each other whatever their queue offsets are:
    messages without an entry take such offsets (open transactions), and a 4.9.3 broker begins at 0 at each start.
    """
    return topic.startswith(LMQ_PREFIX)


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
