"""The answer: each row of the keys with each message found for it, or with none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.files.arrow_file import map_arrow
from reput.query.bulk.candidates import PART_SHIFT, SCANNED
from reput.query.bulk.coverage import COVERAGE_TYPE, LookupCoverage
from reput.query.bulk.key_parts import KeyPart
from reput.query.bulk.match_task import match_schema
from reput.table.schema import select

_BATCH_ROWS = 1 << 15
_ROW_MASK = (1 << PART_SHIFT) - 1
COVERAGE_COLUMN = "coverage"


class Counts(NamedTuple):
    """Rows of the keys, those of them with messages, messages found for them."""

    rows: int
    found: int
    messages: int


@dataclass(frozen=True, slots=True)
class Answer:
    """All that is needed to write the answer's rows, part by part.

    matches  by number of a part: (path, number of the batch) of its staged matches
    """

    parts: tuple[KeyPart, ...]
    columns: tuple[str, ...]
    coverage: LookupCoverage
    matches: Mapping[int, list[tuple[str, int]]] = field(default_factory=dict)

    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of part `number`: in the keys' order, a key's messages by store and newest first.

        The keys' columns, those of the message (null where there is none), the coverage.
        """
        rows = map_arrow(f"{self.parts[number].path}.rows").read_all()
        found = self._found(number)
        of_key, of_match = _joined(found, len(rows))
        schema = answer_schema(rows.schema, self.columns)
        for start in range(0, len(of_key), _BATCH_ROWS):
            keys = of_key[start : start + _BATCH_ROWS]
            matches = of_match[start : start + _BATCH_ROWS]
            taken = rows.take(pa.array(keys)).combine_chunks()
            messages = found.take(pa.array(matches, mask=matches < 0))
            coverage = self.coverage.column(keys + (number << PART_SHIFT))
            arrays = [column.combine_chunks() for column in taken.columns]
            arrays += [_one(messages[name]) for name in self.columns]
            yield pa.RecordBatch.from_arrays([*map(_one, arrays), coverage], schema=schema)

    def counts(self) -> Counts:
        rows = sum(part.rows for part in self.parts)
        found = messages = 0
        for number in range(len(self.parts)):
            numbers = self._found(number)["number"].to_numpy()
            found += len(np.unique(numbers))
            messages += len(numbers)
        return Counts(rows, found, messages)

    def _found(self, number: int) -> pa.Table:
        """The matches of a part that count."""
        batches = [map_arrow(path).get_batch(place) for path, place in self.matches.get(number, ())]
        table = pa.Table.from_batches(batches, match_schema(self.columns))
        if not self.coverage.lost:
            return table
        number_of, segment, store, offset = (
            table[name].to_numpy() for name in ("number", "segment", "store_number", "offset")
        )
        kept = np.ones(len(table), np.bool_)
        for lost in self.coverage.lost:
            if not len(lost.numbers):
                continue
            place = np.minimum(np.searchsorted(lost.numbers, number_of), len(lost.numbers) - 1)
            hit = (lost.numbers[place] == number_of) & (store == lost.store)
            kept &= ~(hit & (segment == lost.segment) & (offset < lost.newest[place]))
        # What was scanned for such a key may be what its entries led to.
        order = np.lexsort((segment == SCANNED, offset, store, number_of))
        same = [np.append(False, np.diff(each[order]) == 0) for each in (number_of, store, offset)]
        kept[order] &= ~(same[0] & same[1] & same[2] & np.append(False, kept[order][:-1]))[
            : len(kept)
        ]
        return table.filter(pa.array(kept))


def answer_schema(rows: pa.Schema, columns: tuple[str, ...]) -> pa.Schema:
    """Of the answer to keys with rows of that schema."""
    return pa.schema([*rows, *select(columns), (COVERAGE_COLUMN, COVERAGE_TYPE)])


def _joined(found: pa.Table, rows: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(row of the keys, row of `found` or -1), pair by pair."""
    of_row = found["number"].to_numpy() & _ROW_MASK
    order = np.lexsort((-found["offset"].to_numpy(), found["store_number"].to_numpy(), of_row))
    counts = np.bincount(of_row, minlength=rows)
    of_key = np.repeat(np.arange(rows), np.maximum(counts, 1))
    of_match = np.full(len(of_key), -1, np.int64)
    of_match[np.repeat(counts > 0, np.maximum(counts, 1))] = order
    return of_key, of_match


def _one(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    combined = column.combine_chunks()
    if isinstance(combined, pa.Array):
        return combined
    return pa.concat_arrays(combined.chunks) if combined.num_chunks else pa.array([], column.type)
