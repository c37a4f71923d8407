"""Open tables by the name of their format: reput's own formats, and formats that other packages register.

A format opens a `Destination` in a folder. Other packages register a format with `register_format`, or name a
`TableFormat` as an entry point of the group `reput.table_formats`. Then `reput export` and `reput.spark.export` accept
its name. `open_export` opens an exported table to read it back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from reput.base import first_line, is_out_of_reach, late, require
from reput.errors import StoreAccessError, UsageError
from reput.io import Location
from reput.wings.lakes.commit import Destination
from reput.wings.lakes.control import format_of
from reput.wings.lakes.lake_bucket import LakeBucket
from reput.wings.lakes.tables.parquet import ParquetBucketTable, ParquetTable

ENTRY_POINTS = "reput.table_formats"
# Columns needed to exclude rows of other stores and rows for damaged ranges.
_TOLD_APART = ("store", "corrupt_reason")
Dataset = Any
"""Stands for pyarrow.dataset.Dataset. The alias is Any, because pyarrow has no type information."""


@dataclass(frozen=True, slots=True)
class TableFormat:
    """A format of tables.

    Attributes:
        open: Opens the table in a folder with the given options. The folder need not exist. Raises UsageError.
        options: Names of the options that it accepts: `catalog`, `table`, or both.
        misread: Characters that its library misinterprets in a path.
        takes_control_characters: Whether a path may contain control characters.
        follows_links: Whether its library opens files by path, and therefore follows links.
        open_bucket: Opens the table of a `LakeBucket`; None if such tables cannot be in buckets.
        control_inside: Whether the control folder of a table in a bucket is inside the table's folder, not beside it.
    """

    open: Callable[..., Destination]
    options: frozenset[str] = frozenset()
    misread: str = ""
    takes_control_characters: bool = False
    follows_links: bool = True
    open_bucket: Callable[..., Destination] | None = None
    control_inside: bool = True


def _late(library: str, module: str, name: str) -> Callable[..., Destination]:
    """Return a function that opens a table with a class of a module, which needs a library that may be missing."""

    def open_late(*place: Any, **options: Any) -> Destination:
        reason = f"layout {module} needs {library}: pip install 'reput[{module}]'"
        require(library, reason, ["layout"])
        table: Destination = late(f"reput.wings.lakes.tables.{module}", name)()(*place, **options)
        return table

    return open_late


_formats: dict[str, TableFormat] = {
    "parquet": TableFormat(
        ParquetTable,
        takes_control_characters=True,
        follows_links=False,
        open_bucket=ParquetBucketTable,
        control_inside=False,
    ),
    "iceberg": TableFormat(
        _late("pyiceberg", "iceberg", "IcebergTable"),
        frozenset({"catalog", "table", "catalog_properties"}),
        misread="%?#",
        open_bucket=_late("pyiceberg", "iceberg", "IcebergBucketTable"),
        control_inside=True,
    ),
    "delta": TableFormat(
        _late("deltalake", "delta", "DeltaTable"),
        misread="%",
        open_bucket=_late("deltalake", "delta", "DeltaBucketTable"),
        control_inside=True,
    ),
}


def register_format(name: str, table_format: TableFormat) -> None:
    """Register a format for exports. Raises UsageError if the name is taken."""
    if name in _formats:
        raise UsageError(
            f"name: a table format named {name} exists already; choose another name",
            arguments=["name"],
        )
    _formats[name] = table_format


def format_names() -> list[str]:
    """Return the names of all formats, reput's own first."""
    installed = {point.name for point in entry_points(group=ENTRY_POINTS)}
    return [*_formats, *sorted(installed - _formats.keys())]


def find_format(name: str) -> TableFormat:
    """Return the table format with this name. Raises UsageError for an unknown name."""
    if name not in _formats:
        for point in entry_points(group=ENTRY_POINTS, name=name):
            register_format(name, point.load())
            break
        else:
            names = ", ".join(format_names())
            raise UsageError(f"layout {name}: must be one of {names}", arguments=["layout"])
    return _formats[name]


def open_table(
    folder: str,
    layout: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    **options: Any,
) -> Destination:
    """Return a table in a folder, which need not exist.

    Args:
        folder: Folder of the table: a path, or a URL in a bucket.
        layout: Name of the table's format.
        storage_options: Options of the bucket, as for `reput.open_store`.
        **options: Options of the format; None means the default.

    Raises:
        UsageError: The format or its library does not support the folder or an option.
    """
    table_format = find_format(layout)
    values = {name: value for name, value in options.items() if value is not None}
    if unknown := values.keys() - table_format.options:
        names = sorted(unknown)
        raise UsageError(
            f"layout {layout} does not take {' and '.join(names)}", arguments=["layout", *names]
        )
    if Location.is_url(folder):
        return _in_bucket(folder, layout, table_format, storage_options or {}, values)
    return table_format.open(_checked(Location.local_path(folder), layout, table_format), **values)


