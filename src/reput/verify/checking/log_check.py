"""One file of the log: every record, and the entries of ConsumeQueues and IndexFiles that lead to its messages.

A task needs nothing of another file, so it runs anywhere. Records are walked as a rebuild that salvages walks them.
Entries are held against messages by physical offset, not by number: what an entry lacks says nothing of those after it,
and entries of a record that cannot be read any more are the record's damage, not their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from reput.errors import ReputError
from reput.findings import Finding, Kind
from reput.format.record_crc import CRC_PROPERTY_END, record_crc_ok
from reput.log.dispatch_batch import Queue
from reput.log.files import CommitLogFile
from reput.log.scan import FileScan, Piece, ScanBuffers
from reput.log.scan_mode import SALVAGE, DispatchRules
from reput.recovery.kernel_crc import wrong_bodies
from reput.verify.checking.index_entries import IndexPiece, LoggedIndex
from reput.verify.checking.light_queues import LightQueue, taken_offsets
from reput.verify.checking.queue_entries import LoggedQueues, QueuePiece
from reput.verify.checking.sound_file import latest_of_sound_file
from reput.verify.checking.tally import Tally
from reput.verify.checking.words import counted

_CHUNK_BYTES = 32 << 20
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LogTask:
    """One file.

    stop           physical offset at which the log ends, or the file
    is_last        no later file has a record
    is_checked     a broker that starts now checks the records of this file
    log_end        where the log ends
    dispatched_to  physical offset up to which messages have been dispatched
    index_folder   index/ of the store
    indexed        offsets of the first and last items of each IndexFile
    indexed_again  physical offset from which a broker that starts now adds index entries; None for never
    dispatched_from  physical offset from which it dispatches messages; None for none
    """

    file: CommitLogFile
    stop: int
    is_last: bool
    is_live: bool
    is_checked: bool
    log_end: int
    dispatched_to: int
    rules: DispatchRules
    queues: tuple[QueuePiece, ...]
    index: tuple[IndexPiece, ...]
    index_folder: str
    indexed: tuple[tuple[int, int], ...]
    indexed_again: int | None = None
    dispatched_from: int | None = None


@dataclass(slots=True)
class LogFileFound:
    """What one file holds.

    latest         of its store timestamps, ms
    without_queue  messages of queues that have no ConsumeQueue, and the offset of the first
    without_index  keys that have no entry, where there are no IndexFiles at all
    light          how far the entries of %LMQ% queues lag behind the queue offsets of their messages
    """

    latest: int | None = None
    without_queue: dict[Queue, tuple[int, int]] = field(default_factory=dict)
    without_index: int = 0
    light: dict[Queue, LightQueue] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


class Chunk:
    """Messages that follow each other: where they lie, and the columns of their batches.

    damage  physical offsets that cannot be read, from the end of the messages before this chunk on
    taken   physical offsets of messages that take a queue offset of a light queue, but have no entry
    """

    def __init__(self, start: int, has_light: bool = False) -> None:
        self._has_light = has_light
        self.taken: dict[Queue, list[int]] = {}
        self.start = self.stop = start
        self.offsets: Offsets = np.empty(0, np.int64)
        self.times: Offsets = np.empty(0, np.int64)
        self.sizes: Offsets = np.empty(0, np.int64)
        self.tags: Offsets = np.empty(0, np.int64)
        self.key_offsets: Offsets = np.empty(0, np.int64)
        self.key_hashes: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self.queues: dict[Queue, tuple[Offsets, Offsets]] = {}
        self.damage: list[Finding] = []
        self._parts: list[tuple[Offsets, npt.NDArray[np.void], Offsets, npt.NDArray[np.int32]]] = []
        self._queue_parts: dict[Queue, list[tuple[Offsets, Offsets]]] = {}
        self._rows = 0

    def add(self, piece: Piece) -> None:
        batch = piece.batch
        offsets = piece.positions + piece.base
        messages = batch.messages.copy()
        self._parts.append((offsets, messages, offsets[batch.key_row], batch.key_hash.copy()))
        bounds, rows, queue_offset = batch.queue_entries()
        edges = bounds.tolist()
        for number in np.flatnonzero(np.diff(bounds)).tolist():
            part = slice(edges[number], edges[number + 1])
            self._queue_parts.setdefault(batch.queues[number], []).append(
                (rows[part] + self._rows, queue_offset[part].copy())
            )
        for queue, offset in taken_offsets(piece) if self._has_light else ():
            self.taken.setdefault(queue, []).append(offset)
        self._rows += len(messages)
        self.stop = int(offsets[-1]) + int(messages["size"][-1])

    def close(self, stop: int) -> None:
        """Join the parts; the chunk reaches up to `stop`."""
        self.stop = stop
        if not self._parts:
            return
        offsets, messages, key_offsets, hashes = zip(*self._parts, strict=True)
        self.offsets, self.key_offsets = np.concatenate(offsets), np.concatenate(key_offsets)
        self.key_hashes = np.concatenate(hashes)
        joined = np.concatenate(messages)
        self.times, self.tags = joined["store_timestamp"], joined["tags_code"]
        self.sizes = joined["size"].astype(np.int64)
        for queue, parts in self._queue_parts.items():
            rows, queue_offset = zip(*parts, strict=True)
            self.queues[queue] = np.concatenate(rows), np.concatenate(queue_offset)
        self._parts.clear()
        self._queue_parts.clear()

    def in_damage(self, offsets: Offsets) -> npt.NDArray[np.bool_]:
        """Which of these offsets lie in bytes that cannot be read."""
        found = np.zeros(len(offsets), np.bool_)
        for lost in self.damage:
            found |= (offsets >= lost.start) & (offsets < lost.stop)
        return found


@cache
def _buffers() -> ScanBuffers:
    """A worker process keeps its buffers from task to task."""
    return ScanBuffers()


def check_log_file(task: LogTask) -> LogFileFound:
    """Everything about one file of the log. A file that expired meanwhile has nothing to be found. Never writes."""
    found = LogFileFound()
    try:
        _FileCheck(task, found).run()
    except ReputError as error:
        if not task.is_live:
            found.findings.append(
                Finding(Kind.UNREADABLE_RECORD, task.file.path, f"cannot be read: {error}")
            )
    return found


class _FileCheck:
    def __init__(self, task: LogTask, found: LogFileFound) -> None:
        self._task, self._found = task, found
        self._tally = Tally()

    def run(self) -> None:
        latest = latest_of_sound_file(self._task, self._scan(), _is_sound)
        if latest is not None:
            self._found.latest = latest
        else:
            self._look_closer(self._scan())

    def _scan(self) -> FileScan:
        task = self._task
        return FileScan(
            task.file, task.file.start, task.stop, SALVAGE, task.rules, buffers=_buffers()
        )

    def _look_closer(self, scan: FileScan) -> None:
        task = self._task
        self._queues = LoggedQueues(
            task.queues, task.dispatched_to, task.dispatched_from, self._tally
        )
        self._index = LoggedIndex(
            task.index,
            task.indexed,
            task.dispatched_to,
            task.indexed_again,
            task.index_folder,
            self._tally,
        )
        chunks = self._chunks(scan)
        for chunk in chunks:
            self._queues.compare(chunk)
            self._index.compare(chunk)
            for lost in chunk.damage:
                self._found.findings.append(self._explained(lost, chunk))
        self._note_end(scan)
        self._found.without_queue = self._queues.without_queue
        self._found.light = self._queues.light
        self._found.without_index = self._index.without_index
        self._found.findings += self._tally.findings()

    def _chunks(self, scan: FileScan) -> Iterator[Chunk]:
        """The records of the file, those of some MiB together; damage belongs to the chunk that it lies in."""
        has_light = self._queues.has_light
        chunk, told = Chunk(self._task.file.start, has_light), 0
        for piece in scan.pieces():
            self._check_records(piece)
            chunk.add(piece)
            if chunk.stop - chunk.start >= _CHUNK_BYTES:
                chunk.damage = [lost for lost in scan.damage[told:] if lost.start < chunk.stop]
                told += len(chunk.damage)
                chunk.close(chunk.stop)
                yield chunk
                chunk = Chunk(chunk.stop, has_light)
        chunk.damage = list(scan.damage[told:])
        task, end = self._task, scan.end
        if end.unreadable:
            chunk.damage.append(task.file.lost(end.position, task.file.end, end.unreadable))
        if task.is_last or task.is_live:  # what cannot be read there is where the log ends
            chunk.damage = [lost for lost in chunk.damage if lost.start < task.log_end]
        chunk.close(min(self._task.file.end, self._task.log_end))
        yield chunk

    def _check_records(self, piece: Piece) -> None:
        found, file, batch = self._found, self._task.file, piece.batch
        offsets, times = piece.positions + piece.base, batch.messages["store_timestamp"]
        high = int(times.max())
        found.latest = high if found.latest is None else max(found.latest, high)
        stated = batch.messages["physical_offset"]
        moved = np.flatnonzero(stated != offsets)
        self._tally.add(
            Kind.MISPLACED_RECORD, file.path, len(moved),
            lambda: file.lost(
                int(offsets[moved[0]]), int(offsets[moved[0]]),
                f"the record states physical offset {stated[moved[0]]}", Kind.MISPLACED_RECORD,
            ),
            times[moved],
        )  # fmt: skip
        wrong = wrong_bodies(piece.data, piece.positions, batch.messages)
        self._tally.add(
            Kind.BODY_CRC, file.path, len(wrong),
            lambda: self._with_start(
                file.lost(
                    int(offsets[wrong[0]]), int(offsets[wrong[0]]),
                    "the body does not match its CRC", Kind.BODY_CRC,
                )
            ),
            times[wrong],
        )  # fmt: skip
        other = np.setdiff1d(_wrong_records(piece), wrong)
        self._tally.add(
            Kind.RECORD_CRC, file.path, len(other),
            lambda: replace(
                file.lost(
                    int(offsets[other[0]]), int(offsets[other[0]]),
                    "the record does not match its CRC (__CRC32#)", Kind.RECORD_CRC,
                ),
                at_next_start="does not notice it: it compares bodies, unless forceVerifyPropCRC is set",
            ),
            times[other],
        )  # fmt: skip

    def _explained(self, lost: Finding, chunk: Chunk) -> Finding:
        """Damage, with what it costs: the entries that led to it say how many messages."""
        messages = self._queues.entries_within(lost.start, lost.stop)
        cost = f"{counted(messages, 'message')} with a ConsumeQueue entry can no longer be read"
        return replace(self._with_start(lost), cost=cost if messages else "")

    def _with_start(self, lost: Finding) -> Finding:
        task = self._task
        what = "does not notice it: it does not check this file"
        if task.is_checked:
            rest = task.log_end - lost.start
            what = (
                f"cuts the log at {lost.start} and loses the {rest:,} bytes after it;"
                " the index keeps the entries of what was cut off"
            )
        return replace(lost, at_next_start=what)

    def _note_end(self, scan: FileScan) -> None:
        task, end = self._task, self._task.log_end
        passed_over = any(lost.start >= end for lost in scan.damage)
        if not task.is_last or task.is_live or not (scan.end.torn or passed_over):
            return
        self._found.findings.append(
            Finding(
                Kind.TORN_LOG_END, task.file.path,
                "what follows the last record is not a record", end - task.file.start, end,
                cost="a message of the same size that is put here can make old records reappear",
                at_next_start=f"ends the log at {end}; the bytes stay",
            )
        )  # fmt: skip


def _is_sound(piece: Piece) -> bool:
    """Whether no record of a piece has a wrong CRC."""
    wrong = wrong_bodies(piece.data, piece.positions, piece.batch.messages)
    return not len(wrong) and not len(_wrong_records(piece))


def _wrong_records(piece: Piece) -> npt.NDArray[np.int64]:
    """Numbers of the records that do not match the CRC in their last property (enabledAppendPropCRC, 5.x)."""
    ends = piece.positions + piece.batch.messages["size"]
    may_have = np.flatnonzero(piece.data[ends - 1] == CRC_PROPERTY_END)  # no record of 4.9 ends so
    data = piece.data.data
    wrong = [
        row
        for row in may_have.tolist()
        if not record_crc_ok(data[int(piece.positions[row]) : int(ends[row])])
    ]
    return np.array(wrong, np.int64)
