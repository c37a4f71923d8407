"""Decide queue offsets from the old entries when queues in files are rebuilt in place.

If the log is damaged, or the queue offsets of a queue are uncertain, the rebuild copies the old queue and writes the
missing entries into the copy. A writer that opens the store follows the same rule (`compare.placement`), so the entry
of a message never moves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from reput import core
from reput.engine.compare import Placement
from reput.engine.writer.recovery.batch_queues import BatchLayout, BatchQueueFiles
from reput.engine.writer.recovery.extended_queues import ExtendedQueueFiles
from reput.engine.writer.recovery.queue_files import QueueFiles, is_blank
from reput.engine.writer.recovery.queue_matching import (
    KeptQueue,
    NumberedMatching,
    PlacedMatching,
    QueuePart,
)
from reput.engine.writer.recovery.queue_survey import QueueSurvey
from reput.errors import FormatError, MessageNotFoundError, ReputError, is_transient
from reput.format.file_names import CONSUME_QUEUE_FOLDER
from reput.io import DISK, Disk

# Entries of a queue that show whether its folder is that of another queue: at most, and if all are its own.
_MOST_SAMPLES, _ENOUGH_SAMPLES = 8, 4


class LogPart(NamedTuple):
    """The begin and end of the log, and its unreadable ranges.

    misplaced  whether some messages state a wrong physical offset
    """

    begin: int
    end: int
    lost: tuple[core.OffsetRange, ...]
    misplaced: bool = False


class PlacedBatches:
    """Finds the log ranges of consecutive batches."""

    def __init__(self, log: LogPart) -> None:
        self._log, self._end = log, log.begin

    def next(self, batch: core.DispatchBatch) -> tuple[core.OffsetRange, Placement | None]:
        """Return the log range of `batch`, and its placement: which of its messages state the right physical offset.

        The placement is None if no message of the log states a wrong physical offset. Call this for all batches, in log
        order.
        """
        messages, start = batch.messages, self._end
        ends = messages["physical_offset"].astype(np.int64) + messages["size"]
        if not self._log.misplaced:
            self._end = max(int(ends[-1]), start)
            return core.OffsetRange(start, self._end), None
        placed = Placement.of(messages, core.OffsetRange(start, self._log.end))
        self._end = int(placed.bounds[0][-1])
        last = np.flatnonzero(placed.is_good)[-1:]
        # If the last message states a wrong physical offset, its end is unknown. It lies at least one byte after the
        # end of the last message with a right offset.
        if not len(last) or last[0] < len(messages) - 1:
            self._end += 1
        return core.OffsetRange(start, self._end), placed


def old_queues(output: Path, file_bytes: int) -> frozenset[core.Queue]:
    """Return the queues in `output` whose files all have the size `file_bytes`.

    Only such files can be copied into the rebuilt store, whose files have this size. Raises StoreAccessError.
    """
    try:
        names = core.ConsumeQueueSetReader(output).list()
    except ReputError as error:
        if is_transient(error):
            raise
        return frozenset()
    queues = []
    for name in names:
        folder = core.queue_folder(output / CONSUME_QUEUE_FOLDER, *name)
        sizes = {file.stat().st_size for _, file in core.offset_entries(str(folder))}
        if sizes == {file_bytes}:
            queues.append(core.Queue(*name))
    return frozenset(queues)


def is_folder_of(
    store: Path, queue: core.Queue, log: core.CommitLogReader, *, is_damaged: bool
) -> bool:
    """Return whether the entries in the folder of a queue are those of this queue. Two folders may be exchanged.

    Reads some entries. The folder is that of another queue if all of them lead to messages of that queue, but not all
    to messages of this one; or if none leads to a message of this one. A message may be in several queues. Entries of
    expired messages count for nothing, nor do entries that lead to no message if the log `is_damaged`.

    Raises StoreAccessError.
    """
    own, others = 0, list[set[tuple[str, int]]]()
    for at in _sampled_offsets(store, queue):
        if at < log.min_offset:
            continue
        try:
            record = log.locate(at)
        except (MessageNotFoundError, FormatError):
            others += [] if is_damaged else [set()]
            continue
        if record.queue_offset_in(*queue) is not None:
            own += 1
        place = record.own_place()
        queues = {further[:2] for further in record.further_places()}
        others.append(queues | ({place[:2]} if place is not None else set()))
        if own == len(others) == _ENOUGH_SAMPLES:
            return True
    if own in (0, len(others)):
        return own == len(others)
    return not set.intersection(*others) - {tuple(queue)}


def _sampled_offsets(store: Path, queue: core.Queue) -> Iterator[int]:
    """Yield the physical offsets of the first, the last and some further entries. Skip empty and pre-blank ones."""
    folder = core.queue_folder(store / CONSUME_QUEUE_FOLDER, *queue)
    with closing(core.ConsumeQueueReader(str(folder))) as reader, suppress(FormatError):
        first, stop = reader.min_queue_offset(0), reader.max_queue_offset()
        between = range(first + 1, stop - 1, max((stop - first) // _MOST_SAMPLES, 1))
        for number in [first, stop - 1, *between][: stop - first]:
            with suppress(MessageNotFoundError, FormatError):
                yield reader.entry(number).physical_offset


def old_batch_queues(output: Path, topics: frozenset[str]) -> frozenset[core.Queue]:
    """Return the batch queues of these topics that `output` has before the rebuild. Raises StoreAccessError."""
    try:
        names = core.BatchQueueSetReader(output).list() if topics else []
    except ReputError as error:
        if is_transient(error):
            raise
        return frozenset()
    return frozenset(core.Queue(*name) for name in names if name[0] in topics)


def _copy(old: Path, folder: Path) -> None:
    DISK.remove_tree(folder)
    DISK.create_folder(folder)
    for _, file in core.offset_entries(str(old)) if old.is_dir() else ():
        DISK.copy_file(Path(file.path), folder / file.name)


class OldQueue:
    """Copies an old queue into `folder`, and compares the copy with all messages of the queue.

    found  the files of the copy
    """

    def __init__(
        self, queue: core.Queue, old: Path, folder: Path, queue_entries: int, log: LogPart,
        units: tuple[Path, Path] | None = None,
    ) -> None:  # fmt: skip
        """Copy the files of the queue. Raises StoreAccessError.

        units  the folder with the queue's extension files, and the folder for their copies; None without such files
        """
        self._log = log
        self._elsewhere: list[core.OffsetRange] = []
        self._batches = PlacedBatches(log)
        _copy(old, folder)
        if units is None:
            self.found = QueueFiles(folder, queue_entries)
        else:
            _copy(*units)
            self.found = ExtendedQueueFiles(folder, queue_entries, units[1])
        survey = QueueSurvey(self.found, self.found.first, log.end)
        self._matching = PlacedMatching(queue, survey)
        self._part = self._matching.start(log.begin)
        self.kept = self.blanks = self.unplaced = self.older = 0

    def compare(self, batch: core.DispatchBatch, entries: core.EntriesOfQueue) -> None:
        """Compare the old entries with a batch's messages of this queue. Batches without any may be omitted."""
        scanned, placed = self._batches.next(batch)
        if placed is not None:
            self._elsewhere += placed.elsewhere
        self._matching.compare(self._part, batch, entries, scanned, self._lost, placed)

    @property
    def _lost(self) -> list[core.OffsetRange]:
        return [*self._log.lost, *self._elsewhere]

    def finish(self) -> core.ConsumeQueueWriter:
        """Write the missing entries that precede the last kept entry.

        Return the queue's writer, to which later messages are appended.
        """
        self._matching.skip_to(self._part, self._log.end, self._lost)
        entries, disk = self._matching.outcome(self._part), Disk()
        if entries.begin is not None:
            self.found.delete_before(entries.begin, disk)
        if len(entries.numbers):
            self.found.write(entries.numbers, entries.entries, disk)
        self.unplaced, self.older = self._part.unplaced.count, self._part.older.count
        self.kept, self.blanks = self._part.unreadable, int(is_blank(entries.entries).sum())
        return self.found.cut(entries.end, self.found.first, self._log.begin, disk, is_begun=False)


