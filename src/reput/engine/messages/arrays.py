"""Build Arrow arrays from buffers that kernels (compiled functions) fill, and divide rows into batches of bounded size.

`pa.array` and `pa.scalar` are avoided, because they import pandas. The import takes as long as the rest of a worker's
first batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.engine.messages.schema import ALL_COLUMNS

BATCH_BYTES = 4 << 20
"""Bytes of the log, and of decompressed bodies, per batch. A batch with a single message may be larger."""


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
