"""The write tasks. Each writes one IndexFile, or the ConsumeQueue entries of some splits or queues."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from posixpath import join
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from reput.base import StoreConfig
from reput.core import (
    ConsumeQueueWriter,
    DispatchBatch,
    IndexFileBuilder,
    IndexFileEnd,
    IndexFileReader,
    LostRanges,
    Proof,
    Queue,
    queue_folder,
)
from reput.engine.compare import prove_new
from reput.engine.rebuild.batch_file import read_batches, read_entries, read_index_entries
from reput.engine.rebuild.batch_queues import Batches, write_batch_queues
from reput.engine.rebuild.divided import divided_batches
from reput.engine.rebuild.extended_queues import write_extended_queues
from reput.engine.rebuild.index_layout import IndexFileTask, KeyRange
from reput.engine.rebuild.queue_plan import QueueTask, positions_before, read_plan
from reput.engine.writer import ExtendedQueueFiles, LogPart, OldQueue
from reput.errors import StoreAccessError, StoreError
from reput.format.dtypes import MESSAGE_DTYPE
from reput.format.file_names import (
    BATCH_QUEUE_FOLDER,
    CONSUME_QUEUE_FOLDER,
    EXTENSION_FOLDER,
    QUEUE_FOLDERS,
)
from reput.format.index_file import IndexHeader
from reput.io import DISK, LOCAL, Disk, StagedFiles, Storage
from reput.kernels.jit import new_rows

_QUEUE_FIELDS = (
    "physical_offset", "size", "tags_code", "sys_flag", "queue", "queue_offset", "multi",
)  # fmt: skip


class WriteJob(NamedTuple):
    """The common arguments of all write tasks of a rebuild.

    store     the store with the log
    scanned   staged files: a folder or URL
    plan      folder with the files of the plan
    parts     unfinished IndexFiles and queues. This folder is outside `new`, because a lost worker may leave
              an unfinished file, or still write to it after another attempt has finished
    new       the folder that the commit swaps in
    log       the begin, end and unreadable ranges of the log
    replaced  the store, if it is rebuilt in place, else None
    storage   storage of the store
    """

    store: str
    scanned: str
    plan: str
    parts: str
    new: str
    config: StoreConfig
    log: LogPart
    replaced: str | None
    storage: Storage = LOCAL

    def old_queues(self, kind: str) -> Path | None:
        """Return the folder of the queues that are replaced; None if no queues are replaced."""
        return None if self.replaced is None else Path(self.replaced, kind)

    def lost_ranges(self) -> LostRanges:
        return np.array(self.log.lost, np.int64).reshape(-1, 2)


class IndexFileWritten(NamedTuple):
    """A written IndexFile: its number, its header, and the store timestamp (ms) of its first entry.

    proof  the `Proof` that the file has an item for each key of the messages in a range of the log; a text with the
           reason if this could not be proven
    """

    number: int
    header: IndexHeader
    first_timestamp: int
    proof: Proof | str


class QueuesWritten(NamedTuple):
    """The numbers of entries and files that a task wrote.

    entries      entries that were added to queues
    dropped      entries that got no place in a queue
    blanks       pre-blank entries in place of lost messages
    old_entries  old entries whose messages are lost
    objects      files staged in object storage
    older        messages that need no entry, because they are older than their queue
    """

    entries: int
    dropped: int
    blanks: int = 0
    old_entries: int = 0
    objects: int = 0
    older: int = 0


def index_part(parts: str, number: int) -> str:
    """Return the path where a task leaves IndexFile `number`. The commit gives it its final name."""
    return join(parts, f"part-{number:06d}")


def write_index_file(job: WriteJob, task: IndexFileTask) -> IndexFileWritten:
    """Write one IndexFile. Safe to run twice, also at the same time: each attempt writes its own file.

    Raises StoreAccessError.
    """
    previous = _end_of(job, task.previous) if task.previous else IndexFileEnd()
    with StagedFiles.writing(index_part(job.parts, task.number)) as attempt:
        with IndexFileBuilder(attempt, job.config, previous) as builder:
            for entries in task.entries:
                _put_range(job, builder, entries)
            header = builder.close()
        proof = _prove(job, task, attempt)
    first = header.begin_timestamp if task.entries else header.end_timestamp
    return IndexFileWritten(task.number, header, first, proof)


def _prove(job: WriteJob, task: IndexFileTask, path: Path) -> Proof | str:
    """Prove that the IndexFile agrees with the log. Each task proves the file that it wrote, so tasks work in parallel.

    Return the proof, or the reason why there is none. For a remote store, the reason is empty: no proof is made,
    because none would be saved.
    """
    if not job.storage.is_local:
        return ""
    try:
        file = IndexFileReader(str(path), job.config.hash_slots, job.config.index_items)
        with closing(file):
            return prove_new(job.store, task.log_files, file)
    # A proof only makes queries faster. The file is valid without one.
    except StoreError as error:
        return str(error)


def _put_range(job: WriteJob, builder: IndexFileBuilder, entries: KeyRange) -> None:
    position = 0
    for batch in read_index_entries(join(job.scanned, entries.staged)):
        start, stop = max(entries.start - position, 0), entries.stop - position
        position += len(batch.key_hash)
        if start < len(batch.key_hash) and stop > 0:
            builder.put(batch.key_hash[start:stop], batch.key_row[start:stop], batch.messages)
        # The remaining batches belong to later files.
        if position >= entries.stop:
            break
    builder.start_writeback()


def _end_of(job: WriteJob, entry: KeyRange) -> IndexFileEnd:
    position = 0
    for batch in read_index_entries(join(job.scanned, entry.staged)):
        if entry.start < position + len(batch.key_hash):
            message = batch.messages[batch.key_row[entry.start - position]]
            return IndexFileEnd(int(message["store_timestamp"]), int(message["physical_offset"]))
        position += len(batch.key_hash)
    raise IndexError(f"{entry.staged} has no index entry {entry.start}")


def write_queues(job: WriteJob, task: QueueTask) -> QueuesWritten:
    """Write queues. Safe to run twice, also at the same time: every entry has one place. Raises StoreAccessError."""
    if task.kind == "regular":
        return _write_regular(job, task)
    return _write_pack(job, task)


def _write_regular(job: WriteJob, task: QueueTask) -> QueuesWritten:
    plan, positions = read_plan(job.plan), positions_before(job.plan, task)
    folder, entries = Path(job.new, CONSUME_QUEUE_FOLDER), job.config.queue_entries
    queues: dict[Queue, ConsumeQueueWriter] = {}

    def writer_of(name: Queue) -> ConsumeQueueWriter | None:
        if name not in queues and name not in plan.apart:
            place = queue_folder(folder, *name)
            queues[name] = ConsumeQueueWriter(place, entries, positions.get(name))
        return queues.get(name)

    count = 0
    try:
        for staged in plan.staged[task.first : task.stop]:
            for batch in read_entries(join(job.scanned, staged)):
                bounds, first, end = batch.bounds.tolist(), batch.first.tolist(), batch.end.tolist()
                for number, name in enumerate(batch.queues):
                    start, stop = bounds[number : number + 2]
                    if start < stop and (queue := writer_of(name)) is not None:
                        queue.extend(batch.entries[start:stop], first[number], end[number])
                        count += stop - start
        _close(queues)
    finally:
        for written in queues.values():
            written.close(sync=False)
    return QueuesWritten(count, 0)


def _write_pack(job: WriteJob, task: QueueTask) -> QueuesWritten:
    """Write the task's pack (group of queues) into a folder of this attempt, then move each queue to its place."""
    pack = frozenset(read_plan(job.plan).pack(task.number))
    batches = partial(batches_of, job, task.number, pack)
    attempt = Path(job.parts, f"pack-{task.number:06d}-{uuid4().hex}")
    DISK.create_folder(attempt)
    try:
        if task.kind == "old extended":
            result = _write_over_old_extended(job, batches, pack, attempt)
        elif task.kind == "old":
            result = _write_over_old(job, batches, pack, attempt)
        elif task.kind == "irregular":
            result = _write_irregular(job, batches, pack, attempt)
        elif task.kind == "extended":
            result = QueuesWritten(
                *write_extended_queues(
                    job.store,
                    batches,
                    attempt,
                    job.config,
                    pack,
                    job.log.lost,
                    storage=job.storage,
                )
            )
        else:
            count, dropped, old_entries = write_batch_queues(
                job.store, batches, pack, attempt / BATCH_QUEUE_FOLDER,
                job.config.batch_queue_file_bytes, job.log, job.old_queues(BATCH_QUEUE_FOLDER),
                job.storage,
            )  # fmt: skip
            result = QueuesWritten(count, dropped, 0, old_entries)
        for name in pack:
            for kind in QUEUE_FOLDERS:
                _publish(
                    queue_folder(attempt / kind, *name), queue_folder(Path(job.new, kind), *name)
                )
    finally:
        DISK.remove_tree(attempt)
    return result