class OldBatches(NamedTuple):
    """The entries of an old batch queue that a rebuild keeps, and the result of matching them with the log."""

    kept: KeptQueue
    part: QueuePart


def old_batches(
    batches: Callable[[], Iterable[core.DispatchBatch]], pack: Collection[core.Queue], old: Path,
    file_bytes: int, log: LogPart,
    size_of: core.BatchSizeOf,
) -> dict[core.Queue, OldBatches]:  # fmt: skip
    """Compare the old queues with all messages. Return the old queues from which messages take their queue offsets.

    `size_of` reads the sizes of inner batches from the log.
    """
    matchings: dict[core.Queue, tuple[NumberedMatching, QueuePart]] = {}
    for queue in pack:
        files = core.queue_folder(old, *queue)
        sizes = {path.stat().st_size for path in files.iterdir()} if files.is_dir() else set()
        # If a file has another size than the configured one, the queue was written with another configuration, and
        # cannot be compared.
        if sizes == {file_bytes}:
            found = BatchQueueFiles(files, file_bytes)
            matching = NumberedMatching(
                queue, found.survey(BatchLayout(size_of), log.end, log.begin)
            )
            matchings[queue] = matching, matching.start(log.begin)
    placing, unread = PlacedBatches(log), list(log.lost)
    for batch in batches() if matchings else ():
        scanned, placed = placing.next(batch)
        unread += [] if placed is None else placed.elsewhere
        for entries in batch.by_queue():
            if entries.queue in matchings:
                matching, part = matchings[entries.queue]
                matching.compare(part, batch, entries, scanned, unread, placed)
    compared = {}
    for queue, (matching, part) in matchings.items():
        matching.skip_to(part, log.end, unread)
        compared[queue] = OldBatches(matching.outcome(part), part)
    # If the log is undamaged, a queue of the old store is needed only if its entries have other queue offsets than
    # their records.
    if unread:
        return compared
    return {queue: result for queue, result in compared.items() if result.part.moved.count}
