"""Recover the batch queues (5.x) of a store that is opened for writing.

As in ConsumeQueues, an entry that leads to a record keeps its queue offsets, even if the record states other queue
offsets (`compare.placement`). Entries that lead into unreadable parts of the log are kept. A missing entry is inserted
between its neighbours. That shifts later entries within the files, which is allowed: readers find an entry by the queue
offset in it, not by its position.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.base import StoreConfig
from reput.core import (
    BATCH_QUEUE,
    BatchEnd,
    BatchQueues,
    BatchQueueSetReader,
    BatchQueueWriter,
    BatchSizeOf,
    CommitLogReader,
    DispatchBatch,
    OffsetRange,
    Queue,
    StoreLog,
    batch_size_in,
    queue_folder,
)
from reput.engine.compare import Offsets, ascending, entry_of_each, fitting, in_ranges
from reput.engine.writer.recovery.queue_files import FoundFiles
from reput.engine.writer.recovery.queue_matching import Count
from reput.engine.writer.recovery.recovery_point import RecoveryPoint
from reput.errors import StoreError
from reput.format.commit_log import SYS_FLAG_INNER_BATCH
from reput.format.consume_queue import BATCH_ENTRY_BYTES, NOT_COMPACTED, decode_batch_entry
from reput.format.dtypes import BATCH_ENTRY_DTYPE
from reput.format.file_names import BATCH_QUEUE_FOLDER, CONSUME_QUEUE_FOLDER, is_folder_name
from reput.io import Disk, FileReader

_NONE = BatchEnd(0, 0, -1)
_ENTRY_DTYPE = BATCH_ENTRY_DTYPE.newbyteorder("=")
_FIELDS = ("physical_offset", "size", "tags_code", "store_timestamp")
_Entries = npt.NDArray[np.void]
_Flags = npt.NDArray[np.bool_]


class RecoveredBatches(NamedTuple):
    """The opened queues, and the physical offset from which messages must be dispatched to them.

    The offset is None if the store has no batch queues.
    """

    queues: BatchQueues
    dispatch_from: int | None


def recover_batch_queues(
    store: Path,
    topics: frozenset[str],
    config: StoreConfig,
    disk: Disk,
    point: RecoveryPoint | None,
    *,
    comparison: BatchComparison | None = None,
    log: Path | None = None,
) -> RecoveredBatches:
    """Write the missing entries and correct the wrong ones in these topics' batch queues; open the queues.

    Args:
        store: Folder with the queues and the log.
        topics: Topics with batch queues.
        config: Sizes of files.
        disk: Makes all changes to files.
        point: The recovery point, if nothing has changed since a clean shutdown.
        comparison: Result of comparing the queues with the log; None if no comparison was necessary.
        log: The store with the log, if it is not `store`.

    Raises:
        StoreError: A file does not have the configured size.
        StoreAccessError: A file cannot be read or written.
    """
    if not topics:
        return RecoveredBatches(BatchQueues(), None)
    folder = store / BATCH_QUEUE_FOLDER
    disk.make_folder(folder)
    files_of = batch_queue_files(store, topics, config)
    sizes = BatchSizes(log or store)
    if comparison is None:
        begin = 0 if point is None else point.end
        ends = {name: files.end_before(begin) for name, files in files_of.items()}
    else:
        begin = comparison.dispatch_from
        batches = comparison.outcomes(sizes)
        ends = {name: files.hold(batches[name].entries, disk) for name, files in files_of.items()}
    writers = {}
    for name, end in ends.items():
        position = end.position if end.entries else None
        writers[name] = BatchQueueWriter(
            files_of[name].folder, config.batch_queue_file_bytes, sizes, end.entries, position,
            end.max_physical_offset, disk,
        )  # fmt: skip
    return RecoveredBatches(BatchQueues(topics, folder, writers, sizes, sizes.close), begin)


def batch_queue_files(
    store: Path, topics: frozenset[str], config: StoreConfig
) -> dict[Queue, BatchQueueFiles]:
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
        Queue(*name): BatchQueueFiles(queue_folder(folder, *name), file_bytes)
        for name in BatchQueueSetReader(store).list()
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


class KeptBatches(NamedTuple):
    """The entries of a batch queue after comparison with the log.

    entries   the entries in log order
    written   number of entries that were missing or wrong
    moved     number of entries whose queue offset differs from the queue offset in the record
    unreadable  number of entries that lead to unreadable parts of the log
    unplaced  records that have no entry and no place for one
    """

    entries: _Entries
    written: int
    moved: int
    unreadable: int
    unplaced: Count


class BatchMatching:
    """Compares the entries of one batch queue with the records of the log, batch by batch, from any thread.

    tail  physical offset of the queue's first record after the last record with an entry; None if there is no such
          record
    """

    def __init__(self, entries: _Entries, begin: int) -> None:
        """Start with all plausible `entries`. Entries of messages before `begin` are not compared."""
        self._entries = entries[np.argsort(entries["physical_offset"], kind="stable")]
        self._offsets = self._entries["physical_offset"]
        self._is_right: _Flags = self._offsets < begin
        self._queue_offsets = np.full(len(entries), -1, np.int64)
        self._is_inner: _Flags = np.zeros(len(entries), np.bool_)
        self._missing: list[tuple[_Entries, _Flags]] = []
        self._wrong: list[tuple[int, npt.NDArray[np.void]]] = []
        self._lock = Lock()
        self.tail: int | None = None

    def compare(self, messages: npt.NDArray[np.void], queue_offsets: npt.NDArray[np.int64]) -> None:
        """Compare the queue's entries with some of its messages. `queue_offsets` are those that the messages state."""
        with self._lock:
            offsets = messages["physical_offset"]
            if not len(offsets):
                return
            if not len(self._offsets):
                self._add_tail(int(offsets[0]))
                return
            # Records after the last entry were not dispatched yet. That is not damage: dispatch starts there.
            after = int(np.searchsorted(offsets, self._offsets[-1], side="right"))
            if after < len(offsets):
                self._add_tail(int(offsets[after]))
            self._match(messages[:after], queue_offsets[:after], offsets[:after])

    def _add_tail(self, physical_offset: int) -> None:
        self.tail = physical_offset if self.tail is None else min(self.tail, physical_offset)

    def _match(
        self,
        messages: npt.NDArray[np.void],
        queue_offsets: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
    ) -> None:
        rows = entry_of_each(offsets, queue_offsets, self._offsets, self._entries["base_offset"])
        is_inner = messages["sys_flag"] & SYS_FLAG_INNER_BATCH != 0
        has_entry = rows >= 0
        place = rows[has_entry]
        self._is_right[place] = True
        self._queue_offsets[place], self._is_inner[place] = (
            queue_offsets[has_entry],
            is_inner[has_entry],
        )
        differs = np.zeros(len(place), np.bool_)
        for name in _FIELDS:
            differs |= self._entries[name][place] != messages[name][has_entry]
        for row, at in zip(np.flatnonzero(differs).tolist(), place[differs].tolist(), strict=True):
            self._wrong.append((at, messages[has_entry][row]))
        if not has_entry.all():
            none = ~has_entry
            missing = np.zeros(int(none.sum()), _ENTRY_DTYPE)
            for name in _FIELDS:
                missing[name] = messages[name][none]
            missing["base_offset"], missing["compacted_offset"] = queue_offsets[none], NOT_COMPACTED
            self._missing.append((missing, is_inner[none]))

    @property
    def moved(self) -> int:
        """Return the number of entries whose queue offsets differ from those in their records."""
        has_message = self._queue_offsets >= 0
        return int((has_message & (self._entries["base_offset"] != self._queue_offsets)).sum())

    def outcome(
        self, unread: Sequence[OffsetRange], size_of: BatchSizeOf, redo_last: bool
    ) -> KeptBatches:
        """Return the queue's entries, after the whole log was compared.

        Args:
            unread: Unreadable ranges of the log, and ranges whose records state another physical offset.
            size_of: Reads the sizes of inner batches from the log.
            redo_last: Whether the last record may have been incomplete when its entry was written.
        """
        entries = self._entries.copy()
        for at, message in self._wrong:
            for name in _FIELDS:
                entries[name][at] = message[name]
        written = len(self._wrong)
        if redo_last and len(entries) and self._is_right[-1] and self._is_inner[-1]:
            size = size_of(int(self._offsets[-1]))
            written += int(entries["batch_size"][-1] != size)
            # The crash may have left an entry with a wrong size, because the record was incomplete.
            entries["batch_size"][-1] = size
        # The queue offsets in entries must ascend in log order. Remove the entries outside the longest ascending
        # sequence. Insert a removed entry again, with the queue offset that its record states, if this queue offset
        # lies between those of the neighbouring entries.
        rows = np.flatnonzero(self._is_right)
        ordered = rows[ascending(entries["base_offset"][rows])]
        self._add_misnumbered(entries, np.setdiff1d(rows, ordered))
        # Drop the entries that lead into readable parts of the log, but to no record of this queue.
        lost = entries[~self._is_right]
        lost = lost[in_ranges(lost["physical_offset"], unread)]
        joined, fits = _between(entries[ordered], lost)
        unplaced, unreadable = Count(), int(fits.sum())
        if self._missing:
            missing = self._sized(size_of)
            joined, fits = _between(joined, missing)
            written += int(fits.sum())
            # Do not count a record that lies in the log before the first record with an entry. Such a record needs no
            # entry: its topic was deleted together with the topic's queues, and created again later.
            before = missing["physical_offset"] < self._offsets[0]
            without = np.flatnonzero(~fits & ~before)
            if len(without):
                unplaced.add(len(without), int(missing["physical_offset"][without[0]]))
        return KeptBatches(joined, written, self.moved, unreadable, unplaced)

    def _add_misnumbered(self, entries: _Entries, rows: npt.NDArray[np.intp]) -> None:
        """Treat the entries `rows` as missing, because the queue offsets in these entries are out of order.

        A missing entry is written again, with the queue offset that its record states, if this queue offset lies
        between the queue offsets of the neighbouring entries.
        """
        rows = rows[self._queue_offsets[rows] >= 0]
        if len(rows):
            missing = entries[rows]
            missing["base_offset"] = self._queue_offsets[rows]
            self._missing.append((missing, self._is_inner[rows]))

    def _sized(self, size_of: BatchSizeOf) -> _Entries:
        """Return the missing entries in log order, with the sizes of their batches."""
        missing = np.concatenate([part for part, _ in self._missing])
        is_inner = np.concatenate([part for _, part in self._missing])
        order = np.argsort(missing["physical_offset"], kind="stable")
        missing, is_inner = missing[order], is_inner[order]
        missing["batch_size"] = 1
        for row in np.flatnonzero(is_inner).tolist():
            missing["batch_size"][row] = size_of(int(missing["physical_offset"][row]))
        return missing


