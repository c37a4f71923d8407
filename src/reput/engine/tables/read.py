"""Read messages of a CommitLog file as Arrow batches, in bounded memory.

`reput.core.log.scan` walks over the file, and yields pieces: blocks of consecutive records. After damage, it continues
at the next verifiable record.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.base import Finding, Kind
from reput.core import (
    NO_NAMES,
    BrokerNames,
    CommitLogFile,
    FileScan,
    ScanBuffers,
    ScanMode,
    ScannedPiece,
    WalkVerdict,
    inner_records,
)
from reput.engine.messages import (
    ALL_COLUMNS,
    BATCH_BYTES,
    CORRUPT_REASON,
    Records,
    cut_by_bytes,
    select,
)
from reput.engine.rebuild import first_record
from reput.engine.tables.filters import QUEUE_COLUMNS, Condition, OnCorrupt, by_cost, kept_rows
from reput.engine.tables.found_records import FoundRecords, OpenedQueues, PackedRecords, find_queued
from reput.errors import CorruptMessageError
from reput.format.commit_log import SYS_FLAG_INNER_BATCH, locate
from reput.io import FileReader, OpenFile
from reput.kernels.jit import new_rows


@dataclass(frozen=True, slots=True)
class LogRange:
    """The records of one CommitLog file that begin in the physical offsets [start, stop).

    by_queue: whether the ConsumeQueues in `folder` can be used to find the messages of the requested queues
    found: the requested messages, if IndexFiles were used to find them
    at_record: whether a record begins at `start`; if not, reading begins at the next record
    ends_log: whether this is the last file with data; unreadable bytes at its end are not damage, but the log's end
    names: the names of broker and cluster
    """

    file: CommitLogFile
    start: int
    stop: int
    store: str = ""
    ends_log: bool = False
    at_record: bool = False
    folder: str | None = None
    by_queue: bool = False
    found: FoundRecords | None = field(default=None, compare=False)
    names: BrokerNames = NO_NAMES

    @property
    def log_bytes(self) -> int:
        """Return the number of log bytes that must be read."""
        return self.stop - self.start if self.found is None else int(self.found.size.sum())

    @classmethod
    def whole(cls, file: CommitLogFile, store: str = "", ends_log: bool = False) -> LogRange:
        return cls(file, file.start, file.end, store, ends_log)


@dataclass(frozen=True, slots=True)
class ReadTask:
    """A range to read, and a function that opens its file."""

    part: LogRange
    open_file: OpenFile

    def scan(self, buffers: ScanBuffers) -> FileScan:
        """Return a scan of the range from its first record on."""
        part, start = self.part, self.part.start
        if not part.at_record:
            start = first_record(self.open_file, part.file, start, part.stop, buffers)
        return FileScan(
            part.file,
            start,
            part.stop,
            ScanMode.READER_PLACES,
            buffers=buffers,
            open_file=self.open_file,
        )

    def damage(self, scan: FileScan) -> Sequence[Finding]:
        """Return the damage that a finished scan of the range has found, except the torn end of the log."""
        return damage_at_end(self.part, scan.verdict(), self.open_file)


@dataclass(slots=True)
class ReadReport:
    """The results of a reader: messages read, rows returned, damage. Complete only after the iteration."""

    messages: int = 0
    rows: int = 0
    damage: list[Finding] = field(default_factory=list)
    end: int = 0


class RangeBatches:
    """Reads one range. Iterate over an instance to get the batches.

    Args:
        columns: Names from `reput.engine.messages.schema`, including `corrupt_reason`; None for all columns of a
        message. conditions: Conditions that every row must meet. on_corrupt: "row" returns a row for each damaged
        range, with store, physical_offset, size (bytes lost) and
            corrupt_reason. The row must meet the conditions, except those with `keeps_damage`.
        batch_bytes: Bytes of the log, or of decompressed bodies, per batch. A single message may be larger.
        decompressed: Whether to decompress bodies.
        unwrap_batches: Whether to return the messages of inner batches (5.x) instead of the batches.
        opened: Keeps queues open from one range of a task to the next. The caller closes it.

    Attributes:
        report: The results.

    Raises CorruptMessageError with on_corrupt="fail"; StoreNotFoundError, StoreAccessError,
    StoreChangedError; UsageError.
    """

    def __init__(
        self,
        part: LogRange,
        columns: Iterable[str] | None = None,
        conditions: Sequence[Condition] = (),
        *,
        on_corrupt: OnCorrupt = "fail",
        batch_bytes: int = BATCH_BYTES,
        decompressed: bool = True,
        unwrap_batches: bool = False,
        open_file: OpenFile = FileReader,
        buffers: ScanBuffers | None = None,
        opened: OpenedQueues | None = None,
    ) -> None:
        self._unwrap_batches = unwrap_batches
        self._part, self._schema = part, select(columns)
        self._conditions = by_cost(conditions)
        self._on_corrupt, self._batch_bytes = on_corrupt, batch_bytes
        self._decompressed, self._open_file = decompressed, open_file
        self._buffers = buffers or ScanBuffers()
        self._opened = opened
        self.report = ReadReport(end=part.start)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        batches = self._batches()
        return _joined(batches, self._batch_bytes) if self._conditions else batches

    def _batches(self) -> Iterator[pa.RecordBatch]:
        part, start = self._part, self._part.start
        records = self._queued() if part.found is None else part.found
        if records is not None:
            start = yield from self._packed(records)
        elif part.file.file_bytes:
            start = yield from self._joined()
        elif not part.at_record:
            start = first_record(self._open_file, part.file, start, part.stop, self._buffers)
        self.report.end = start
        while start < part.stop:
            # After damage in consecutive files, each of the remaining files is walked by itself.
            file = part.file.file_at(start)
            stop = min(file.end, part.stop) if part.file.file_bytes else part.stop
            yield from self._walked(file, start, stop)
            start = stop

    def _walked(self, file: CommitLogFile, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        part = self._part
        scan = self._scan(file, start, stop, self._open_file, ScanMode.READER_PLACES)
        reported = 0
        for piece in scan.pieces():
            # Report the bytes that were skipped before this piece. They are damage and not a torn end of the log,
            # because a record follows them.
            yield from self._damaged(scan.damage[reported:])
            reported = len(scan.damage)
            yield from self._given(piece, piece.positions + piece.base)
        yield from self._damaged(damage_at_end(part, scan.verdict(), self._open_file, reported))
        self.report.end = scan.end.position

    def _scan(
        self, file: CommitLogFile, start: int, stop: int, open_file: OpenFile, mode: ScanMode
    ) -> FileScan:
        return FileScan(file, start, stop, mode, buffers=self._buffers, open_file=open_file)

    def _queued(self) -> FoundRecords | None:
        part = self._part
        if not part.by_queue or part.folder is None:
            return None
        queues = self._opened or OpenedQueues()
        try:
            return find_queued(
                queues, part.folder, part.file, self._conditions, part.start, part.stop
            )
        finally:
            if self._opened is None:
                queues.close()

    def _packed(self, records: FoundRecords) -> Generator[pa.RecordBatch, None, int]:
        """Yield the messages to which an index leads; return the physical offset at which the scan must continue."""
        packed = PackedRecords(records, self._part.file, self._open_file)
        # The records are packed, so they are not in the places that they state.
        scan = self._scan(packed.file, 0, packed.file.end, packed.open, ScanMode.PLACES)
        done = 0
        for piece in scan.pieces():
            begins = piece.positions + piece.base
            expected = packed.begin[done : done + len(begins)]
            offsets_in_records = piece.batch.messages["physical_offset"]
            places = records.physical_offset[done : done + len(begins)]
            is_good = np.array_equal(begins, expected) and np.array_equal(
                offsets_in_records, places
            )
            good = len(begins) if is_good else 0
            if scan.damage or not good:
                break
            yield from self._given(piece, records.physical_offset[done : done + good])
            done += good
        # If a record does not match its entry, the index is wrong: scan the log from this record on.
        return records.end if done == len(records) else int(records.physical_offset[done])

    def _joined(self) -> Generator[pa.RecordBatch, None, int]:
        """Yield the messages of consecutive files; return the offset of the first damage, or the end of the last."""
        part = self._part
        mode = ScanMode.READER_PLACES_UP_TO_DAMAGE
        scan = self._scan(part.file, part.start, part.stop, self._open_file, mode)
        for piece in scan.pieces():
            if scan.damage:
                break
            yield from self._given(piece, piece.positions + piece.base)
        return scan.damage[0].start if scan.damage else scan.end.position

    def _given(
        self, piece: ScannedPiece, offsets: npt.NDArray[np.int64]
    ) -> Iterator[pa.RecordBatch]:
        if not self._unwrap_batches:
            yield from self._messages(piece, offsets)
            return
        for part in unwrapped(piece, offsets, self._batch_bytes):
            # A batch that cannot be unwrapped is returned as one row, like a message with a bad body.
            for at, reason in part.bad:
                file = self._part.file.file_at(at)
                bad = file.lost(at, at, reason, Kind.UNDECODABLE_MESSAGE)
                self.report.damage.append(bad)
            yield from self._messages(part.piece, part.offsets)

    def _messages(
        self, piece: ScannedPiece, offsets: npt.NDArray[np.int64]
    ) -> Iterator[pa.RecordBatch]:
        self.report.messages += len(piece.batch)
        sizes = piece.batch.messages["size"]
        rows = self._kept(piece, offsets)
        for cut in cut_by_bytes(sizes[rows].astype(np.int64), self._batch_bytes):
            yield from self._decoded(self._records(piece, offsets, rows[cut]))

    def _kept(self, piece: ScannedPiece, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the rows that meet all conditions."""
        rows = np.arange(len(piece.batch))
        for condition in self._conditions:
            if not len(rows):
                break
            # The messages of a piece (a block of records) belong to few queues. So evaluate a condition on the queue
            # once per queue, not once per message.
            if condition.column in QUEUE_COLUMNS:
                of_queue = [getattr(queue, condition.column) for queue in piece.batch.queues]
                kind = ALL_COLUMNS.field(condition.column).type
                met = condition.keeps(pa.array(of_queue, kind))
                keeps = met[piece.batch.messages["queue"][rows]]
            else:
                keeps = condition.keeps(
                    self._records(piece, offsets, rows).column(condition.column)
                )
            rows = rows[keeps]
        return rows

    def _records(
        self, piece: ScannedPiece, offsets: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
    ) -> Records:
        part = self._part
        return Records(
            piece.data, piece.positions[rows], offsets[rows], part.store, self._decompressed,
            part.names,
        )  # fmt: skip

    def _decoded(self, records: Records) -> Iterator[pa.RecordBatch]:
        for part, batch in records.batches(self._schema, self._batch_bytes):
            for bad in part.bad_bodies:
                at = part.physical_offset(bad.row)
                kind = Kind.BODY_TOO_LARGE if bad.is_too_large else Kind.UNDECODABLE_MESSAGE
                # Keep the row: its other columns are right, and its body is returned as stored.
                file = self._part.file.file_at(at)
                self.report.damage.append(file.lost(at, at, bad.reason, kind))
            self.report.rows += len(batch)
            yield batch

    def _take_note(self, damage: Sequence[Finding]) -> None:
        if damage and self._on_corrupt == "fail":
            raise damage[0].as_error(
                "; to continue after the damage, pass on_corrupt='skip' or 'row'", ["on_corrupt"]
            )
        self.report.damage += damage

    def _damaged(self, damage: Sequence[Finding]) -> Iterator[pa.RecordBatch]:
        self._take_note(damage)
        if damage and self._on_corrupt == "row":
            part = self._part
            rows = damage_rows(damage, part.store, self._conditions, part.names)
            rows = rows.select(self._schema.names)
            self.report.rows += len(rows)
            yield rows


