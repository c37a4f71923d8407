"""Tables by the names of their formats."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, get_args

from reput.errors import UsageError
from reput.export.commit import Destination
from reput.export.tables.delta import DeltaTable
from reput.export.tables.iceberg import DEFAULT_TABLE, IcebergTable
from reput.export.tables.parquet import ParquetTable

TableFormat = Literal["parquet", "iceberg", "delta"]

# What the libraries take for an escape or a query where it stands in a path.
_MISREAD: dict[str, str] = {"parquet": "", "iceberg": "%?#", "delta": "%"}


def open_table(
    folder: str, layout: TableFormat, *, catalog: str | None = None, table: str | None = None
) -> Destination:
    """A table in a folder, which need not be there; `catalog` and `table` are Iceberg's, see IcebergTable.

    Raises UsageError.
    """
    if layout not in get_args(TableFormat):
        raise UsageError(f"--format {layout}: parquet, iceberg or delta")
    if folder in ("", "-"):
        raise UsageError("name the folder of the table; - is for JSON lines (--format jsonl)")
    if "://" in folder:
        raise UsageError(f"{folder}: give a folder that is mounted here and where tasks run")
    if layout != "iceberg" and (catalog is not None or table is not None):
        raise UsageError("--catalog and --table are for --format iceberg")
    if catalog == "":
        raise UsageError("--catalog: name a catalog, or the URI of an SQL database")
    path = Path(os.path.abspath(folder))
    if path.exists() and not path.is_dir():
        raise UsageError(f"{folder}: is a file; a table is a folder")
    if bad := [c for c in str(path) if c in _MISREAD[layout] or (layout != "parquet" and c < " ")]:
        raise UsageError(
            f"{path}: a folder with {bad[0]!r} in its name cannot hold --format {layout}"
        )
    if layout == "iceberg":
        return IcebergTable(path, catalog, DEFAULT_TABLE if table is None else table)
    return DeltaTable(path) if layout == "delta" else ParquetTable(path)
