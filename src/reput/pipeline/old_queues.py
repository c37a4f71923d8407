"""Queues of a store that is rebuilt in place, where their old entries decide about numbers.

If the log is damaged, or the queue offsets of a queue are not certain, the rebuilt queue is a copy of the old one, and
missing entries are written into it. Opening the store for writing does the same: no entry of a message moves
(`recovery.queue_matching`).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from reput.errors import ReputError, is_transient
from reput.files.copies import copy_file
from reput.files.disk import Disk
from reput.files.writer import make_folder, remove_tree
from reput.format.file_names import CONSUME_QUEUE_FOLDER
from reput.log.dispatch_batch import DispatchBatch, Queue
from reput.log.offset_range import OffsetRange
from reput.queues.folders import offset_entries
from reput.queues.kinds import queue_folder
from reput.queues.store_queues import ConsumeQueueSetReader
from reput.queues.writer import ConsumeQueueWriter
from reput.recovery.queue_files import QueueFiles, is_blank
from reput.recovery.queue_matching import QueueMatching, QueuePart
from reput.recovery.queue_survey import QueueSurvey


class LogPart(NamedTuple):
    """Where the log begins and ends, and the ranges that cannot be read."""

    begin: int
    end: int
    lost: tuple[OffsetRange, ...]


def old_queues(output: Path, file_bytes: int) -> frozenset[Queue]:
    """The queues in files of this size that a rebuild replaces. Raises StoreAccessError."""
    try:
        names = ConsumeQueueSetReader(output).list()
    except ReputError as error:
        if is_transient(error):
            raise
        return frozenset()
    found = []
    for name in names:
        folder = queue_folder(output / CONSUME_QUEUE_FOLDER, *name)
        sizes = {file.stat().st_size for _, file in offset_entries(str(folder))}
        if sizes == {file_bytes}:
            found.append(Queue(*name))
    return frozenset(found)


class OldQueue:
    """One of them, copied from `old` to `folder`, to be compared with all messages of its queue."""

    def __init__(
        self, queue: Queue, old: Path, folder: Path, queue_entries: int, log: LogPart
    ) -> None:
        """Raises StoreAccessError."""
        self._log = log
        remove_tree(folder)
        make_folder(folder)
        for _, file in offset_entries(str(old)):
            copy_file(Path(file.path), folder / file.name)
        self._found = QueueFiles(folder, queue_entries)
        self._survey = QueueSurvey(self._found, self._found.first, log.end)
        self._matching = QueueMatching(queue, self._survey)
        self._part = QueuePart(0)
        if self._survey.is_ordered:
            self._part = self._matching.begin(log.begin)
        else:
            self._matching.skip_to(self._part, log.begin, [OffsetRange(0, log.begin)])
        self._end = log.begin
        self.kept = self.blanks = self.unplaced = 0

    def compare(self, batch: DispatchBatch, number: int) -> None:
        """Compare the messages of the queue with that number in a batch, the next one of the log that has some."""
        entries = batch.queue_entries()
        place = slice(int(entries.bounds[number]), int(entries.bounds[number + 1]))
        if place.start == place.stop:
            return
        last = batch.messages[-1]
        stop = max(int(last["physical_offset"]) + int(last["size"]), self._end)
        self._matching.compare(
            self._part, batch, entries.rows[place], entries.queue_offset[place],
            OffsetRange(self._end, stop), self._log.lost, has_misplaced=False,
        )  # fmt: skip
        self._end = stop

    def finish(self) -> ConsumeQueueWriter:
        """Write the entries missing before the last one that stays. Returns the queue, for the following messages."""
        self._matching.skip_to(self._part, self._log.end, self._log.lost)
        kept, disk = self._matching.kept(self._part), Disk()
        if kept.begin is not None:
            self._found.delete_before(kept.begin, disk)
        if len(kept.numbers):
            self._found.write(kept.numbers, kept.words, disk)
        self.unplaced = self._part.unplaced.count
        self.kept, self.blanks = self._part.kept, int(is_blank(kept.words).sum())
        return self._found.cut(kept.end, self._found.first, self._log.begin, disk, is_begun=False)
