"""The write tasks: one IndexFile each, or the ConsumeQueue entries of a run of splits."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.config import StoreConfig
from reput.errors import StoreError
from reput.files.writer import remove_tree, replacing
from reput.format.dtypes import MESSAGE_DTYPE
from reput.format.index_file import IndexHeader
from reput.index.builder import FileEnd, IndexFileBuilder
from reput.index.proven import Proof
from reput.index.proving import prove_new
from reput.index.reader import IndexFileReader
from reput.log.dispatch_batch import DispatchBatch, Queue
from reput.pipeline.batch_file import read_batches
from reput.pipeline.layout import IndexFileTask, KeyRange, QueueTask
from reput.pipeline.old_queues import LogPart, OldQueue
from reput.queues.kinds import queue_folder
from reput.queues.writer import ConsumeQueueWriter, LostRanges

_INDEX_FIELDS = ("physical_offset", "store_timestamp", "key_count", "key_hash")
_QUEUE_FIELDS = (
    "physical_offset", "size", "tags_code", "sys_flag", "queue", "queue_offset", "multi",
)  # fmt: skip
_MAX_OPEN_QUEUES = 256


class WriteJob(NamedTuple):
    """What all write tasks of a rebuild have in common: where to write, sizes of files, what of the log is lost.

    IndexFiles are written outside the folder that is swapped in: a task whose worker was lost may leave an
    unfinished file behind, or finish it later than the attempt that took its place.
    """

    store: str
    index_parts: str
    queue_folder: str
    config: StoreConfig
    log: LogPart
    old_queues: str

    def lost_ranges(self) -> LostRanges:
        return np.array(self.log.lost, np.int64).reshape(-1, 2)


class IndexFileWritten(NamedTuple):
    """The file's number, its header, the store timestamp (ms) of its first entry, and what it may be believed for.

    proof  of the file, or the reason why it has none
    """

    number: int
    header: IndexHeader
    first_timestamp: int
    proof: Proof | str


class QueuesWritten(NamedTuple):
    """ConsumeQueue entries taken and dropped, pre-blank ones in place of lost messages, old ones that lead to such."""

    taken: int
    dropped: int
    blanks: int = 0
    kept: int = 0


def index_part(job: WriteJob, number: int) -> Path:
    """Where a task leaves IndexFile `number`; the commit gives it its name."""
    return Path(job.index_parts) / f"part-{number:06d}"


def write_index_file(job: WriteJob, task: IndexFileTask) -> IndexFileWritten:
    """Safe to run twice, and beside itself: each attempt writes its own file. Raises StoreAccessError."""
    previous = _end_of(task.previous) if task.previous else FileEnd()
    part = index_part(job, task.number)
    with replacing(part) as attempt:
        with IndexFileBuilder(attempt, job.config, previous) as builder:
            for entries in task.entries:
                _put_range(builder, entries)
            header = builder.close()
        proof = _prove(job, attempt)
    first = header.begin_timestamp if task.entries else header.end_timestamp
    return IndexFileWritten(task.number, header, first, proof)


def _prove(job: WriteJob, path: Path) -> Proof | str:
    """Here, beside the other tasks, and not when all files are in place: there are fewer of them than cores."""
    try:
        file = IndexFileReader(str(path), job.config.hash_slots, job.config.index_items)
        with closing(file):
            return prove_new(job.store, file)
    except StoreError as error:  # the file is as good as without a proof
        return str(error)


def _put_range(builder: IndexFileBuilder, entries: KeyRange) -> None:
    passed = 0
    for batch in read_batches(Path(entries.staged), _INDEX_FIELDS):
        start, stop = max(entries.start - passed, 0), entries.stop - passed
        passed += len(batch.key_hash)
        if start < len(batch.key_hash) and stop > 0:
            builder.put(batch.key_hash[start:stop], batch.key_row[start:stop], batch.messages)
        if passed >= entries.stop:
            return


def _end_of(entry: KeyRange) -> FileEnd:
    passed = 0
    for batch in read_batches(Path(entry.staged), _INDEX_FIELDS):
        if entry.start < passed + len(batch.key_hash):
            message = batch.messages[batch.key_row[entry.start - passed]]
            return FileEnd(int(message["store_timestamp"]), int(message["physical_offset"]))
        passed += len(batch.key_hash)
    raise IndexError(f"{entry.staged} has no index entry {entry.start}")


def write_queues(job: WriteJob, task: QueueTask) -> QueuesWritten:
    """Safe to run twice, and beside the other runs: every entry has one place. Raises StoreAccessError."""
    if task.has_old:
        return _write_over_old(job, task)
    queues = {
        queue: ConsumeQueueWriter(queue_folder(Path(job.queue_folder), *queue), job.config.queue_entries, position)
        for queue, position in task.positions.items()
    }  # fmt: skip
    taken = given = 0
    lost = job.lost_ranges()
    held = _Held() if task.is_irregular else None
    try:
        for staged in task.staged:
            for batch in read_batches(Path(staged), _QUEUE_FIELDS):
                batch_taken, batch_entries = _append(batch, queues, lost, held)
                taken += batch_taken
                given += batch_entries
        if held is not None:
            taken += held.release(lost)
        _close(queues)
    finally:
        for written in queues.values():
            written.close(sync=False)
    blanks = sum(written.blanks for written in queues.values())
    return QueuesWritten(taken, given - taken, blanks)


def _write_over_old(job: WriteJob, task: QueueTask) -> QueuesWritten:
    (name,) = task.positions
    folder = queue_folder(Path(job.queue_folder), *name)
    old = OldQueue(
        name, queue_folder(Path(job.old_queues), *name), folder, job.config.queue_entries, job.log
    )
    for staged in task.staged:
        for batch in read_batches(Path(staged), _QUEUE_FIELDS):
            if name in batch.queues:
                old.compare(batch, batch.queues.index(name))
    queue = old.finish()
    lost, held = job.lost_ranges(), _Held()
    given = 0
    try:
        for staged in task.staged:
            for batch in read_batches(Path(staged), _QUEUE_FIELDS):
                _, offered = _append(batch, {name: queue}, lost, held)
                given += offered
        held.release(lost)
        _close({name: queue})
    finally:
        queue.close(sync=False)
    taken = given - old.unplaced
    if queue.position is None:
        remove_tree(folder)
    return QueuesWritten(taken, given - taken, old.blanks + queue.blanks, old.kept)


def _append(
    batch: DispatchBatch,
    queues: dict[Queue, ConsumeQueueWriter],
    lost: LostRanges,
    held: _Held | None,
) -> tuple[int, int]:
    """Append a batch's entries to those of its queues that are in `queues`; returns taken, given."""
    entries = batch.queue_entries()
    taken = given = appended = 0
    for number, name in enumerate(batch.queues):
        place = slice(entries.bounds[number], entries.bounds[number + 1])
        queue = queues.get(name)
        if queue is None or place.start == place.stop:
            continue
        rows, queue_offset = entries.rows[place], entries.queue_offset[place]
        if held is None:
            taken += queue.append(batch.messages, rows, queue_offset, lost)
        else:
            taken += held.append(queue, batch.messages[rows], queue_offset, lost)
        given += int(place.stop - place.start)
        appended += 1
        if appended % _MAX_OPEN_QUEUES == 0:
            _close(queues)  # a log can have more queues than a process may have open files
    return taken, given


