"""Assemble the answer of a look-up. Each row of the key table yields one row per message found, or a row of nulls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.engine.lookup.candidates import PART_SHIFT, SCANNED
from reput.engine.lookup.coverage import COVERAGE_COLUMN, COVERAGE_TYPE, IS_COMPLETE, LookupCoverage
from reput.engine.lookup.key_parts import KeyPart
from reput.engine.messages import cut_by_bytes, integers, one_array, select
from reput.io import ArrowFile, ObjectStore, StagedFiles

_BATCH_ROWS = 1 << 15
# Limit of the messages' bytes per batch; a single larger message gets a batch of its own.
_BATCH_BYTES = 16 << 20
_ROW_MASK = (1 << PART_SHIFT) - 1


class Counts(NamedTuple):
    """Three counts: the rows of the key table, the rows for which messages were found, and the messages."""

    rows: int
    found: int
    messages: int


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """The data from which the rows of the answer are written, part by part.

    matches  maps the number of a part of the key table to the batches that contain matches of the part's keys. A batch
        is (path of a file, number of the batch in the file)
    is_flat  whether rows state the coverage only as the column `is_complete`, instead of as a column with all its
        fields
    places   object stores with the staged files
    logs     for each store, the number of the first store with the same log. The answer has the messages of this first
        store only
    """

    parts: tuple[KeyPart, ...]
    columns: tuple[str, ...]
    coverage: LookupCoverage
    matches: Mapping[int, list[tuple[str, int]]] = field(default_factory=dict)
    is_flat: bool = False
    places: tuple[ObjectStore, ...] = ()
    logs: tuple[int, ...] = ()

    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of part `number` in the order of the keys.

        A key's messages are ordered by store, and within a store from the newest to the oldest.

        Rows have the columns of the key, the columns of the message (null without a message), and a column that states
        how completely the stores were searched for the key: `is_complete` if `is_flat`, otherwise `coverage`.
        """
        StagedFiles.register_stores(self.places)
        rows = ArrowFile.map(f"{self.parts[number].path}.rows").read_all()
        staged = self._found(number)
        of_key, of_match = _joined(staged, len(rows))
        schema = answer_schema(rows.schema, self.columns, self.is_flat)
        # A row without a message has the match number -1, and needs no bytes.
        sizes = np.where(of_match < 0, 0, np.append(staged.column("bytes"), 0)[of_match])
        for start in range(0, len(of_key), _BATCH_ROWS):
            stop = start + _BATCH_ROWS
            for cut in cut_by_bytes(sizes[start:stop], _BATCH_BYTES):
                keys, matches = of_key[start:stop][cut], of_match[start:stop][cut]
                key_rows = rows.take(integers(keys)).combine_chunks()
                arrays = [one_array(column) for column in key_rows.columns]
                arrays += staged.messages(matches, self.columns)
                numbers = keys + (number << PART_SHIFT)
                coverage_of_keys = self.coverage.complete if self.is_flat else self.coverage.column
                yield pa.RecordBatch.from_arrays(
                    [*arrays, coverage_of_keys(numbers)], schema=schema
                )

    def counts(self) -> Counts:
        rows = sum(part.rows for part in self.parts)
        found = messages = 0
        for number in range(len(self.parts)):
            numbers = self._found(number).column("number")
            found += len(np.unique(numbers))
            messages += len(numbers)
        return Counts(rows, found, messages)

    def _found(self, number: int) -> _StagedRows:
        """Return the matches of the keys in part `number` of the key table, without duplicates."""
        batches = [
            ArrowFile.map(path).get_batch(place) for path, place in self.matches.get(number, ())
        ]
        staged = _StagedRows(batches, np.arange(sum(batch.num_rows for batch in batches)))
        has_replicas = any(log != number for number, log in enumerate(self.logs))
        # A message can be found twice only in replicas, or if the range of an IndexFile with wrong entries was scanned
        # as well.
        if not self.coverage.lost and not has_replicas:
            return staged
        number_of, segment, store, offset, inner = (
            staged.column(name) for name in ("number", "segment", "store_number", "offset", "inner")
        )
        keeps = np.ones(len(number_of), np.bool_)
        # If one index entry of a key leads to no message with this key, the key's older entries in the segment (the
        # range of this IndexFile) are not trusted either. The matches of these older entries are dropped here. The
        # segment was also scanned for this key, so the scan has found their messages.
        for lost in self.coverage.lost:
            if not len(lost.numbers):
                continue
            place = np.minimum(np.searchsorted(lost.numbers, number_of), len(lost.numbers) - 1)
            hit = (lost.numbers[place] == number_of) & (store == lost.store)
            keeps &= ~(hit & (segment == lost.segment) & (offset < lost.newest[place]))
        # Remove duplicates: a scan may find a message again that an index entry has led to, and replicas have the same
        # messages. Matches from index entries and from the first replica sort first, so they are kept.
        log = np.array(self.logs, np.int64)[store] if has_replicas else store
        order = np.lexsort((segment == SCANNED, store != log, inner, offset, log, number_of))
        repeats = np.append(False, keeps[order][:-1])
        for column in (number_of, log, offset, inner):
            repeats &= np.append(False, np.diff(column[order]) == 0)
        keeps[order] &= ~repeats[: len(keeps)]
        return _StagedRows(batches, np.flatnonzero(keeps))


