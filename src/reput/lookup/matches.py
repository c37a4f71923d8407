"""Matches of a look-up as they are staged: which key each is of, where its message lies, the message's columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.files.arrow_file import write_arrow
from reput.lookup.candidates import PART_SHIFT
from reput.messages.arrays import BATCH_BYTES, cut_by_bytes, integers
from reput.messages.decode import Records
from reput.messages.schema import select

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


class Places(NamedTuple):
    """Matches, each of a key and of a record.

    number   the key's number
    segment  of the index entry that led to it, or SCANNED
    record   row of the records
    """

    number: Numbers
    segment: npt.NDArray[np.int32]
    record: Numbers


def match_schema(columns: tuple[str, ...]) -> pa.Schema:
    """Of staged matches: the key's number, the segment and store it was found in, the message's offset, which message
    of that record's inner batch it is (from 1 on, 0 for the record itself), about how many bytes the answer needs for
    it; the message's columns."""
    return pa.schema([*_PLACE_FIELDS, *select(columns)])


def write_matches(
    path: Path, columns: tuple[str, ...], matches: Iterable[pa.RecordBatch]
) -> list[tuple[int, int]]:
    """Stage them in one file; (number of the part, number of the batch) of each of its batches.

    Raises StoreAccessError.
    """
    batches: list[tuple[int, int]] = []

    def write() -> Iterator[pa.RecordBatch]:
        for table in _flushed(matches):
            for part, batch in _by_part(table):
                batches.append((part, len(batches)))
                yield batch

    write_arrow(path, match_schema(columns), write())
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
    """The rows of each part, by rising number."""
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
    """Matches in batches that are cut by the bytes of their bodies; `inner` is of each record, 0 without it."""
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
    """About how many bytes each row takes in an answer: nothing to speak of without body and properties."""
    sizes = np.zeros(len(records), np.int64)
    if _LARGE_COLUMNS & set(messages.schema.names):
        sizes += records.column("size").to_numpy()
    if "body" in messages.schema.names:
        lengths = pc.fill_null(pc.binary_length(messages["body"]), 0)
        sizes += lengths.to_numpy(zero_copy_only=False)
    return sizes
