"""The rows that an export has committed, whatever its format: its data files are Parquet in each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from reput.errors import StoreAccessError, UsageError
from reput.files.reader import read_text
from reput.lakes.commit import Destination
from reput.lakes.control_folder import format_of
from reput.lakes.tables.opening import open_table

_TOLD_APART = ("store", "corrupt_reason")
Dataset = Any
"""A pyarrow.dataset.Dataset; pyarrow has no type information."""


@runtime_checkable
class ReadableDestination(Protocol):
    """A `Destination` whose rows can be read back."""

    def datasets(self) -> list[Dataset]:
        """What is committed: messages, and rejected rows where there are some."""


def open_export(path: str, **options: str | None) -> Destination:
    """The table that an export made of a folder.

    Args:
        path: The folder.
        **options: Of its format; None where one is not given.

    Raises:
        UsageError: for options that the format does not take, or a format that cannot be read back.
        StoreAccessError: the folder cannot be read.
    """
    name = format_of(path)
    if name is None:
        raise UsageError(f"{path}: nothing was exported there")
    return open_table(path, read_text(name), **options)


class ExportRows:
    """Rows of one store in a table, a range of the log at a time."""

    def __init__(self, destination: Destination, store: str, *, is_only_one: bool) -> None:
        """Raises UsageError for a table without the columns that rows are told apart by; StoreAccessError."""
        if not isinstance(destination, ReadableDestination):
            raise UsageError(f"{destination.name}: layout {destination.layout} cannot be read back")
        self._name, self._store = destination.name, store
        with _understood(self._name):
            self._datasets = destination.datasets()
        self.columns = list(self._datasets[0].schema.names) if self._datasets else []
        needed = ["physical_offset"] if is_only_one else ["physical_offset", "store"]
        if self._datasets and (missing := [one for one in needed if one not in self.columns]):
            raise UsageError(f"{self._name}: has no column {missing[0]}, by which rows are paired")

    def between(self, low: int, high: int, columns: list[str]) -> pa.Table:
        """Messages with a physical offset from `low` to `high` - 1, in order; rows of damage are left out.

        Raises StoreAccessError.
        """
        tables = []
        for dataset in self._datasets:
            at = ds.field("physical_offset")  # what a table states of other columns may be null
            asked = {*columns, *_TOLD_APART} & set(dataset.schema.names)
            with _understood(self._name):
                table = dataset.to_table(list(asked), filter=(at >= low) & (at < high))
            if "store" in asked:
                table = table.filter(pc.equal(table["store"], self._store))
            if "corrupt_reason" in asked:
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
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StoreAccessError(f"{name}: cannot be read: {error}") from None