class _StagedRows:
    """Selected rows of staged matches. Columns of messages are read only when they are requested."""

    def __init__(self, batches: list[pa.RecordBatch], rows: npt.NDArray[np.int64]) -> None:
        self._batches, self._rows = batches, rows
        self._starts = np.cumsum([0, *(batch.num_rows for batch in batches)])

    def column(self, name: str) -> npt.NDArray[np.int64]:
        """Return a column of integers."""
        parts = [batch.column(name).to_numpy() for batch in self._batches]
        return np.concatenate([np.empty(0, np.int64), *parts])[self._rows]

    def messages(self, rows: npt.NDArray[np.int64], columns: tuple[str, ...]) -> list[pa.Array]:
        """Return the message columns of these rows. A negative row number yields a row of nulls."""
        # Take rows from each batch separately. Joining all batches first would copy all bodies.
        present = np.flatnonzero(rows >= 0)
        numbers = self._rows[rows[present]]
        batch_of = np.searchsorted(self._starts, numbers, "right") - 1
        order = np.argsort(batch_of, kind="stable")
        parts = [
            self._batches[batch]
            .select(columns)
            .take(integers(numbers[batch_of == batch] - self._starts[batch]))
            for batch in np.unique(batch_of).tolist()
        ]
        place = np.zeros(len(rows), np.int64)
        place[present[order]] = np.arange(len(present))
        indices = integers(place, rows >= 0)
        joined = pa.Table.from_batches(parts, select(columns)).combine_chunks()
        return [one_array(joined[name]).take(indices) for name in columns]


def answer_schema(rows: pa.Schema, columns: tuple[str, ...], is_flat: bool = False) -> pa.Schema:
    """Return the schema of the answer to a key table. `rows` is the schema of the key table."""
    coverage = (IS_COMPLETE, pa.bool_()) if is_flat else (COVERAGE_COLUMN, COVERAGE_TYPE)
    return pa.schema([*rows, *select(columns), coverage])


def _joined(matches: _StagedRows, rows: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return pairs of a key and a message, as two arrays of row numbers.

    The first array has rows of the key table, the second has rows of `matches`, or -1 for a key without a message.
    """
    of_row = matches.column("number") & _ROW_MASK
    inner = matches.column("inner")
    # Newest first. Within an inner batch, the batch's own record comes first, then its messages in descending order.
    newest = (inner, -np.maximum(inner, 1), -matches.column("offset"))
    order = np.lexsort((*newest, matches.column("store_number"), of_row))
    counts = np.bincount(of_row, minlength=rows)
    of_key = np.repeat(np.arange(rows), np.maximum(counts, 1))
    of_match = np.full(len(of_key), -1, np.int64)
    of_match[np.repeat(counts > 0, np.maximum(counts, 1))] = order
    return of_key, of_match
