"""Stage candidates in runs, by ascending physical offset.

A candidate is a pair of a key and a physical offset at which the key's message may be. A run is a file of candidates.
It includes the text of the keys, so comparing the keys with records needs no other file. A segment is a range of the
log that one IndexFile covers (`reput.core.index.plan`). Cells are ranges of the log of equal size (`LogCells`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.core import LogSource
from reput.engine.messages import integers
from reput.io import ArrowFile, Storage

SCANNED = -1
"""The segment number of candidates found by a scan."""
PART_SHIFT = 32
"""A key's number is the number of its part, shifted left by this number of bits, plus its row in the part."""
RUN_SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("number", pa.int64()),
        ("hash", pa.int32()),
        ("begin", pa.int64()),
        ("end", pa.int64()),
        ("topic", pa.large_string()),
        ("key", pa.large_string()),
    ]
)
_KEY_FIELDS = ("hash", "begin", "end", "topic", "key")


class CandidateRun(NamedTuple):
    """A run: a staged file with candidates of one store.

    segment     number of the segment whose IndexFile has the candidates, or SCANNED
    first_cell  number of the first cell with candidates; see `LogCells`
    bounds      int64[c + 1]: rows bounds[i] to bounds[i + 1] of the file belong to cell first_cell + i
    """

    path: str
    store: int
    segment: int
    first_cell: int
    bounds: npt.NDArray[np.int64]


class Candidates(NamedTuple):
    """Pairs of a physical offset and a key: a message with this key may be at this offset.

    offsets  the physical offset of each pair
    rows     the row number of each pair's key in a `SortedKeys`, which has the keys of one part of the key table
    """

    offsets: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]


def write_run(
    path: str,
    store: int,
    segment: int,
    edges: npt.NDArray[np.int64],
    results: Iterable[tuple[int, pa.RecordBatch, Candidates]],
) -> CandidateRun | None:
    """Write candidates to one file (a run), sorted by offset. Return None if there are no candidates.

    edges  int64, physical offsets at which the cells of the log (`LogCells`) begin, and the end of the last cell
    results  parts of the key table, each as (number of the part, its keys, candidates for these keys)

    Raises StoreAccessError.
    """
    batches = [_run_batch(*result) for result in results]
    table = pa.Table.from_batches(batches, RUN_SCHEMA).combine_chunks()
    if not table.num_rows:
        return None
    offsets = table["offset"].to_numpy()
    # Sort by offset: each task reads a range of the log, and the candidates in this range are then consecutive rows of
    # the file that is written here.
    order = np.argsort(offsets, kind="stable")
    offsets = offsets[order]
    ArrowFile.write(path, RUN_SCHEMA, table.take(integers(order)).combine_chunks().to_batches())
    first = int(np.searchsorted(edges, offsets[0], side="right")) - 1
    last = int(np.searchsorted(edges, offsets[-1], side="right"))
    return CandidateRun(
        path, store, segment, first, np.searchsorted(offsets, edges[first : last + 1])
    )


def _run_batch(part: int, keys: pa.RecordBatch, candidates: Candidates) -> pa.RecordBatch:
    rows = integers(candidates.rows)
    # `row` is the key's row among the caller's rows, not its row in the file of keys, which is sorted by hash.
    numbers = keys.column("row").to_numpy()[candidates.rows].astype(np.int64) + (part << PART_SHIFT)
    arrays = [integers(candidates.offsets), integers(numbers)]
    arrays += [keys.column(name).take(rows) for name in _KEY_FIELDS]
    return pa.RecordBatch.from_arrays(arrays, schema=RUN_SCHEMA)


class StorePlace(NamedTuple):
    """A picklable description of a store for tasks: number, name, file system and log."""

    number: int
    name: str
    storage: Storage
    log: LogSource
