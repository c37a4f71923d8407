"""Exports into a bucket, and the tables read back by readers of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from reput.files.bucket import Bucket, object_settings
from reput.files.file_systems import resolve
from reput.lakes.driver import export_sources
from reput.lakes.planning import open_stores
from reput.lakes.report import ExportReport
from reput.lakes.request import ExportRequest
from reput.lakes.tables.opening import open_table
from tests.lakes.exporting import SMALL_SPLIT
from tests.remote.test_commands import SendingRunner

Options = dict[str, str]


def no_progress(phase: str, done: int, total: int) -> None:
    """Report nothing."""


def export_to(
    store: Path | str,
    url: str,
    options: Options,
    layout: str = "parquet",
    *,
    incremental: bool = False,
    progress: Callable[[str, int, int], None] = no_progress,
    split_bytes: int = SMALL_SPLIT,
    **request: Any,
) -> ExportReport:
    """Export by a runner that sends its tasks to other processes."""
    return export_sources(
        open_stores([str(store)], (), options),
        open_table(url, layout, storage_options=options),
        ExportRequest(**request),
        lambda size: SendingRunner(),
        incremental=incremental, split_bytes=split_bytes, progress=progress,
    )  # fmt: skip


def rows_of(url: str, options: Options, layout: str = "parquet", rejects: bool = False) -> pa.Table:
    """Read a table, by physical offset."""
    if layout == "delta":
        from deltalake import DeltaTable

        place = f"{url}/_rejects" if rejects else url
        table = DeltaTable(place, storage_options=object_settings(url, options)).to_pyarrow_table()
    else:
        place = f"{url}.reput/rejects" if rejects else url
        system, folder = resolve(place, options)
        table = ds.dataset(
            folder, filesystem=system.arrow, format="parquet", partitioning="hive"
        ).to_table()
    return table.sort_by("physical_offset")


def names_below(url: str, options: Options) -> list[str]:
    """The names of a table's objects and of its control folder's, sorted."""
    parent, _, leaf = url.rpartition("/")
    return sorted(one.name for one in Bucket(parent, options).list() if one.name.startswith(leaf))
