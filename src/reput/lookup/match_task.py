"""Candidates compared with what lies at their offsets: ranges of the log read in order, matches staged by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.errors import StoreNotFoundError
from reput.files.arrow_file import map_arrow
from reput.files.reader import RangeReader
from reput.kernels import key_match as kernel
from reput.kernels.rows import new_rows
from reput.log.files import CommitLogFile
from reput.log.windows import Window, windows
from reput.lookup.candidates import SCANNED
from reput.lookup.key_parts import texts_of
from reput.lookup.matches import Places, decoded_matches, write_matches
from reput.lookup.place import StorePlace
from reput.messages.arrays import integers
from reput.messages.decode import Records

_PIECE_CANDIDATES = 1 << 19
_FIRST_READ_BYTES = 2 << 10
_WINDOW_BYTES = 16 << 20
Offsets = npt.NDArray[np.int64]


class RunSlice(NamedTuple):
    """Rows [start, stop) of a staged run."""

    path: str
    segment: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class MatchTask:
    """Candidates in some files of a store's log, each with slices of runs."""

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
    """Staged matches: the batch of each part (number of the part, number of the batch) in a file.

    stale  (segment, key's number, offset) of index entries whose records are not theirs, int64[n, 3]
    """

    path: str
    store: int
    batches: list[tuple[int, int]]
    stale: npt.NDArray[np.int64]


def run_match_task(folder: str, columns: tuple[str, ...], task: MatchTask) -> Matched:
    """Safe to run twice, and beside itself. Raises StoreAccessError, StoreChangedError."""
    path = Path(folder) / f"match-{task.store}-{task.number}"
    stale = [np.empty((0, 3), np.int64)]
    batches = write_matches(path, columns, _matches(task, columns, stale))
    return Matched(str(path), task.store, batches, np.concatenate(stale))


def _matches(
    task: MatchTask, columns: tuple[str, ...], stale: list[npt.NDArray[np.int64]]
) -> Iterator[pa.RecordBatch]:
    for file, slices in task.files:
        try:
            with task.place.storage.open(file.path) as reader:
                for piece in _pieces(slices):
                    comparison = _CandidateComparison(task, file, reader, piece, columns, stale)
                    yield from comparison.run()
        except StoreNotFoundError:  # expired meanwhile
            continue


def _pieces(slices: tuple[RunSlice, ...]) -> Iterator[pa.Table]:
    """The candidates of the slices with their segments, no more at once than memory should hold."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for part in slices:
        batch = map_arrow(part.path).get_batch(0)
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
    """One piece of candidates, all in one file."""

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
        self._order = np.argsort(self._offsets, kind="stable")
        # Where in `order` each different offset begins.
        self._different, self._first = np.unique(self._offsets[self._order], return_index=True)
        self._first = np.append(self._first, len(self._order))

    def run(self) -> Iterator[pa.RecordBatch]:
        """Matches, a window of the log at a time."""
        pending = np.arange(len(self._different))
        needed = np.full(len(pending), _FIRST_READ_BYTES)
        while len(pending):
            unread, still_needed = [], []
            for window in windows(self._different[pending], needed, self._file, _WINDOW_BYTES):
                records = self._read(window)
                rows = pending[window.first : window.first + len(window.begins)]
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
        """Matches of records that are read whole, or are none; `rows` are theirs of the different offsets."""
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
        stored = records["store_timestamp"][record_of]
        is_match = (verdicts == kernel.MATCH) | (verdicts == kernel.STALE_MATCH)
        is_match &= (self._begin[candidates] <= stored) & (stored <= self._end[candidates])
        if is_match.any():
            yield from self._decode(window, record_of[is_match], candidates[is_match])

    def _note_stale(self, candidates: Offsets) -> None:
        candidates = candidates[self._segment[candidates] != SCANNED]
        found = (self._segment[candidates], self._number[candidates], self._offsets[candidates])
        self._stale.append(np.stack(found, axis=1).astype(np.int64).reshape(-1, 3))

    def _decode(
        self, window: Window, record_of: Offsets, candidates: Offsets
    ) -> Iterator[pa.RecordBatch]:
        """Matches in batches that are cut by the bytes of their bodies."""
        rows, which = np.unique(record_of, return_inverse=True)
        offsets = self._offsets[candidates[np.unique(which, return_index=True)[1]]]
        records = Records(window.data, window.begins[rows], offsets, self._task.place.path, True)
        places = Places(self._number[candidates], self._segment[candidates], which)
        yield from decoded_matches(records, places, self._task.store, self._columns)
