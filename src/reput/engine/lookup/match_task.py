"""Compare candidates with the records at their offsets: read ranges of the log in order, stage matches by part.

A match consists of the number of its key, the place of its message, and the message's columns. Matches are grouped by
part of the key table (`reput.engine.lookup.key_parts`). If an IndexFile led to the message, the place includes
the number of a segment: the range of the log that the IndexFile covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.core import CommitLogFile, Window
from reput.engine.lookup.candidates import PART_SHIFT, SCANNED, StorePlace
from reput.engine.lookup.key_parts import texts_of
from reput.engine.messages import BATCH_BYTES, Records, cut_by_bytes, integers, select
from reput.errors import StoreNotFoundError
from reput.io import ArrowFile, RangeReader, StagedFiles
from reput.kernels import key_match as kernel
from reput.kernels.jit import new_rows

# Matches are collected up to this number of bytes, and are then grouped by part of the key table.
_FLUSH_BYTES = 64 << 20
_PLACE_FIELDS = (
    pa.field("number", pa.int64()),
    pa.field("segment", pa.int32()),
    pa.field("store_number", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("inner", pa.int32()),
    pa.field("bytes", pa.int64()),
)
_LARGE_COLUMNS = {"body", "properties"}
Numbers = npt.NDArray[np.int64]
# Candidates per piece, which bounds the memory of a task.
_PIECE_CANDIDATES = 1 << 19
# Bytes of a record's first read. Most records are shorter than this. Longer records are read again, completely.
_FIRST_READ_BYTES = 2 << 10
_WINDOW_BYTES = 16 << 20
Offsets = npt.NDArray[np.int64]


class Places(NamedTuple):
    """Pairs of a key and a matching record.

    number   number of the key
    segment  segment of the index entry that led to the record, or SCANNED
    record   row of the record among the records read
    """

    number: Numbers
    segment: npt.NDArray[np.int32]
    record: Numbers


def match_schema(columns: tuple[str, ...]) -> pa.Schema:
    """Return the schema of staged matches.

    Its columns are: the key's number, the segment (range of the log that one IndexFile covers) and store in which the
    message was found, the message's physical offset, its number within an inner batch (from 1; 0 for a record itself),
    its approximate bytes in an answer, and the message's columns.
    """
    return pa.schema([*_PLACE_FIELDS, *select(columns)])


def write_matches(
    path: str, columns: tuple[str, ...], matches: Iterable[pa.RecordBatch]
) -> list[tuple[int, int]]:
    """Stage matches in one file. Each batch in the file has matches for keys of only one part of the key table.

    Return for each batch the number of the part, and the number of the batch in the file.

    Raises StoreAccessError.
    """
    batches: list[tuple[int, int]] = []

    def write() -> Iterator[pa.RecordBatch]:
        for table in _flushed(matches):
            for part, batch in _by_part(table):
                batches.append((part, len(batches)))
                yield batch

    ArrowFile.write(path, match_schema(columns), write())
    return batches


def _flushed(matches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in matches:
        waiting.append(batch)
        size_bytes += batch.nbytes
        if size_bytes > _FLUSH_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, size_bytes = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _by_part(table: pa.Table) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the number and the rows of each part, in ascending order."""
    numbers = table["number"].to_numpy()
    order = np.argsort(numbers, kind="stable")
    parts = numbers[order] >> PART_SHIFT
    table = table.take(integers(order)).combine_chunks()
    starts = np.flatnonzero(np.diff(parts, prepend=-1))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(parts)], strict=True):
        for batch in table.slice(start, stop - start).to_batches():
            yield int(parts[start]), batch