def _between(entries: _Entries, more: _Entries) -> tuple[_Entries, _Flags]:
    """Insert the entries of `more` into `entries`, except those whose queue offsets do not fit.

    The queue offsets must fit between the queue offsets of the entries before and after them in the log. Returns all
    entries, and for each entry of `more` whether it fits.
    """
    offsets, solid = more["physical_offset"], entries["physical_offset"]
    # Exclude records that already have an entry.
    rows = np.flatnonzero((more["batch_size"] > 0) & ~np.isin(offsets, solid))
    insertable = fitting(offsets[rows], *_numbers(more[rows]), solid, _numbers(entries), 2**62)
    fits = np.zeros(len(more), np.bool_)
    fits[rows[insertable]] = True
    joined = np.concatenate([entries, more[fits]])
    return joined[np.argsort(joined["physical_offset"], kind="stable")], fits


def _numbers(entries: _Entries) -> tuple[Offsets, Offsets]:
    """Return the first and the last queue offset of each entry."""
    return entries["base_offset"], entries["base_offset"] + entries["batch_size"] - 1


class BatchComparison:
    """Compares the batch queues of a store with the records of the log, file by file, from any thread.

    log_end  physical offset at which the log ends
    """

    def __init__(
        self, store: Path, topics: frozenset[str], config: StoreConfig, begin: int, log_end: int
    ) -> None:
        """Start the comparison at `begin`. Raises StoreAccessError, and StoreError for wrong file sizes."""
        self.topics, self.log_end = topics, log_end
        self._lock = Lock()
        self._begin, self._redo_last = begin, False
        self._unread: list[OffsetRange] = []
        self._outcomes: dict[Queue, KeptBatches] = {}
        self._queues: dict[Queue, BatchMatching] = {}
        for name, files in batch_queue_files(store, topics, config).items() if topics else ():
            self._queues[name] = BatchMatching(files.entries_before(log_end), begin)

    def compare(
        self, name: Queue, batch: DispatchBatch, rows: npt.NDArray[np.int64],
        queue_offsets: npt.NDArray[np.int64],
    ) -> None:  # fmt: skip
        """Compare some records of one queue with the queue's entries. The records are the rows `rows` of `batch`."""
        # A queue without files exists only in the log. Two threads may find its first record at the same time.
        with self._lock:
            if name not in self._queues:
                self._queues[name] = BatchMatching(np.empty(0, _ENTRY_DTYPE), self._begin)
        self._queues[name].compare(batch.messages[rows], queue_offsets)

    def add_elsewhere(self, ranges: Iterable[OffsetRange]) -> None:
        """Keep the entries that lead into these ranges.

        Records there state wrong physical offsets, so entries cannot be compared with them.
        """
        with self._lock:
            self._unread += ranges

    def finish(self, unread: Iterable[OffsetRange], redo_last: bool) -> None:
        """End the comparison. Call this after the whole log, except the ranges in `unread`, was compared.

        For `redo_last` see `BatchMatching.outcome`.
        """
        self._unread, self._redo_last = [*self._unread, *unread], redo_last

    @property
    def dispatch_from(self) -> int:
        """Return the physical offset of the first record to dispatch, or the end of the log.

        In each queue, the records to dispatch begin after the last record that has an entry.
        """
        tails = [matching.tail for matching in self._queues.values() if matching.tail is not None]
        return min(tails, default=self.log_end)

    def outcomes(self, size_of: BatchSizeOf) -> dict[Queue, KeptBatches]:
        """Return, for each queue, the entries that it has after the recovery.

        `size_of` reads the sizes of inner batches from the log.
        """
        if not self._outcomes:
            self._outcomes = {
                name: matching.outcome(self._unread, size_of, self._redo_last)
                for name, matching in sorted(self._queues.items())
            }
        return self._outcomes


