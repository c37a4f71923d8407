"""Define the columns of a table with one row per message, and build their arrays.

`reput.format.message_fields` lists and describes the columns. Every column may be null, because a row for a damaged
range has only the range's place, its length and the reason.

Arrays are built from buffers that kernels (compiled functions) fill. `pa.array` and `pa.scalar` are avoided, because
they import pandas. The import takes as long as the rest of a worker's first batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.base import did_you_mean
from reput.errors import UsageError
from reput.format.message_fields import FIELDS

BATCH_BYTES = 4 << 20
"""Bytes of the log, and of decompressed bodies, per batch. A batch with a single message may be larger."""
_TYPES = {
    "text": pa.string(), "host": pa.string(), "texts": pa.list_(pa.field("element", pa.string())),
    "map": pa.map_(pa.string(), pa.string()), "bytes": pa.binary(), "boolean": pa.bool_(),
    "int32": pa.int32(), "int64": pa.int64(), "time": pa.timestamp("us", tz="UTC"),
}  # fmt: skip


def _columns(*groups: str) -> pa.Schema:
    return pa.schema(
        [(field.name, _TYPES[field.type]) for field in FIELDS if field.group in groups]
    )


COLUMNS = _columns("message")
"""The columns of a message."""

ORIGIN_COLUMNS = _columns("origin")
"""Optional columns: the origin of a message, and its destination."""

ALL_COLUMNS = _columns("message", "damage", "origin")

CORRUPT_REASON = ALL_COLUMNS.field("corrupt_reason")
BODY_ERROR = ALL_COLUMNS.field("body_error")

DAMAGE_COLUMNS = COLUMNS.append(CORRUPT_REASON)
"""The columns of tables that have a row for each damaged range."""


def column_name(spelling: str) -> str:
    """Return the name of a column, given the name in any case. Spark ignores case."""
    names: dict[str, str] = {name.lower(): name for name in ALL_COLUMNS.names}
    return names.get(spelling.lower(), spelling)


def select(names: Iterable[str] | None) -> pa.Schema:
    """Return the schema of these columns, in this order; `COLUMNS` for None. Raises UsageError."""
    if names is None:
        return COLUMNS
    columns: Sequence[str] = list(names)
    if unknown := [name for name in columns if name not in ALL_COLUMNS.names]:
        possible = ALL_COLUMNS.names
        similar = did_you_mean(unknown[0], possible)
        raise UsageError(f"no column {unknown[0]}{similar}; the columns are {', '.join(possible)}")
    if len(set(columns)) < len(columns):
        raise UsageError("a column is named twice")
    return pa.schema([ALL_COLUMNS.field(name) for name in columns])


def room(count: int, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an uninitialized array whose memory comes from Arrow's memory pool.

    The pool reuses freed memory. Page faults of fresh memory would take a third of the decoding time.
    """
    dtype = np.dtype(kind)
    return np.frombuffer(pa.allocate_buffer(count * dtype.itemsize), dtype)


def integers(values: npt.NDArray[Any], is_there: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return an array of integers; rows for which `is_there` is false are null."""
    values = np.ascontiguousarray(values)
    bits = None if is_there is None else pa.py_buffer(np.packbits(is_there, bitorder="little"))
    buffers = [bits, pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def booleans(values: npt.NDArray[np.uint8]) -> pa.Array:
    """Return an array of booleans from bytes that are 0 or 1."""
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])


def texts(values: Sequence[str]) -> pa.Array:
    """Return an array of strings. Use it for few strings, because they are encoded one by one."""
    encoded = [value.encode() for value in values]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def validity(valid: npt.NDArray[np.uint8], missing: int) -> pa.Buffer | None:
    """Return Arrow's validity bitmap of the rows; None if no row is null."""
    return pa.py_buffer(np.packbits(valid, bitorder="little")) if missing else None


def strings(
    offsets: npt.NDArray[np.int32], count: int, data: npt.NDArray[np.uint8], used: int
) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets[: count + 1]), pa.py_buffer(data[:used])]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def nested(column: str, offsets: npt.NDArray[np.int32], children: list[pa.Array]) -> pa.Array:
    kind = ALL_COLUMNS.field(column).type
    buffers = [None, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers, children=children)


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array, without chunks."""
    if isinstance(column, pa.Array):
        return column
    combined = column.combine_chunks()
    if isinstance(combined, pa.Array):
        return combined
    return pa.concat_arrays(combined.chunks) if combined.num_chunks else pa.array([], column.type)


def cut_by_bytes(sizes: npt.NDArray[np.int64], most_bytes: int) -> Iterator[slice]:
    """Divide rows into runs with at most `most_bytes` each. A larger row is a run of its own."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        begun = ends[start] - sizes[start]
        stop = max(int(np.searchsorted(ends, begun + most_bytes, "right")), start + 1)
        yield slice(start, stop)
        start = stop