def _publish(folder: Path, place: Path) -> None:
    """Move a queue to its place. If another attempt was faster, keep its files, which are identical."""
    if folder.exists() and not place.exists():
        DISK.create_folder(place.parent)
        try:
            DISK.rename(folder, place)
        except StoreAccessError:
            if not place.exists():
                raise


def batches_of(
    job: WriteJob, number: int, pack: Collection[Queue] | None, fields: Sequence[str]
) -> Iterator[DispatchBatch]:
    """Yield the log's batches that have entries of the queues in `pack`. They may also have messages of other queues.

    A pack is a group of queues that one task writes; None for all queues. `number` is its index in the plan.
    """
    plan = read_plan(job.plan)
    if pack is not None and number in plan.divided:
        yield from divided_batches(job.parts, plan.divisions, number, fields, pack)
        return
    for staged in plan.staged:
        yield from read_batches(join(job.scanned, staged), fields, pack)


def _write_irregular(
    job: WriteJob, batches: Batches, pack: Collection[Queue], attempt: Path
) -> QueuesWritten:
    folder, entries = attempt / CONSUME_QUEUE_FOLDER, job.config.queue_entries
    queues = {name: ConsumeQueueWriter(queue_folder(folder, *name), entries) for name in pack}
    count, total = _walk(job, batches, queues)
    return QueuesWritten(count, total - count, sum(queue.blanks for queue in queues.values()))