class BatchQueueFiles(FoundFiles):
    """The files of one batch queue."""

    def __init__(self, folder: Path, file_bytes: int) -> None:
        """Find the queue's files. Raises StoreError for a file larger than the configured size."""
        super().__init__(folder, BATCH_QUEUE, file_bytes)

    def end_before(self, physical_offset: int) -> BatchEnd:
        """Return the place after the last entry whose record lies before a physical offset.

        Files are read in reverse order, until one has such an entry.
        """
        for start in reversed(self.starts):
            count = self._count_before(start, physical_offset)
            if count:
                with FileReader(str(self.path(start))) as reader:
                    at = (count - 1) * BATCH_ENTRY_BYTES
                    last = decode_batch_entry(reader.read(at, BATCH_ENTRY_BYTES))
                return BatchEnd(start + count, last.stop, last.physical_offset)
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

    def entries_before(self, log_end: int) -> _Entries:
        """Return all entries of messages that end at or before `log_end`, in file order and native byte order."""
        blocks = [np.empty(0, _ENTRY_DTYPE)]
        for start in self.starts:
            entries = self._read(start, self._sizes[start] // BATCH_ENTRY_BYTES).astype(
                _ENTRY_DTYPE
            )
            good = (
                (entries["size"] > 0) & (entries["batch_size"] > 0) & (entries["base_offset"] >= 0)
            )
            good &= entries["physical_offset"] >= 0
            good &= entries["physical_offset"] <= log_end - entries["size"].astype(np.int64)
            blocks.append(entries[good])
        return np.concatenate(blocks)

    def hold(self, entries: _Entries, disk: Disk) -> BatchEnd:
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
        return BatchEnd(stop, position, int(last["physical_offset"]))

    def _begins_later(self, start: int, first: int, entries: _Entries) -> bool:
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
        self._log: CommitLogReader | None = None

    def __call__(self, physical_offset: int) -> int:
        if self._log is None:
            self._log = CommitLogReader(StoreLog(self._store))
        return batch_size_in(self._log)(physical_offset)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
