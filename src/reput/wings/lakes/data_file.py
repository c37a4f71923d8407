"""Describe the data files that tasks wrote, for the commit, and move these files from staging into a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reput.base import counted
from reput.io import DISK, Parquet
from reput.kernels.checksum import body_crcs
from reput.wings.lakes.partitions import PartitionValues

_SUM_MASK = (1 << 64) - 1

# Columns whose least and greatest values become statistics of the table.
_STATISTICS_OF = (
    "topic",
    "key",
    "unique_key",
    "queue_offset",
    "physical_offset",
    "store_timestamp",
)
# Maximum length of a text in statistics, in characters. If the least or the greatest text of a column is longer, the
# file gets no statistics for the column.
_MOST_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class RowTally:
    """The number of rows, the sum of their `size`, and the sum of the CRCs of their bodies modulo 2**64.

    A sum is None if its column was not exported.
    """

    rows: int = 0
    size_bytes: int | None = 0
    body_crcs: int | None = 0

    def __add__(self, other: RowTally) -> RowTally:
        return RowTally(
            self.rows + other.rows,
            _sum(self.size_bytes, other.size_bytes),
            _sum(self.body_crcs, other.body_crcs),
        )

    def agrees_with(self, other: RowTally) -> bool:
        """Return whether the tallies are equal. A sum that one of the tallies lacks is not compared."""
        pairs = ((self.size_bytes, other.size_bytes), (self.body_crcs, other.body_crcs))
        return self.rows == other.rows and all(
            mine == theirs for mine, theirs in pairs if mine is not None and theirs is not None
        )

    def __str__(self) -> str:
        crcs = "-" if self.body_crcs is None else f"{self.body_crcs:016x}"
        size = "-" if self.size_bytes is None else counted(self.size_bytes, "byte")
        return f"{counted(self.rows, 'message')} of {size}, body CRCs {crcs}"


def tally_of(batch: pa.RecordBatch) -> RowTally:
    """Return a batch's number of rows, their total size, and the sum of their bodies' CRCs.

    A sum is None if its column (`size` or `body`) is not in the batch.
    """
    names = batch.schema.names
    size = int(pc.sum(batch["size"]).as_py() or 0) if "size" in names else None
    crcs = _crc_sum(batch["body"]) if "body" in names else None
    return RowTally(len(batch), size, crcs)


def read_back(path: str, written: pq.FileMetaData | None = None) -> RowTally:
    """Read a Parquet file again, and return its number of rows, their total size, and the sum of their bodies' CRCs.

    `written`: the metadata of the file, if this process has just written it
    """
    total = RowTally()
    with Parquet.opened(path, written) as file:
        names = [name for name in ("size", "body") if name in file.schema_arrow.names]
        if not names:
            return RowTally(file.metadata.num_rows, None, None)
        for batch in file.iter_batches(columns=names, use_threads=False):
            total += tally_of(batch)
    return total


def total_of(tallies: Iterable[RowTally]) -> RowTally:
    return sum(tallies, RowTally())


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
    # Pass a read-only array in every call. Numba would compile the kernel a second time for writable arrays.
    data.flags.writeable = False
    crcs = np.empty(len(bodies), np.int32)
    body_crcs(data, offsets[:-1], np.diff(offsets), crcs)
    return int(crcs.sum(dtype=np.int64)) & _SUM_MASK


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file.

    name        name in the staging folder
    tally       number of rows, their total size, and the sum of their bodies' CRCs
    partition   names and values of its partition
    least, greatest  least and greatest values of some columns; times in ms since 1970
    is_reject     whether it contains rejected rows
    """

    name: str
    file_bytes: int
    tally: RowTally
    partition: PartitionValues
    least: Mapping[str, str | int]
    greatest: Mapping[str, str | int]
    is_reject: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> DataFile:
        partition = tuple((name, value) for name, value in stored["partition"])
        return cls(**{**stored, "tally": RowTally(**stored["tally"]), "partition": partition})


def bounds_of(metadata: pq.FileMetaData) -> tuple[dict[str, str | int], dict[str, str | int]]:
    """Return two dictionaries by column name: the least values and the greatest values of a file's columns.

    Only the columns in `_STATISTICS_OF` are considered. A column is omitted if its least or its greatest value is
    unknown or is a long text.
    """
    least: dict[str, str | int] = {}
    greatest: dict[str, str | int] = {}
    places = {metadata.schema.column(n).path: n for n in range(metadata.num_columns)}
    for name in _STATISTICS_OF:
        if name not in places:
            continue
        groups = [
            metadata.row_group(n).column(places[name]).statistics
            for n in range(metadata.num_row_groups)
        ]
        # If a row group has no statistics, the least and greatest values of the whole file are unknown.
        if not groups or any(group is None or not group.has_min_max for group in groups):
            continue
        low, high = (_plain(min(g.min for g in groups)), _plain(max(g.max for g in groups)))
        if low is not None and high is not None:
            least[name], greatest[name] = low, high
    return least, greatest


def _plain(value: Any) -> str | int | None:
    if isinstance(value, str):
        return value if len(value) <= _MOST_CHARACTERS else None
    if isinstance(value, int):
        return value
    return int(pa.scalar(value, pa.timestamp("ms", tz="UTC")).value)


Places = Sequence[tuple[Path, DataFile]]
"""The files of a commit, each with its final path."""


def make_folders(places: Places) -> set[Path]:
    """Create the folders of the files at these places, and return them."""
    folders = {path.parent for path, _ in places}
    for folder in folders:
        DISK.create_folder(folder)
    return folders


def bring(places: Places, staged: Path) -> None:
    """Rename files to their final paths, durably; an interrupted run may have moved some of them."""
    folders = make_folders(places)
    for path, file in places:
        if not path.exists():
            DISK.rename(staged / file.name, path)
    for folder in folders:
        DISK.sync_folder(folder)