def _walk(
    job: WriteJob, batches: Batches, queues: dict[Queue, ConsumeQueueWriter]
) -> tuple[int, int]:
    """Append the entries in `batches` that belong to `queues`.

    Return two counts: of the appended entries, and of all entries in `batches` that belong to `queues`. An entry is not
    appended if the queue already has this entry, or if the entry's queue offset lies before the queue's end.
    """
    count = total = 0
    lost, last_messages = job.lost_ranges(), {name: _LastMessage() for name in queues}
    try:
        for batch in batches(_QUEUE_FIELDS):
            batch_count, batch_entries = _append(batch, queues, lost, last_messages)
            count += batch_count
            total += batch_entries
        count += sum(message.release(lost) for message in last_messages.values())
        _close(queues)
    finally:
        for queue in queues.values():
            queue.close(sync=False)
    return count, total


def _write_over_old(
    job: WriteJob, batches: Batches, pack: Collection[Queue], attempt: Path
) -> QueuesWritten:
    old = {name: _old_queue(job, name, attempt) for name in pack}
    queues = _compare(batches, old)
    _, total = _walk(job, batches, queues)
    for name, queue in queues.items():
        if queue.position is None:
            DISK.remove_tree(queue_folder(attempt / CONSUME_QUEUE_FOLDER, *name))
    return _over_old(old, total, sum(queue.blanks for queue in queues.values()))