def damage_at_end(
    part: LogRange, verdict: WalkVerdict, open_file: OpenFile, reported: int = 0
) -> Sequence[Finding]:
    """Return the damage in a range, except the torn end of the log, and except findings that were already reported.

    The first `reported` findings of `verdict.damage` were already reported.

    Raises:
        StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    if not part.ends_log:
        return verdict.damage[reported:]
    return verdict.before_torn_end(part.file, open_file, reported)


def damage_rows(
    damage: Sequence[Finding],
    store: str,
    conditions: Iterable[Condition] = (),
    names: BrokerNames = NO_NAMES,
) -> pa.RecordBatch:
    """Return a row, with all columns, for each damaged range that meets the conditions.

    Conditions with `keeps_damage` are not applied.
    """
    values = {
        "store": [store] * len(damage),
        "broker": [names.broker] * len(damage),
        "cluster": [names.cluster] * len(damage),
        "physical_offset": [lost.physical_offset for lost in damage],
        "size": [lost.length for lost in damage],
        CORRUPT_REASON.name: [lost.detail for lost in damage],
    }
    arrays = [
        pa.array(values.get(column.name, [None] * len(damage)), column.type)
        for column in ALL_COLUMNS
    ]
    applied = [condition for condition in conditions if not condition.keeps_damage]
    return kept_rows(pa.RecordBatch.from_arrays(arrays, schema=ALL_COLUMNS), applied)


def _joined(batches: Iterator[pa.RecordBatch], least_bytes: int) -> Iterator[pa.RecordBatch]:
    """Join small batches: a filter may leave few rows of each, and consumers have a cost per batch."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(part.nbytes for part in waiting) >= least_bytes:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


