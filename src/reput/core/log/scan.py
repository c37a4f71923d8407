"""Walk a CommitLog file: yield DispatchBatches, report damage.

Mirrors `DefaultMessageStore.ReputMessageService.doReput` (tag rocketmq-all-4.9.3). A blank ends its file. A record
whose TOTALSIZE is not the sum of its parts is skipped. At other unreadable bytes, the rest of the file is skipped. With
`salvage`, the walk resumes at the next verifiable record instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from reput.base import Finding, Kind
from reput.core.log.dispatch_batch import DispatchBatch, Queue
from reput.core.log.files import CommitLogFile, add_out_of_place, find_record, first_nonzero
from reput.core.log.offset_range import OffsetRange
from reput.core.log.verdict import DEFAULT_RULES, DispatchRules, ScanMode, WalkVerdict
from reput.format.commit_log import BLANK_BYTES, BLANK_MAGIC, read_size_and_magic
from reput.format.dtypes import MESSAGE_DTYPE, MULTI_DTYPE
from reput.format.java_string import decode_utf8
from reput.format.properties import allows_light_queues
from reput.io import FileReader, OpenFile, RangeReader
from reput.kernels import record_walk as walk
from reput.kernels.commit_log_scan import scan_records
from reput.kernels.jit import new_rows
from reput.kernels.places_scan import scan_places
from reput.kernels.queue_table import QUEUES_USED, grown, new_queue_table

# Maximum numbers per batch: of messages, of index entries, and of entries in further queues (INNER_MULTI_DISPATCH).
BATCH_MESSAGES = 1 << 18
_BATCH_KEYS = 4 * BATCH_MESSAGES
_BATCH_MULTI = 1 << 16
_READ_BYTES = 4 << 20
# The room of a first table of queues: queues, and bytes of their names. A large one costs more than a short walk.
_FEW_QUEUES, _QUEUES = (1 << 4, 1 << 10), (1 << 10, 1 << 18)
_SHORT_BYTES = 64 << 10
# Greater than every physical offset.
_NEVER = (1 << 63) - 1
_NO_RECORD = "no record begins here"
# Bytes read after the end of the range, for the record that crosses this end.
_LEAST_BEYOND_BYTES, _MOST_BEYOND_BYTES = 4 << 10, 64 << 10


@dataclass
class ScanEnd:
    """The place and reason at which a walk ended.

    position   physical offset of the first byte that was neither read as a record nor skipped
    finished   whether the walk is done with the file: it met the file's blank, the file's end or unreadable bytes
    unreadable why no record begins at `position`; "" if the walk ended at `stop`, a blank or the file's end
    data_follows  whether a verifiable record lies after `position` in this file
    torn       whether any byte after `position` in this file is not zero
    blank      physical offset of the blank that ended the file
    """

    position: int
    finished: bool = False
    unreadable: str = ""
    data_follows: bool = False
    torn: bool = False
    blank: int | None = None


class ScannedPiece(NamedTuple):
    """A batch with the bytes of its records: record i begins at data[positions[i]].

    base  physical offset of data[0]

    `data` is valid until the next piece is requested.
    """

    data: npt.NDArray[np.uint8]
    base: int
    positions: npt.NDArray[np.int64]
    batch: DispatchBatch

    def record(self, number: int) -> OffsetRange:
        """Return a record's range in the log."""
        start = self.base + int(self.positions[number])
        return OffsetRange(start, start + int(self.batch.messages["size"][number]))


class ScanBuffers:
    """Memory for walks. It is reused, because allocating it takes longer than walking a small range."""

    def __init__(self) -> None:
        self.data = np.empty(_READ_BYTES, np.uint8)
        self.messages = new_rows(BATCH_MESSAGES, MESSAGE_DTYPE)
        self.key_hash = np.empty(_BATCH_KEYS, np.int32)
        self.multi = new_rows(_BATCH_MULTI, MULTI_DTYPE)