def _write_over_old_extended(
    job: WriteJob, batches: Batches, pack: Collection[Queue], attempt: Path
) -> QueuesWritten:
    old = {name: _old_queue(job, name, attempt, with_units=True) for name in pack}
    queues = _compare(batches, old)
    files = {name: queue.found for name, queue in old.items()}
    ends = {name: queue.position or 0 for name, queue in queues.items()}
    units = ExtendedQueueFiles.cut_units(files, ends, job.config, Disk())
    begun = {name: (queue, units.get(name, 0)) for name, queue in queues.items()}
    count, dropped, blanks = write_extended_queues(
        job.store, batches, attempt, job.config, pack, job.log.lost, begun
    )
    for name, queue in queues.items():
        if queue.position is None:
            DISK.remove_tree(queue_folder(attempt / CONSUME_QUEUE_FOLDER, *name))
        folder = queue_folder(attempt / EXTENSION_FOLDER, *name)
        if not any(folder.iterdir()):
            DISK.remove_tree(folder)
    return _over_old(old, count + dropped, blanks)


def _old_queue(job: WriteJob, name: Queue, attempt: Path, *, with_units: bool = False) -> OldQueue:
    folders = [queue_folder(Path(job.replaced or job.store, kind), *name) for kind in _KINDS]
    copies = [queue_folder(attempt / kind, *name) for kind in _KINDS]
    units = (folders[1], copies[1]) if with_units else None
    return OldQueue(name, folders[0], copies[0], job.config.queue_entries, job.log, units)


_KINDS = (CONSUME_QUEUE_FOLDER, EXTENSION_FOLDER)


def _compare(batches: Batches, old: dict[Queue, OldQueue]) -> dict[Queue, ConsumeQueueWriter]:
    """Compare the old queues with all messages in `batches`, and return writers that append to these queues."""
    for batch in batches(_QUEUE_FIELDS):
        for entries in batch.by_queue():
            if entries.queue in old:
                old[entries.queue].compare(batch, entries)
    return {name: queue.finish() for name, queue in old.items()}


def _over_old(old: dict[Queue, OldQueue], total: int, blanks: int) -> QueuesWritten:
    unplaced = sum(queue.unplaced for queue in old.values())
    blanks += sum(queue.blanks for queue in old.values())
    old_entries = sum(queue.kept for queue in old.values())
    older = sum(queue.older for queue in old.values())
    return QueuesWritten(total - unplaced - older, unplaced, blanks, old_entries, older=older)


def _append(
    batch: DispatchBatch,
    queues: dict[Queue, ConsumeQueueWriter],
    lost: LostRanges,
    last_messages: dict[Queue, _LastMessage],
) -> tuple[int, int]:
    """Append a batch's entries to the queues that have a writer.

    Return two counts: of the appended entries, and of all entries of these queues in the batch. An entry is not
    appended if the queue already has this entry, or if the entry's queue offset lies before the queue's end.
    """
    count = total = 0
    for _, name, rows, queue_offset in batch.by_queue():
        if (queue := queues.get(name)) is not None:
            count += last_messages[name].append(queue, batch.messages[rows], queue_offset, lost)
            total += len(rows)
    return count, total


class _LastMessage:
    """Holds back the last message of a queue until the next message of the queue is known.

    Whether the queue keeps a gap before a message depends on the queue offset of the next message (`append_entries`).
    """

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
        """Append the message that the last call held back, and all of `messages` except the last one.

        The last one is held back for the next call. Return the number of appended entries.
        """
        self._queue = queue
        before = self._messages if len(self._messages) else messages[:0]
        all_messages = new_rows(len(before) + len(messages), messages.dtype)
        np.concatenate([before, messages], out=all_messages)
        offsets = np.concatenate([self._queue_offset, queue_offset])
        rows = np.arange(len(offsets) - 1)
        count = queue.append(all_messages, rows, offsets, lost)
        self._messages, self._queue_offset = all_messages[-1:], offsets[-1:]
        return count

    def release(self, lost: LostRanges) -> int:
        """At the end of the log, append the held-back message to its queue. Return the number of appended entries."""
        if self._queue is None:
            return 0
        return self._queue.append(self._messages, np.arange(1), self._queue_offset, lost)


def _close(queues: dict[Queue, ConsumeQueueWriter]) -> None:
    """Make all files durable, and close them."""
    # Start the writeback of all files first, so that the disk writes them in parallel.
    for queue in queues.values():
        queue.start_writeback()
    for queue in queues.values():
        queue.close(sync=True)
