"""Divide the rows of a table among partitions, and sort them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

SORT_COLUMNS = ("topic", "key", "store_timestamp")

_UNIT_US = {"day": 86_400_000_000, "hour": 3_600_000_000}
_NUMPY_UNITS = {"day": "D", "hour": "h"}
# Prefix of the names of temporary columns. No other column's name contains a NUL character (U+0000).
_PLACE = "\0place"

PartitionValues = tuple[tuple[str, str | None], ...]
"""Names and values of a partition: a topic, a day as 2026-10-14, an hour as 2026-10-14-08.

The value is None for rows in which the column is null.
"""


class Slice(NamedTuple):
    """Rows of one partition, sorted."""

    values: PartitionValues
    table: pa.Table


def sorted_slices(
    table: pa.Table, partition_by: Sequence[str], sort_by: Sequence[str] = SORT_COLUMNS
) -> Iterator[Slice]:
    """Yield the rows of each partition, sorted by the columns of `sort_by` that the table has.

    The table must have all columns from which `partition_by` is computed.
    """
    places = {f"{_PLACE}{name}": _places(table, name) for name in partition_by if name in _UNIT_US}
    named = [(f"{_PLACE}{name}" if name in _UNIT_US else name) for name in partition_by]
    order = list(dict.fromkeys([*named, *(c for c in sort_by if c in table.schema.names)]))
    if not order:
        yield Slice((), table)
        return
    table = table.combine_chunks()
    columns = {name: places[name] if name in places else table[name] for name in order}
    # Keys have too many values, so that ranking them would be a sort of its own.
    compared = {
        name: _ranks(column) if pa.types.is_string(column.type) and name != "key" else column
        for name, column in columns.items()
    }
    rows = pc.sort_indices(pa.table(compared), sort_keys=[(name, "ascending") for name in order])
    table = _taken(table, rows)
    keys = [columns[name].take(rows) for name in named]
    for start, stop in _runs(keys, len(table)):
        values = tuple(
            (name, _in_words(name, key[start].as_py()))
            for name, key in zip(partition_by, keys, strict=True)
        )
        yield Slice(values, table.slice(start, stop - start))


def _taken(table: pa.Table, rows: pa.Array) -> pa.Table:
    """Return rows of a table, faster than `table.take`, which is slow for chunked columns."""
    columns = [
        column.chunk(0).take(rows) if column.num_chunks == 1 else column.take(rows)
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _ranks(texts: pa.ChunkedArray) -> pa.Array:
    """Return the rank of each text among the distinct texts. Numbers are compared faster than texts."""
    codes = _codes(texts)
    return pc.rank(codes.dictionary).take(codes.indices)


def _places(table: pa.Table, unit: str) -> pa.ChunkedArray:
    """Return the day or hour of each row, counted since 1970."""
    times = table["store_timestamp"].cast(pa.int64())
    micros = times.fill_null(0).to_numpy()
    missing = times.is_null().to_numpy()
    # Times before 1970 are negative, so their days and hours must be rounded down.
    return pa.chunked_array([pa.array(np.floor_divide(micros, _UNIT_US[unit]), mask=missing)])


def _runs(keys: list[pa.ChunkedArray], count: int) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each run of rows with equal keys."""
    changes: npt.NDArray[np.bool_] = np.zeros(max(count - 1, 0), np.bool_)
    for key in keys:
        # Equal values get equal numbers, so adjacent rows can be compared as integers.
        numbers = _codes(key).indices.fill_null(-1).to_numpy()
        changes |= numbers[1:] != numbers[:-1]
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), count]
    yield from ((start, stop) for start, stop in pairwise(bounds) if start < stop)


def _codes(column: pa.ChunkedArray) -> pa.DictionaryArray:
    codes = column.combine_chunks().dictionary_encode()
    return codes.combine_chunks() if isinstance(codes, pa.ChunkedArray) else codes


def _in_words(name: str, value: str | int | None) -> str | None:
    """Return the text of a partition's value."""
    if value is None or isinstance(value, str):
        return value
    return str(np.int64(value).astype(f"M8[{_NUMPY_UNITS[name]}]")).replace("T", "-")