class BadBatch(NamedTuple):
    """An inner batch that cannot be unwrapped, and the reason. The batch is returned as one record."""

    physical_offset: int
    reason: str


class UnwrappedPiece(NamedTuple):
    """A scanned piece of the log whose inner batches are unwrapped.

    offsets  for each row, the physical offset of the record in the log that contains the message
    bad      inner batches that could not be unwrapped
    """

    piece: ScannedPiece
    offsets: npt.NDArray[np.int64]
    bad: tuple[BadBatch, ...]


def unwrapped(
    piece: ScannedPiece, offsets: npt.NDArray[np.int64], most_bytes: int
) -> Iterator[UnwrappedPiece]:
    """Replace the inner batches in a scanned piece of the log by their messages. Yield pieces of about `most_bytes`.

    `offsets` are the physical offsets of the records in `piece`.
    """
    is_batch = piece.batch.messages["sys_flag"] & SYS_FLAG_INNER_BATCH != 0
    if not is_batch.any():
        yield UnwrappedPiece(piece, offsets, ())
        return
    collector = _Made()
    for row in range(len(piece.batch)):
        start, size = int(piece.positions[row]), int(piece.batch.messages["size"][row])
        raw = piece.data[start : start + size].tobytes()
        if is_batch[row]:
            collector.unwrap(row, raw, int(offsets[row]))
        else:
            collector.add(row, raw)
        if len(collector.data) >= most_bytes:
            yield collector.taken(piece, offsets)
            collector = _Made()
    if collector.rows or collector.bad:
        yield collector.taken(piece, offsets)


