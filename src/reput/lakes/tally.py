"""Counting messages on their way into a table and again in what was written, so that a commit can be refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reput.kernels.checksum import body_crcs

_SUM_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Tally:
    """Rows, the sum of their `size`, and the sum of the CRCs of their bodies modulo 2**64.

    A sum is None where the column that it is of was not exported.
    """

    rows: int = 0
    size_bytes: int | None = 0
    body_crcs: int | None = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.rows + other.rows,
            _sum(self.size_bytes, other.size_bytes),
            _sum(self.body_crcs, other.body_crcs),
        )

    def agrees_with(self, other: Tally) -> bool:
        """Whether all agrees that both know."""
        pairs = ((self.size_bytes, other.size_bytes), (self.body_crcs, other.body_crcs))
        return self.rows == other.rows and all(
            mine == theirs for mine, theirs in pairs if mine is not None and theirs is not None
        )

    def __str__(self) -> str:
        crcs = "-" if self.body_crcs is None else f"{self.body_crcs:016x}"
        return f"{self.rows} messages of {self.size_bytes} bytes, body CRCs {crcs}"


def tally_of(batch: pa.RecordBatch) -> Tally:
    """Of a batch that has `size`, `body`, both or neither."""
    names = batch.schema.names
    size = int(pc.sum(batch["size"]).as_py() or 0) if "size" in names else None
    crcs = _crc_sum(batch["body"]) if "body" in names else None
    return Tally(len(batch), size, crcs)


def read_back(path: str) -> Tally:
    """What a Parquet file holds, read from it anew."""
    total = Tally()
    with pq.ParquetFile(path) as file:
        names = [name for name in ("size", "body") if name in file.schema_arrow.names]
        if not names:
            return Tally(file.metadata.num_rows, None, None)
        for batch in file.iter_batches(columns=names, use_threads=False):
            total += tally_of(batch)
    return total


def total_of(tallies: Iterable[Tally]) -> Tally:
    return sum(tallies, Tally())


def _sum(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else (left + right) & _SUM_MASK


def _crc_sum(bodies: pa.Array) -> int:
    if not len(bodies):
        return 0
    buffers = bodies.buffers()
    wide = pa.types.is_large_binary(bodies.type)
    offsets = np.frombuffer(buffers[1], np.int64 if wide else np.int32)
    offsets = offsets[bodies.offset : bodies.offset + len(bodies) + 1].astype(np.int64)
    data = np.frombuffer(buffers[2] or b"", np.uint8)
    data.flags.writeable = False  # always: what can be written to is another type to numba
    crcs = np.empty(len(bodies), np.int32)
    body_crcs(data, offsets[:-1], np.diff(offsets), crcs)
    return int(crcs.sum(dtype=np.int64)) & _SUM_MASK