class _Held:
    """The last message of one queue, held back until the next is known: whether it leaves a gap depends on that."""

    def __init__(self) -> None:
        self._queue: ConsumeQueueWriter | None = None
        self._messages: npt.NDArray[np.void] = np.empty(0, MESSAGE_DTYPE)
        self._queue_offset: npt.NDArray[np.int64] = np.empty(0, np.int64)

    def append(
        self,
        queue: ConsumeQueueWriter,
        messages: npt.NDArray[np.void],
        queue_offset: npt.NDArray[np.int64],
        lost: LostRanges,
    ) -> int:
        """Append the message held and all of these but the last; returns how many were taken."""
        self._queue = queue
        before = self._messages if len(self._messages) else messages[:0]
        all_messages = np.concatenate([before, messages])
        offsets = np.concatenate([self._queue_offset, queue_offset])
        rows = np.arange(len(offsets) - 1)
        taken = queue.append(all_messages, rows, offsets, lost)
        self._messages, self._queue_offset = all_messages[-1:], offsets[-1:]
        return taken

    def release(self, lost: LostRanges) -> int:
        """Append the last."""
        if self._queue is None:
            return 0
        return self._queue.append(self._messages, np.arange(1), self._queue_offset, lost)


def _close(queues: dict[Queue, ConsumeQueueWriter]) -> None:
    """Make all files durable, and close them: the disk works on all of them while each is waited for."""
    for queue in queues.values():
        queue.start_writeback()
    for queue in queues.values():
        queue.close(sync=True)