def _in_bucket(
    url: str,
    layout: str,
    table_format: TableFormat,
    storage_options: Mapping[str, str],
    options: Mapping[str, Any],
) -> Destination:
    if table_format.open_bucket is None:
        raise UsageError(
            f"{url}: tables of layout {layout} are not written into buckets; give a folder",
            arguments=["layout"],
        )
    bucket = LakeBucket(url, storage_options, is_inside=table_format.control_inside)
    return table_format.open_bucket(bucket, **options)


def _checked(folder: str, layout: str, table_format: TableFormat) -> Path:
    if folder in ("", "-"):
        raise UsageError(
            "name the folder of the table; '-' (stdout) is only for layout jsonl",
            arguments=["layout"],
        )
    if table_format.follows_links and not is_out_of_reach(folder):
        raise StoreAccessError(
            f"{folder}: another user can put links there, which the library of {layout} would follow as root; run the "
            "command as that user, or choose parquet or jsonl"
        )
    path = Path(os.path.abspath(folder))
    if path.exists() and not path.is_dir():
        raise UsageError(f"{folder}: is a file; a table is a folder")
    for character in str(path):
        is_control = character < " " and not table_format.takes_control_characters
        if is_control or character in table_format.misread:
            raise UsageError(
                f"{path}: a folder with {character!r} in its name cannot contain a table of layout {layout}",
                arguments=["layout"],
            )
    return path


@runtime_checkable
class ReadableDestination(Protocol):
    """A `Destination` whose rows can be read back."""

    def datasets(self) -> list[Dataset]:
        """Return the committed datasets: messages, and rejected rows if the table has any."""


def open_export(
    path: str, *, storage_options: Mapping[str, str] | None = None, **options: Any
) -> Destination:
    """Return the exported table in a folder.

    Args:
        path: The folder, or its URL.
        storage_options: Options of a URL, as for `reput.open_store`.
        **options: Options of the table's format; None for the default.

    Raises:
        UsageError: for options that the format does not take, or a format that cannot be read back.
        StoreAccessError: the folder cannot be read.
    """
    name = format_of(path, storage_options)
    if name is None:
        raise UsageError(f"{path}: nothing was exported there")
    return open_table(path, name, storage_options=storage_options, **options)


class ExportRows:
    """Reads the rows of one store from a table, by ranges of the log in ascending order."""

    def __init__(self, destination: Destination, store: str, *, is_only_one: bool) -> None:
        """Open a table.

        Args:
            destination: The table.
            store: The name of the store in the table.
            is_only_one: Whether the table has rows of this store only, so that it needs no column `store`.

        Raises:
            UsageError: The table lacks a column that identifies rows.
            StoreAccessError.
        """
        if not isinstance(destination, ReadableDestination):
            raise UsageError(f"{destination.name}: layout {destination.layout} cannot be read back")
        self._name, self._store = destination.name, store
        with _understood(self._name):
            self._datasets = destination.datasets()
        self.columns = list(self._datasets[0].schema.names) if self._datasets else []
        needed = ["physical_offset"] if is_only_one else ["physical_offset", "store"]
        if self._datasets and (missing := [name for name in needed if name not in self.columns]):
            raise UsageError(
                f"{self._name}: has no column {missing[0]}, which is needed to pair rows with messages"
            )

    def between(self, low: int, high: int, columns: list[str]) -> pa.Table:
        """Return messages with a physical offset from `low` to `high` - 1, in order.

        Rows for damaged ranges are skipped. Raises StoreAccessError.
        """
        tables = []
        for dataset in self._datasets:
            # Select rows by their physical offset, which is never null, unlike other columns.
            at = ds.field("physical_offset")
            needed = {*columns, *_TOLD_APART} & set(dataset.schema.names)
            with _understood(self._name):
                table = dataset.to_table(list(needed), filter=(at >= low) & (at < high))
                # pyarrow does not check whether texts in Parquet files are UTF-8.
                table.validate(full=True)
            if "store" in needed:
                table = table.filter(pc.equal(table["store"], self._store))
            if "corrupt_reason" in needed:
                table = table.filter(table["corrupt_reason"].is_null())
            tables.append(table.select(columns))
        if not tables:
            return pa.table({"physical_offset": pa.array([], pa.int64())})
        tables = [tables[0], *(_as(table, tables[0].schema) for table in tables[1:])]
        return pa.concat_tables(tables).sort_by("physical_offset").combine_chunks()


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table.select(schema.names).cast(schema)


@contextmanager
def _understood(name: str) -> Iterator[None]:
    """Convert errors in the `with` block, which reads a table, to StoreAccessError."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StoreAccessError(f"{name}: cannot be read: {first_line(error)}") from None
