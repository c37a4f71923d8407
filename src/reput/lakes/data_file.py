"""Describe a file that a task wrote, all that the driver commits it by, and bring it from staging into a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reput.files.writer import make_folder, rename, sync_folder
from reput.lakes.partitions import PartitionValues
from reput.lakes.tally import Tally

_STATISTICS_OF = (
    "topic",
    "key",
    "unique_key",
    "queue_offset",
    "physical_offset",
    "store_timestamp",
)
_MOST_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file.

    name        in the folder where it was staged
    tally       of what was read back from it
    partition   values of the partition that it is of
    least, greatest  values of some columns that are all there is between; times in ms since 1970
    is_reject     whether it holds rejected rows
    """

    name: str
    file_bytes: int
    tally: Tally
    partition: PartitionValues
    least: Mapping[str, str | int]
    greatest: Mapping[str, str | int]
    is_reject: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> DataFile:
        partition = tuple((name, value) for name, value in stored["partition"])
        return cls(**{**stored, "tally": Tally(**stored["tally"]), "partition": partition})


def bounds_of(metadata: pq.FileMetaData) -> tuple[dict[str, str | int], dict[str, str | int]]:
    """Least and greatest values of a file's columns, where they are known and short."""
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
"""Where the files of a commit belong."""


def make_folders(places: Places) -> set[Path]:
    folders = {path.parent for path, _ in places}
    for folder in folders:
        make_folder(folder)
    return folders


def bring(places: Places, staged: Path) -> None:
    """Rename files to their places, durably; a run that died may have brought some of them."""
    folders = make_folders(places)
    for path, file in places:
        if not path.exists():
            rename(staged / file.name, path)
    for folder in folders:
        sync_folder(folder)
