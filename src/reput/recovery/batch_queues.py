"""Batch queues (5.x) of a store that is opened to be written: what is kept of them, and from where they are dispatched.

The recovery point says where each ended when everything before one physical offset was durable. Where the files agree,
entries after it are cleared, and dispatched again. Else all entries of messages that the log holds are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.config import StoreConfig
from reput.errors import StoreError
from reput.files.disk import Disk
from reput.files.reader import FileReader
from reput.format.batch_consume_queue import (
    BATCH_ENTRY_BYTES,
    BATCH_ENTRY_DTYPE,
    decode_batch_entry,
)
from reput.format.file_names import (
    BATCH_QUEUE_FOLDER,
    CONSUME_QUEUE_FOLDER,
    is_folder_name,
    offset_file_name,
    parse_offset_file_name,
)
from reput.log.dispatch_batch import DispatchBatch, Queue
from reput.log.offset_range import OffsetRange
from reput.log.reader import CommitLogReader
from reput.log.sources import StoreLog
from reput.queues.kinds import queue_folder
from reput.queues.set_writer import BatchEnd, BatchQueues
from reput.queues.store_queues import BatchQueueSetReader
from reput.queues.writer import BatchQueueWriter, batch_size_in
from reput.recovery.queue_matching import in_ranges
from reput.recovery.recovery_point import RecoveryPoint

_NONE = BatchEnd(0, 0, -1)
_ENTRY_DTYPE = np.dtype(BATCH_ENTRY_DTYPE).newbyteorder("=")


class RecoveredBatches(NamedTuple):
    """The queues, and the physical offset from which messages are to be dispatched for them, if there is one."""

    queues: BatchQueues
    dispatch_from: int | None


def recover_batch_queues(
    store: Path,
    topics: frozenset[str],
    config: StoreConfig,
    disk: Disk,
    known: RecoveryPoint | None,
    is_closed: bool,
    log_begin: int,
    *,
    compared: BatchComparison | None = None,
    log: Path | None = None,
) -> RecoveredBatches:
    """Cut the batch queues of these topics where they are certain to agree with the log.

    Args:
        store: has the queues, and the log.
        topics: those with batch queues.
        config: the size of their files.
        disk: changes them.
        known: the recovery point, if it is valid for all else.
        is_closed: nothing has changed since it was written at a clean shutdown.
        log_begin: physical offset of the log's first message.
        compared: what comparing them with the log, from the recovery point on or all of it, found; None if that was not
            necessary.
        log: the store that has the log, where that is another.

    Raises:
        StoreError: files of another size.
        StoreAccessError.
    """
    if not topics:
        return RecoveredBatches(BatchQueues(), None)
    file_bytes = config.batch_queue_file_bytes
    if file_bytes % BATCH_ENTRY_BYTES:
        raise StoreError(
            f"{store}: files of batch queues of {file_bytes} bytes have a part of an entry at their end: "
            "such a store is read-only"
        )
    for topic in sorted(topics):
        if is_folder_name(topic) and (store / CONSUME_QUEUE_FOLDER / topic).is_dir():
            raise StoreError(
                f"{store / CONSUME_QUEUE_FOLDER / topic}: has ConsumeQueues, although the topic has batch queues "
                "(queue.type in config/topics.json): no broker starts with both"
            )
    folder = store / BATCH_QUEUE_FOLDER
    disk.make_folder(folder)
    found = {
        Queue(*name): BatchQueueFiles(queue_folder(folder, *name), file_bytes)
        for name in BatchQueueSetReader(store).list()
    }
    sizes = BatchSizes(log or store)
    agrees = known is not None and _agrees(found, known, is_closed)
    begins = dict.fromkeys(found, log_begin)
    begin = log_begin
    if compared is not None and (known is None or agrees):
        begins = {name: compared.wrong.get(name, compared.log_end) for name in found}
        begin = min(compared.wrong.values(), default=compared.log_end)
    elif known is not None and agrees:
        begins, begin = dict.fromkeys(found, known.end), known.end
    writers = {}
    for name, files in found.items():
        end = files.end_before(begins[name])
        files.cut(end.entries, disk)
        position = end.position if end.entries else None
        writers[name] = BatchQueueWriter(
            files.folder, file_bytes, sizes, end.entries, position, end.max_physical_offset, disk
        )
    return RecoveredBatches(BatchQueues(topics, folder, writers, sizes, sizes.close), begin)


def _agrees(found: dict[Queue, BatchQueueFiles], known: RecoveryPoint, is_closed: bool) -> bool:
    ends = {name: files.end_before(known.end) for name, files in found.items()}
    if {name: end for name, end in ends.items() if end.entries} != known.batches:
        return False
    return not is_closed or all(found[name].ends_at(end.entries) for name, end in ends.items())


class BatchComparison:
    """Compares batch queues with the records of the log, file by file, from any thread.

    log_end  physical offset
    wrong    by queue, physical offset of the first record whose entry is not there; a queue not named is right
    """

    def __init__(
        self, store: Path, topics: frozenset[str], config: StoreConfig, log_end: int
    ) -> None:
        """Raises StoreError for files of another size, StoreAccessError."""
        self.topics, self.log_end = topics, log_end
        self.wrong: dict[Queue, int] = {}
        self._entries: dict[Queue, npt.NDArray[np.void]] = {}
        self._lock = Lock()
        folder = store / BATCH_QUEUE_FOLDER
        for name in BatchQueueSetReader(store).list() if topics else ():
            files = BatchQueueFiles(queue_folder(folder, *name), config.batch_queue_file_bytes)
            self._entries[Queue(*name)] = files.entries_before(log_end)

    def compare(
        self,
        name: Queue,
        batch: DispatchBatch,
        rows: npt.NDArray[np.int64],
        scanned: OffsetRange,
        unread: Sequence[OffsetRange],
    ) -> None:
        """Compare the records of a queue in a batch; entries that lead into `unread` ranges stay."""
        expected = batch.messages[rows]
        entries = self._of(name)
        offsets = entries["physical_offset"]
        entries = entries[np.searchsorted(offsets, scanned.start) :]
        entries = entries[: np.searchsorted(entries["physical_offset"], scanned.stop)]
        entries = entries[~in_ranges(entries["physical_offset"], unread)]
        count = min(len(entries), len(expected))
        same = np.ones(count, np.bool_)
        for field in ("physical_offset", "size", "tags_code", "store_timestamp"):
            same &= entries[field][:count] == expected[field][:count]
        count = count if same.all() else int(np.argmin(same))
        if count == len(entries) == len(expected):
            return
        places = [
            *entries["physical_offset"][count : count + 1].tolist(),
            *expected["physical_offset"][count : count + 1].tolist(),
        ]
        with self._lock:
            first = max(min(places), scanned.start)
            self.wrong[name] = min(self.wrong.get(name, first), first)

    def _of(self, name: Queue) -> npt.NDArray[np.void]:
        return self._entries.get(name, np.empty(0, _ENTRY_DTYPE))

    def redo_last(self, unread: Sequence[OffsetRange]) -> None:
        """Take the last entry of each queue for wrong: its record was perhaps half-written."""
        for name, entries in self._entries.items():
            last = entries["physical_offset"][-1:]
            if len(last) and not in_ranges(last, unread).any():
                self.wrong.setdefault(name, int(last[0]))

    def cut_off(self, unread: Iterable[OffsetRange]) -> Queue | None:
        """A queue that would lose entries of records that cannot be read, if it was cut where it is wrong."""
        for name, begin in sorted(self.wrong.items()):
            offsets = self._of(name)["physical_offset"]
            if in_ranges(offsets[offsets >= begin], list(unread)).any():
                return name
        return None


class BatchQueueFiles:
    """The files of one batch queue, as a crash left them."""

    def __init__(self, folder: Path, file_bytes: int) -> None:
        """Raises StoreError for a file that is larger than the settings say."""
        self.folder, self._file_bytes = folder, file_bytes
        self._file_entries = file_bytes // BATCH_ENTRY_BYTES
        self._sizes: dict[int, int] = {}  # bytes, by number of the first entry
        self._others: list[Path] = []
        for path in folder.iterdir():
            start = parse_offset_file_name(path.name)
            if start is None:
                continue
            if start % file_bytes:
                self._others.append(path)
                continue
            size = path.stat().st_size
            if size > file_bytes:
                raise StoreError(
                    f"{path}: is larger than {file_bytes} bytes; "
                    "give the broker's settings (mapperFileSizeBatchConsumeQueue)"
                )
            self._sizes[start // BATCH_ENTRY_BYTES] = size
        self._starts = sorted(self._sizes)

    def end_before(self, physical_offset: int) -> BatchEnd:
        """After the last entry of a record before that offset; entries of files before its own are not looked at."""
        for start in reversed(self._starts):
            kept = self._kept(start, physical_offset)
            if kept:
                with FileReader(str(self._path(start))) as reader:
                    at = (kept - 1) * BATCH_ENTRY_BYTES
                    last = decode_batch_entry(reader.read(at, BATCH_ENTRY_BYTES))
                return BatchEnd(start + kept, last.stop, last.physical_offset)
        return _NONE

    def _kept(self, start: int, physical_offset: int) -> int:
        """How many entries of a file, from its first on, ascend and are of records before that offset."""
        count = self._sizes[start] // BATCH_ENTRY_BYTES
        entries = self._read(start, count)
        offsets = entries["physical_offset"].astype(np.int64)
        before = np.concatenate([np.full(1, -1), offsets[:-1]])
        fits = (offsets > before) & (offsets < physical_offset)
        fits &= (entries["size"] > 0) & (entries["batch_size"] > 0)
        return count if fits.all() else int(np.argmin(fits))

    def entries_before(self, physical_offset: int) -> npt.NDArray[np.void]:
        """The entries of records before that offset, as far as they ascend; numbers in the order of the processor."""
        found = [np.empty(0, _ENTRY_DTYPE)]
        for start in self._starts:
            entries = self._read(start, self._kept(start, physical_offset))
            before = found[-1]["physical_offset"][-1:].tolist()
            if not len(entries) or (before and entries["physical_offset"][0] <= before[0]):
                break
            found.append(entries.astype(_ENTRY_DTYPE))
            if len(entries) < self._file_entries:
                break
        return np.concatenate(found)

    def _read(self, start: int, count: int) -> npt.NDArray[np.void]:
        entries = np.zeros(count, BATCH_ENTRY_DTYPE)
        with FileReader(str(self._path(start))) as reader:
            reader.read_into(entries.view(np.uint8), 0)
        return entries

    def ends_at(self, entries: int) -> bool:
        """Whether there is no file behind so many entries."""
        return not self._others and (not self._starts or self._starts[-1] < max(entries, 1))

    def cut(self, entries: int, disk: Disk) -> None:
        """Clear the entries from that number on, durably. Raises StoreAccessError."""
        gone = [*self._others, *(self._path(start) for start in self._gone(entries))]
        for path in gone:
            disk.delete(path)
        if gone:
            disk.sync_folder(self.folder)
        start = entries - entries % self._file_entries
        if start in self._sizes and start < entries:
            self._clear(start, (entries - start) * BATCH_ENTRY_BYTES, disk)

    def _gone(self, entries: int) -> Iterator[int]:
        return (start for start in reversed(self._starts) if start >= entries)

    def _clear(self, start: int, keep: int, disk: Disk) -> None:
        with FileReader(str(self._path(start))) as reader:
            last = reader.last_nonzero(self._sizes[start])
        stop = 0 if last is None else last + 1
        if stop > keep or self._sizes[start] != self._file_bytes:
            with disk.open(self._path(start), self._file_bytes) as file:
                if stop > keep:
                    file.write(bytes(stop - keep), keep)
                file.sync()

    def _path(self, start: int) -> Path:
        return self.folder / offset_file_name(start * BATCH_ENTRY_BYTES)


class BatchSizes:
    """Asks the log of a store, which is opened when it is first asked."""

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
