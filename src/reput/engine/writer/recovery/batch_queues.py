"""Recover the batch queues (5.x) of a store that is opened for writing.

A missing entry is inserted between its neighbours. That shifts later entries within the files, which is allowed:
readers find an entry by the queue offset in it, not by its position.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput import core
from reput.base import StoreConfig
from reput.engine.compare import Offsets
from reput.engine.writer.recovery.comparison import ComparedQueues
from reput.engine.writer.recovery.entry_layout import Entries, EntryLayout, Messages
from reput.engine.writer.recovery.queue_files import FoundFiles
from reput.engine.writer.recovery.queue_matching import NumberedMatching, QueueMatching
from reput.engine.writer.recovery.queue_survey import RankedEntries
from reput.engine.writer.recovery.recovery_point import RecoveryPoint
from reput.errors import StoreError
from reput.format.commit_log import SYS_FLAG_INNER_BATCH
from reput.format.consume_queue import BATCH_ENTRY_BYTES, NOT_COMPACTED, decode_batch_entry
from reput.format.dtypes import BATCH_ENTRY_DTYPE
from reput.format.file_names import BATCH_QUEUE_FOLDER, CONSUME_QUEUE_FOLDER, is_folder_name
from reput.io import Disk, FileReader

_NONE = core.BatchEnd(0, 0, -1)


class RecoveredBatches(NamedTuple):
    """The opened queues, and the physical offset from which messages must be dispatched to them.

    The offset is None if the store has no batch queues.
    """

    queues: core.BatchQueues
    dispatch_from: int | None


def recover_batch_queues(
    store: Path,
    topics: frozenset[str],
    config: StoreConfig,
    disk: Disk,
    point: RecoveryPoint | None,
    *,
    comparison: ComparedQueues | None = None,
    log: Path | None = None,
) -> RecoveredBatches:
    """Write the missing entries and correct the wrong ones in these topics' batch queues; open the queues.

    Args:
        store: Folder with the queues and the log.
        topics: Topics with batch queues.
        config: Sizes of files.
        disk: Makes all changes to files.
        point: The recovery point, if nothing has changed since a clean shutdown.
        comparison: The queues as they were compared with the log; None if no comparison was necessary.
        log: The store with the log, if it is not `store`.

    Raises:
        StoreError: A file does not have the configured size.
        StoreAccessError: A file cannot be read or written.
    """
    if not topics:
        return RecoveredBatches(core.BatchQueues(), None)
    folder = store / BATCH_QUEUE_FOLDER
    disk.make_folder(folder)
    files_of = batch_queue_files(store, topics, config)
    sizes = BatchSizes(log or store)
    if comparison is None:
        begin = 0 if point is None else point.end
        ends = {name: files.end_before(begin) for name, files in files_of.items()}
    else:
        begin = comparison.dispatch_from
        batches = comparison.outcomes()
        ends = {name: files.hold(batches[name].entries, disk) for name, files in files_of.items()}
    writers = {}
    for name, end in ends.items():
        position = end.position if end.entries else None
        writers[name] = core.BatchQueueWriter(
            files_of[name].folder, config.batch_queue_file_bytes, sizes, end.entries, position,
            end.max_physical_offset, disk,
        )  # fmt: skip
    return RecoveredBatches(core.BatchQueues(topics, folder, writers, sizes, sizes.close), begin)


def batch_queue_files(
    store: Path, topics: frozenset[str], config: StoreConfig
) -> dict[core.Queue, BatchQueueFiles]:
    """Return the files of all batch queues. Raises StoreAccessError, and StoreError for wrong file sizes."""
    file_bytes = config.batch_queue_file_bytes
    if file_bytes % BATCH_ENTRY_BYTES:
        raise StoreError(
            f"{store}: files of batch queues have {file_bytes} bytes, which is not a whole number of entries: "
            f"such a store can only be read"
        )
    for topic in sorted(topics):
        if is_folder_name(topic) and (store / CONSUME_QUEUE_FOLDER / topic).is_dir():
            raise StoreError(
                f"{store / CONSUME_QUEUE_FOLDER / topic}: has ConsumeQueues, although the topic has batch queues "
                "(queue.type in config/topics.json): no broker starts with both"
            )
    folder = store / BATCH_QUEUE_FOLDER
    return {
        core.Queue(*name): BatchQueueFiles(core.queue_folder(folder, *name), file_bytes)
        for name in core.BatchQueueSetReader(store).list()
    }


def batches_agree(
    store: Path,
    topics: frozenset[str],
    config: StoreConfig,
    point: RecoveryPoint,
    is_unchanged: bool,
) -> bool:
    """Return whether the batch queues agree with the recovery point.

    The recovery point states where each queue ends: after the entries of all messages before the point. With
    `is_unchanged`, no queue may have a file after its end.

    Raises StoreAccessError, and StoreError for wrong file sizes.
    """
    if not topics:
        return True
    files_of = batch_queue_files(store, topics, config)
    ends = {name: files.end_before(point.end) for name, files in files_of.items()}
    if {name: end for name, end in ends.items() if end.entries} != point.batches:
        return False
    return not is_unchanged or all(
        files_of[name].ends_at(end.entries) for name, end in ends.items()
    )


class BatchLayout(EntryLayout):
    """Entries of batch queues. An expected entry of an inner batch has the batch size 0: the record states the size."""

    def __init__(self, size_of: core.BatchSizeOf) -> None:
        """Take a function that reads the sizes of inner batches from the log."""
        super().__init__(core.BATCH_QUEUE)
        self._size_of = size_of

    def expected(
        self, messages: Messages, rows: npt.NDArray[np.int64], queue_offsets: Offsets
    ) -> Entries:
        """See EntryLayout."""
        entries = super().expected(messages, rows, queue_offsets)
        entries["compacted_offset"] = NOT_COMPACTED
        entries["batch_size"] = messages["sys_flag"][rows] & SYS_FLAG_INNER_BATCH == 0
        return entries

    def spans(self, entries: Entries) -> Offsets:
        """See EntryLayout."""
        return entries["batch_size"].astype(np.int64)

    def number(self, entries: Entries, numbers: Offsets) -> None:
        """See EntryLayout."""
        entries["base_offset"] = numbers

    def complete(self, entries: Entries, expected: Entries) -> None:
        """See EntryLayout."""
        entries["batch_size"] = expected["batch_size"]
        for row in np.flatnonzero(expected["batch_size"] == 0).tolist():
            entries["batch_size"][row] = self._size_of(int(entries["physical_offset"][row]))

    def redo(self, entry: Entries, expected: Entries) -> int:
        """See EntryLayout."""
        before = entry["batch_size"].copy()
        if expected["batch_size"][0] == 0:
            self.complete(entry, expected)
        return int(before[0] != entry["batch_size"][0])


class ComparedBatches(ComparedQueues):
    """The batch queues of a store, compared with the log."""

    folder = BATCH_QUEUE_FOLDER

    def __init__(
        self,
        store: Path,
        topics: frozenset[str],
        config: StoreConfig,
        begin: int,
        log_end: int,
        size_of: core.BatchSizeOf,
        *,
        redo_last: bool,
    ) -> None:
        """Find the queues. Raises StoreAccessError, and StoreError for wrong file sizes."""
        super().__init__(begin, log_end, topics)
        self._files = batch_queue_files(store, topics, config) if topics else {}
        self._layout, self._redo_last = BatchLayout(size_of), redo_last

    def names(self) -> Collection[core.Queue]:
        """See ComparedQueues."""
        return self._files

    def survey(self, name: core.Queue) -> RankedEntries:
        """See ComparedQueues."""
        return self._files[name].survey(self._layout, self.log_end)

    def matching(self, name: core.Queue, survey: RankedEntries | None) -> QueueMatching:
        """See ComparedQueues."""
        return NumberedMatching(name, survey, redo_last=self._redo_last)


class BatchQueueFiles(FoundFiles):
    """The files of one batch queue."""

    def __init__(self, folder: Path, file_bytes: int) -> None:
        """Find the queue's files. Raises StoreError for a file larger than the configured size."""
        super().__init__(folder, core.BATCH_QUEUE, file_bytes)

    def end_before(self, physical_offset: int) -> core.BatchEnd:
        """Return the place after the last entry whose record lies before a physical offset.

        Files are read in reverse order, until one has such an entry.
        """
        for start in reversed(self.starts):
            count = self._count_before(start, physical_offset)
            if count:
                with FileReader(str(self.path(start))) as reader:
                    at = (count - 1) * BATCH_ENTRY_BYTES
                    last = decode_batch_entry(reader.read(at, BATCH_ENTRY_BYTES))
                return core.BatchEnd(start + count, last.stop, last.physical_offset)
        return _NONE

    def _count_before(self, start: int, physical_offset: int) -> int:
        """Count the valid entries at the beginning of a file that belong to records before `physical_offset`.

        Valid entries have sizes above 0 and ascending physical offsets.
        """
        count = self._sizes[start] // BATCH_ENTRY_BYTES
        entries = self._read(start, count)
        offsets = entries["physical_offset"].astype(np.int64)
        before = np.concatenate([np.full(1, -1), offsets[:-1]])
        # The valid entries end at zeros, or at an entry that is out of order.
        fits = (offsets > before) & (offsets < physical_offset)
        fits &= (entries["size"] > 0) & (entries["batch_size"] > 0)
        return count if fits.all() else int(np.argmin(fits))

    def survey(self, layout: EntryLayout, log_end: int, log_begin: int = 0) -> RankedEntries:
        """Return all entries of messages that lie between these physical offsets."""
        blocks = [layout.new(0)]
        for start in self.starts:
            entries = self._read(start, self._sizes[start] // BATCH_ENTRY_BYTES).astype(
                layout.dtype
            )
            good = (
                (entries["size"] > 0) & (entries["batch_size"] > 0) & (entries["base_offset"] >= 0)
            )
            good &= entries["physical_offset"] >= log_begin
            good &= entries["physical_offset"] <= log_end - entries["size"].astype(np.int64)
            blocks.append(entries[good])
        joined = np.concatenate(blocks)
        return RankedEntries(layout, joined["base_offset"], joined)

    def hold(self, entries: Entries, disk: Disk) -> core.BatchEnd:
        """Replace the queue's entries by `entries`, durably. Files that already have the right content are not touched.

        A file is replaced as a whole. If entries move into a later file, the later file is replaced first. A crash
        between the two replacements then duplicates some entries, but loses none. Raises StoreAccessError.
        """
        first = self.starts[0] if self.starts and len(entries) else 0
        stop = first + len(entries)
        data = entries.astype(BATCH_ENTRY_DTYPE).tobytes()
        starts = range(first, stop, self._file_entries)
        moved_on = [start for start in starts if self._begins_later(start, first, entries)]
        # Inserted entries push other entries into the next file. Writing the last file first puts each entry into its
        # new file before its old file loses it.
        for start in [start for start in starts if start not in moved_on] + moved_on[::-1]:
            at = (start - first) * BATCH_ENTRY_BYTES
            self._hold(start, data[at : at + self.file_bytes], disk)
        self._clear(stop, disk)
        if not len(entries):
            return _NONE
        last = entries[-1]
        position = int(last["base_offset"]) + int(last["batch_size"])
        return core.BatchEnd(stop, position, int(last["physical_offset"]))

    def _begins_later(self, start: int, first: int, entries: Entries) -> bool:
        """Return whether entries move from the previous file into the file at `start`.

        In this case, the file's new first entry belongs to an earlier record than its old first entry. The result is
        also True for a file that is missing or empty. `entries` are the new entries of the queue, `first` is the start
        of the queue's first file.
        """
        if start not in self._sizes:
            return True
        old = self._read(start, min(1, self._sizes[start] // BATCH_ENTRY_BYTES))
        new = int(entries["physical_offset"][start - first])
        return not len(old) or new < int(old["physical_offset"][0])

    def _hold(self, start: int, data: bytes, disk: Disk) -> None:
        size = self._sizes.get(start, 0)
        content = self._read(start, size // BATCH_ENTRY_BYTES).tobytes() if size else b""
        if content[: len(data)] == data and size == self.file_bytes:
            return
        disk.create_folder(self.folder)
        disk.replace(self.path(start), data + bytes(self.file_bytes - len(data)))
        self._sizes[start] = self.file_bytes
        self.starts = sorted(self._sizes)

    def _read(self, start: int, count: int) -> npt.NDArray[np.void]:
        entries = np.zeros(count, BATCH_ENTRY_DTYPE)
        if not count:
            return entries
        with FileReader(str(self.path(start))) as reader:
            reader.read_into(entries.view(np.uint8), 0)
        return entries

    def ends_at(self, entries: int) -> bool:
        """Return whether the queue has no more files than its first `entries` entries need."""
        return not self._odd_files and (not self.starts or self.starts[-1] < max(entries, 1))


class BatchSizes:
    """Reads the sizes of inner batches from a store's log. The log is opened on first use."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._log: core.CommitLogReader | None = None

    def __call__(self, physical_offset: int) -> int:
        if self._log is None:
            self._log = core.CommitLogReader(core.StoreLog(self._store))
        return core.batch_size_in(self._log)(physical_offset)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