def decoded_matches(
    records: Records,
    places: Places,
    store: int,
    columns: tuple[str, ...],
    inner: npt.NDArray[np.int32] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield matches in batches. The bodies of a batch have a limited size.

    `inner` is each record's number in its inner batch, or 0.
    """
    schema, start = select(columns), 0
    for part, messages in records.batches(schema, BATCH_BYTES):
        sizes = _answer_bytes(part, messages)
        offsets = part.column("physical_offset").to_numpy()
        of_part = np.zeros(len(part), np.int32) if inner is None else inner[start:]
        which = places.record
        own = np.flatnonzero((start <= which) & (which < start + len(part)))
        for cut in cut_by_bytes(sizes[which[own] - start], BATCH_BYTES):
            rows, matches = which[own[cut]] - start, own[cut]
            taken = messages
            # Columns are copied only if rows are missing or repeated.
            if len(rows) != len(messages) or (np.diff(rows) != 1).any():
                taken = messages.take(integers(rows))
            fields = [
                places.number[matches], places.segment[matches],
                np.full(len(rows), store, np.int32), offsets[rows], of_part[rows], sizes[rows],
            ]  # fmt: skip
            arrays = [*map(integers, fields), *taken.columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=match_schema(columns))
        start += len(part)


def _answer_bytes(records: Records, messages: pa.RecordBatch) -> Numbers:
    """Return the approximate bytes of each row in an answer."""
    sizes = np.zeros(len(records), np.int64)
    if _LARGE_COLUMNS & set(messages.schema.names):
        sizes += records.column("size").to_numpy()
    if "body" in messages.schema.names:
        lengths = pc.fill_null(pc.binary_length(messages["body"]), 0)
        sizes += lengths.to_numpy(zero_copy_only=False)
    return sizes


class RunSlice(NamedTuple):
    """Rows [start, stop) of a run, which is a staged file of candidates."""

    path: str
    segment: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class MatchTask:
    """A task: compare candidates with the records in some files of a store's log.

    files  for each log file, the slices of candidates that lead to its records
    """

    number: int
    place: StorePlace
    files: tuple[tuple[CommitLogFile, tuple[RunSlice, ...]], ...]

    @property
    def store(self) -> int:
        return self.place.number

    @property
    def weight(self) -> int:
        return 1 + sum(part.stop - part.start for _, slices in self.files for part in slices)


class Matched(NamedTuple):
    """The result of a MatchTask: a file of staged matches, and the stale index entries that the task found.

    batches  for each batch of the file: the part of the key table that it belongs to, and its number in the file
    stale    (segment, key's number, offset) of stale index entries, which lead to wrong records; int64[n, 3]
    """

    path: str
    store: int
    batches: list[tuple[int, int]]
    stale: npt.NDArray[np.int64]


def run_match_task(folder: str, columns: tuple[str, ...], task: MatchTask) -> Matched:
    """Run a task. The task may run twice, even at the same time. Raises StoreAccessError, StoreChangedError."""
    path = StagedFiles.attempt_path(folder, f"match-{task.store}-{task.number}")
    stale = [np.empty((0, 3), np.int64)]
    batches = write_matches(path, columns, _matches(task, columns, stale))
    return Matched(path, task.store, batches, np.concatenate(stale))


def _matches(
    task: MatchTask, columns: tuple[str, ...], stale: list[npt.NDArray[np.int64]]
) -> Iterator[pa.RecordBatch]:
    for file, slices in task.files:
        try:
            with task.place.storage.open(file.path) as reader:
                for piece in _pieces(slices):
                    comparison = _CandidateComparison(task, file, reader, piece, columns, stale)
                    yield from comparison.run()
        # The file has expired meanwhile.
        except StoreNotFoundError:
            continue


def _pieces(slices: tuple[RunSlice, ...]) -> Iterator[pa.Table]:
    """Yield tables with the candidates of `slices`. Each table is small enough for memory.

    A slice is a range of rows in a file of candidates. The tables have one column more than the files: `segment`.
    """
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for part in slices:
        batch = ArrowFile.map(part.path).get_batch(0)
        for start in range(part.start, part.stop, _PIECE_CANDIDATES):
            piece = batch.slice(start, min(part.stop - start, _PIECE_CANDIDATES))
            if rows and rows + piece.num_rows > _PIECE_CANDIDATES:
                yield pa.Table.from_batches(waiting)
                waiting, rows = [], 0
            segment = integers(np.full(piece.num_rows, part.segment, np.int32))
            waiting.append(piece.append_column("segment", segment))
            rows += piece.num_rows
    if waiting:
        yield pa.Table.from_batches(waiting)


class _CandidateComparison:
    """Compares candidates with the records at their offsets. All of these records are in one file."""

    def __init__(
        self,
        task: MatchTask,
        file: CommitLogFile,
        reader: RangeReader,
        piece: pa.Table,
        columns: tuple[str, ...],
        stale: list[npt.NDArray[np.int64]],
    ) -> None:
        self._task, self._file, self._reader = task, file, reader
        self._columns, self._stale = columns, stale
        batch = piece.combine_chunks().to_batches()[0]
        self._offsets, self._number, self._hash, self._begin, self._end, self._segment = (
            batch.column(name).to_numpy()
            for name in ("offset", "number", "hash", "begin", "end", "segment")
        )
        self._topics, self._keys = (texts_of(batch.column(name)) for name in ("topic", "key"))
        # Each slice (`RunSlice`) is sorted by offset. But `piece` may consist of several slices, so sort its rows.
        self._order = np.argsort(self._offsets, kind="stable")
        # Several candidates may have the same offset. `_different` has each offset only once, and
        # `_order[_first[i] : _first[i + 1]]` are the candidates at the offset `_different[i]`.
        self._different, self._first = np.unique(self._offsets[self._order], return_index=True)
        self._first = np.append(self._first, len(self._order))

    def run(self) -> Iterator[pa.RecordBatch]:
        """Yield the matches, one window of the log after the other."""
        pending = np.arange(len(self._different))
        needed = np.full(len(pending), _FIRST_READ_BYTES)
        while len(pending):
            unread, still_needed = [], []
            for window in Window.group(self._different[pending], needed, self._file, _WINDOW_BYTES):
                records = self._read(window)
                rows = pending[window.first : window.first + len(window.begins)]
                # These records are longer than expected, and are read again.
                more = records["status"] == kernel.MORE_BYTES
                unread.append(rows[more])
                still_needed.append(records["needed"][more])
                yield from self._compare(window, records, rows, ~more)
            pending, needed = np.concatenate(unread), np.concatenate(still_needed)

    def _read(self, window: Window) -> npt.NDArray[np.void]:
        for position, offset, length in window.ranges:
            self._reader.read_into(
                window.data[position : position + length], offset - self._file.start
            )
        records = new_rows(len(window.begins), kernel.RECORD_DTYPE)
        # At the end of a file, `locate_records` must not request more bytes: a record never continues in the next file.
        at_file_end = (window.ends_at >= self._file.end).astype(np.uint8)
        kernel.locate_records(window.data, window.begins, window.ends, at_file_end, records)
        return records

    def _compare(
        self,
        window: Window,
        records: npt.NDArray[np.void],
        rows: Offsets,
        read: npt.NDArray[np.bool_],
    ) -> Iterator[pa.RecordBatch]:
        """Yield the matches among the records that are completely in a window.

        `_different` has the distinct offsets of all candidates. Record i of the window begins at the offset
        `_different[rows[i]]`.
        """
        taken = np.flatnonzero(read)
        counts = self._first[rows[taken] + 1] - self._first[rows[taken]]
        record_of = np.repeat(taken, counts)
        ends = np.cumsum(counts)
        within = np.arange(len(record_of)) - np.repeat(ends - counts, counts)
        candidates = self._order[self._first[rows[record_of]] + within]
        verdicts = np.empty(len(candidates), np.uint8)
        kernel.match_keys(
            window.data, records, candidates, record_of, self._offsets, self._hash,
            *self._topics, *self._keys, verdicts,
        )  # fmt: skip
        self._note_stale(candidates[verdicts >= kernel.STALE])
        times = records["store_timestamp"][record_of]
        # A record that states a wrong offset still is a message with this key. Only its index entry is not trusted.
        is_match = (verdicts == kernel.MATCH) | (verdicts == kernel.STALE_MATCH)
        is_match &= (self._begin[candidates] <= times) & (times <= self._end[candidates])
        if is_match.any():
            yield from self._decode(window, record_of[is_match], candidates[is_match])

    def _note_stale(self, candidates: Offsets) -> None:
        # A scan cannot have stale candidates: it has just read the records.
        candidates = candidates[self._segment[candidates] != SCANNED]
        stale = (self._segment[candidates], self._number[candidates], self._offsets[candidates])
        self._stale.append(np.stack(stale, axis=1).astype(np.int64).reshape(-1, 3))

    def _decode(
        self, window: Window, record_of: Offsets, candidates: Offsets
    ) -> Iterator[pa.RecordBatch]:
        """Yield matches in batches. The bodies of a batch have a limited size."""
        rows, which = np.unique(record_of, return_inverse=True)
        offsets = self._offsets[candidates[np.unique(which, return_index=True)[1]]]
        records = Records(window.data, window.begins[rows], offsets, self._task.place.name, True)
        places = Places(self._number[candidates], self._segment[candidates], which)
        yield from decoded_matches(records, places, self._task.store, self._columns)