class _ConsecutiveFiles:
    """A RangeReader of consecutive files. Each is open only while it is read."""

    def __init__(self, file: CommitLogFile, open_file: OpenFile) -> None:
        self._file, self._open_file = file, open_file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read_into(self, buffer: npt.NDArray[np.uint8], position: int) -> None:
        start = self._file.start + position
        at, stop = start, start + len(buffer)
        while at < stop:
            file = self._file.file_at(at)
            end = min(file.end, stop)
            with self._open_file(file.path) as reader:
                reader.read_into(buffer[at - start : end - start], at - file.start)
            at = end

    def read(self, position: int, length: int) -> bytes:
        data = bytearray(length)
        self.read_into(np.frombuffer(data, np.uint8), position)
        return bytes(data)

    def next_run(self, position: int) -> tuple[int, int] | None:
        return (position, self._file.size) if position < self._file.size else None


class FileScan:
    """A walk over one file from `start` to the first record boundary at or after `stop` (physical offsets).

    The file may stand for consecutive files (`CommitLogFile.file_bytes`). Their modes must be `in_place`, and end at
    damage, because findings would name the first file.

    Iterate over `batches`. A batch is valid until the next one is requested. The other results are complete after the
    last batch:

    end         where and why the walk ended
    damage      the skipped ranges
    hiding      physical offsets of damage that contains a verifiable record
    misplaced   number of messages that state a wrong physical offset; 0 if the mode treats them as damage
    bad_multi   number of messages whose INNER_MULTI_QUEUE_OFFSET cannot be parsed
    end_offset  physical offset of the last message that already has index entries. Messages up to it get no new entries
                (IndexService.buildIndex)
    """

    def __init__(
        self,
        file: CommitLogFile,
        start: int,
        stop: int,
        mode: ScanMode,
        rules: DispatchRules = DEFAULT_RULES,
        *,
        end_offset: int = 0,
        buffers: ScanBuffers | None = None,
        open_file: OpenFile = FileReader,
    ) -> None:
        self._file, self._stop, self._mode, self._rules = file, stop, mode, rules
        self._open_file = open_file
        self._window_base, self._by_window = start, False
        self._buffers = buffers or ScanBuffers()
        # If the log has more queues or longer topic names than fit, the table is replaced by a larger one.
        self._table = new_queue_table(*(_FEW_QUEUES if stop - start < _SHORT_BYTES else _QUEUES))
        self._queues: list[Queue] = []
        self._state = np.zeros(walk.STATE_FIELDS, np.int64)
        self._state[walk.END_OFFSET] = end_offset
        self._state[walk.GAP] = file.gap
        self._state[walk.IN_PLACE] = mode.in_place
        self._delays = np.array(rules.delays_ms, np.int64)
        self._tags_from = _NEVER if rules.tags_from is None else rules.tags_from
        self._least_bytes = 0
        self.end = ScanEnd(start)
        self.damage: list[Finding] = []
        self.hiding: list[int] = []

    @property
    def end_offset(self) -> int:
        return int(self._state[walk.END_OFFSET])

    def verdict(self) -> WalkVerdict:
        """Return the result of a finished walk."""
        end, damage = self.end, self.damage
        if not end.unreadable:
            return WalkVerdict(end.position, damage, followed=self.hiding, blank=end.blank)
        rest = self._file.lost(end.position, self._file.end, end.unreadable)
        followed = [*self.hiding, end.position] if end.data_follows else self.hiding
        return WalkVerdict(rest.stop, [*damage, rest], True, followed)

    def unread(self, log_end: int) -> list[Finding]:
        """Return the damage that a finished walk found, except damage at the end of the log.

        The result has the damage that the walk skipped. If the walk stopped at unreadable bytes, and the log continues
        after these bytes, the result also has a finding for the rest of the file.
        """
        end, file = self.end, self._file
        goes_on = file.end < log_end or (end.torn and end.position < log_end)
        if end.unreadable and goes_on:
            return [*self.damage, file.lost(end.position, file.end, end.unreadable)]
        return self.damage

    @property
    def misplaced(self) -> int:
        """Return the number of messages whose PHYSICALOFFSET is not their place."""
        return int(self._state[walk.MISPLACED])

    @property
    def bad_multi(self) -> int:
        """Return the number of messages whose INNER_MULTI_QUEUE_OFFSET cannot be parsed."""
        return int(self._state[walk.BAD_MULTI])

    def batches(self, *, by_window: bool = False) -> Iterator[DispatchBatch]:
        """Yield the batches, as large as possible. With `by_window`, each window yields one or more smaller batches.

        A window is a part of the file that is read in one call, and fits the processor's cache.

        Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
        """
        self._by_window = by_window
        with self._opened() as reader:
            if self._file.gap:
                self.end.position = self._file.after_header(reader, self.end.position)
            is_growing = self._mode.is_growing and not self._file.gap
            if is_growing and self.end.position < self._stop and self._is_unwritten(reader):
                # A reader that follows a growing log often asks for messages that are not written yet. Reading 8 bytes
                # shows this, without a read of 4 MiB.
                self.end.unreadable, self.end.finished = _NO_RECORD, True
            while not self.end.finished and self.end.position < self._stop:
                yield from self._walk_window(reader)
        if self._state[walk.MESSAGES]:
            yield self._take_batch()

    def _opened(self) -> RangeReader:
        if self._file.file_bytes:
            return _ConsecutiveFiles(self._file, self._open_file)
        return self._open_file(self._file.path)

    def pieces(self) -> Iterator[ScannedPiece]:
        """Yield the batches with the bytes of their records. Raises as `batches` does."""
        for batch in self.batches(by_window=True):
            if self._file.file_bytes:
                # Blanks lie between the records of consecutive files. Each record is in the place that it states.
                positions = batch.messages["physical_offset"] - self._window_base
            else:
                size = batch.messages["size"].astype(np.int64) + self._file.gap
                ends = self.end.position - self._window_base - size.sum() + np.cumsum(size)
                positions = ends - size
            yield ScannedPiece(self._buffers.data, self._window_base, positions, batch)

    def _walk_window(self, reader: RangeReader) -> Iterator[DispatchBatch]:
        base = self._window_base = self.end.position
        left = self._stop - base
        beyond = min(max(left, _LEAST_BEYOND_BYTES), _MOST_BEYOND_BYTES)
        # The record that crosses the end of the range belongs to this walk, so read some bytes after this end.
        wanted = max(left + beyond, self._least_bytes)
        length = min(wanted, len(self._buffers.data), self._file.end - base)
        reader.read_into(self._buffers.data[:length], base - self._file.start)
        self._state[walk.POSITION] = 0
        while True:
            file_end = self._file.end_of_file(base + int(self._state[walk.POSITION]))
            status = self._call_kernel(base, length, file_end)
            if status in (walk.STOPPED, walk.BLANK) and file_end < min(base + length, self._stop):
                # The records of consecutive files continue in the next file.
                self._state[walk.POSITION] = file_end - base
                continue
            self.end.position = base + int(self._state[walk.POSITION])
            if status == walk.BATCH_FULL or (self._by_window and self._state[walk.MESSAGES]):
                yield self._take_batch()
            # If the table has no room for another queue, the kernel continues with a larger table.
            if status == walk.TABLE_FULL:
                self._table = grown(self._table)
            elif status != walk.BATCH_FULL:
                break
        needed = int(self._state[walk.NEEDED])
        if status == walk.BLANK or self._ends_at(reader, self.end.position - base, length):
            self.end.blank, self.end.position = self.end.position, file_end
        elif status == walk.SIZE_MISMATCH:
            self._pass_over(reader, needed)
        elif status == walk.OUT_OF_PLACE:
            add_out_of_place(self.damage, self._file, self.end.position, needed)
            self.end.position += needed
        elif status == walk.MORE_BYTES and self.end.position + needed <= self._file.end:
            self._make_room(needed)
        elif status != walk.STOPPED:
            self._stop_or_salvage(reader)
        if self.end.position >= self._file.end:
            self.end.finished = True

    def _call_kernel(self, base: int, length: int, file_end: int) -> int:
        buffers, rules, state = self._buffers, self._rules, self._state
        end = min(base + length, file_end)
        stop = self._stop if file_end == self._file.end else min(self._stop, file_end)
        window = (buffers.data, end - base, stop - base, base, end == file_end)
        # `scan_places` stops at a delayed message, whose properties only `scan_records` reads.
        if self._mode.places_only:
            status = int(scan_places(*window, state, buffers.messages, *self._table))
            if status != walk.SCHEDULED:
                return status
        return int(
            scan_records(
                *window, rules.multi_dispatch, rules.lmq, self._tags_from, self._delays, state,
                buffers.messages, buffers.key_hash, buffers.multi, *self._table,
            )
        )  # fmt: skip

    def _ends_at(self, reader: RangeReader, position: int, length: int) -> bool:
        """Return whether the file's records end at `position`. If they do, the bytes after it need not be searched."""
        if self._file.gap:
            return self._file.is_ledger_end(reader, self.end.position)
        if position + BLANK_BYTES > length:
            return False
        return read_size_and_magic(self._buffers.data.data, position)[1] == BLANK_MAGIC

    def _make_room(self, needed: int) -> None:
        # The next window must contain the whole record.
        self._least_bytes = needed
        if needed > len(self._buffers.data):
            self._buffers.data = np.empty(needed, np.uint8)

    def _pass_over(self, reader: RangeReader, length: int) -> None:
        """Skip a record whose TOTALSIZE is not the sum of its parts.

        Add its position to `hiding` if its wrong lengths hide other records.
        """
        position, file = self.end.position, self._file
        hidden = find_record(reader, file, position + 1, position + length)
        if hidden is not None:
            self.hiding.append(position)
            length = hidden - position if self._mode.salvage else length
        reason = "TOTALSIZE of the record here is not the sum of its parts"
        self.damage.append(
            file.lost(position, position + length, reason, Kind.RECORD_SIZE_MISMATCH)
        )
        self.end.position += length

    def _stop_or_salvage(self, reader: RangeReader) -> None:
        """End at bytes that are not a record, or continue at the next verifiable record."""
        position, file = self.end.position, self._file
        reason, mode = _NO_RECORD, self._mode
        looks_behind = mode.looks_behind or mode.salvage
        if not looks_behind or (mode.is_growing and self._is_unwritten(reader)):
            self.end.unreadable, self.end.finished = reason, True
            return
        following = find_record(reader, file, position + 1, file.end)
        if following is not None and mode.salvage:
            self.damage.append(file.lost(position, following, reason))
            self.end.position = following
            return
        self.end.unreadable, self.end.finished = reason, True
        self.end.data_follows = following is not None
        self.end.torn = first_nonzero(reader, file, position) is not None

    def _is_unwritten(self, reader: RangeReader) -> bool:
        position, file = self.end.position, self._file
        return not any(reader.read(position - file.start, min(BLANK_BYTES, file.end - position)))

    def _take_batch(self) -> DispatchBatch:
        state, buffers = self._state, self._buffers
        # These are views, which the next batch overwrites. Callers that keep a batch must copy it.
        messages = buffers.messages[: state[walk.MESSAGES]]
        multi = buffers.multi[: state[walk.MULTI_ROWS]]
        self._name_queues()
        _renumber_queues(self._queues, messages, multi)
        # 5.x ignores INNER_MULTI_DISPATCH in retry and system topics (`MixAll.topicAllowsLMQ`).
        if self._rules.checks_topic and len(multi):
            allowed = np.array([allows_light_queues(queue.topic) for queue in self._queues])
            multi = multi[allowed[messages["queue"][multi["row"]]]]
        key_hash = buffers.key_hash[: state[walk.KEY_ROWS]]
        batch = DispatchBatch(messages, key_hash, multi, list(self._queues))
        state[[walk.MESSAGES, walk.KEY_ROWS, walk.MULTI_ROWS]] = 0
        return batch

    def _name_queues(self) -> None:
        """Append to `_queues` the queues that the kernels found since the last call."""
        table = self._table
        for number in range(len(self._queues), int(table.used[QUEUES_USED])):
            name = decode_utf8(table.name(number))
            self._queues.append(Queue(name, int(table.queues[number]["queue_id"])))


def _renumber_queues(
    queues: list[Queue], messages: npt.NDArray[np.void], multi: npt.NDArray[np.void]
) -> None:
    """Merge queues whose names differ in bytes but decode to equal Java strings."""
    if len(set(queues)) < len(queues):
        # Several queues may have the same decoded topic and the same queue id. The map must contain the number of the
        # first such queue, so fill the map in reverse order: the last assignment wins.
        first = {queue: number for number, queue in reversed(list(enumerate(queues)))}
        renumber = np.array([first[queue] for queue in queues], np.int32)
        messages["queue"] = renumber[messages["queue"]]
        multi["queue"] = renumber[multi["queue"]]