@dataclass
class _Made:
    """Collects the records of a scanned piece of the log, with inner messages in place of their inner batch.

    rows  for each collected record, its row number in the scanned piece; an inner message has the row of its batch
    """

    data: bytearray = field(default_factory=bytearray)
    rows: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    bad: list[BadBatch] = field(default_factory=list)

    def add(self, row: int, raw: bytes) -> None:
        self.rows.append(row)
        self.positions.append(len(self.data))
        self.data += raw

    def unwrap(self, row: int, raw: bytes, physical_offset: int) -> None:
        try:
            inner = inner_records(raw, locate(raw, 0, len(raw)))
        except CorruptMessageError as error:
            self.bad.append(BadBatch(physical_offset, error.reason))
            self.add(row, raw)
            return
        for record in inner:
            self.add(row, record.data)

    def taken(self, piece: ScannedPiece, offsets: npt.NDArray[np.int64]) -> UnwrappedPiece:
        batch, rows = piece.batch, np.array(self.rows, np.int64)
        messages = new_rows(len(rows), batch.messages.dtype)
        messages[:] = batch.messages[rows]
        positions = np.array(self.positions, np.int64)
        messages["size"] = np.diff(np.append(positions, len(self.data)))
        # `key_hash` has no hashes for inner messages, so omit the hashes of all messages.
        messages["key_count"] = 0
        fresh = replace(
            batch, messages=messages, key_hash=batch.key_hash[:0], multi=batch.multi[:0]
        )
        data = np.frombuffer(self.data, np.uint8)
        return UnwrappedPiece(
            ScannedPiece(data, 0, positions, fresh), offsets[rows], tuple(self.bad)
        )
