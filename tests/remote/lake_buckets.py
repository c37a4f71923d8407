"""Exports into a bucket, and the tables as independent readers read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from reput.io.bucket import Bucket, object_settings
from reput.io.file_systems import resolve
from reput.wings.lakes.commit import Destination
from reput.wings.lakes.driver import export_sources
from reput.wings.lakes.planning import open_stores
from reput.wings.lakes.report import ExportReport
from reput.wings.lakes.request import ExportRequest, ExportSettings
from reput.wings.lakes.tables.opening import open_table
from tests.lakes.exporting import SMALL_SPLIT
from tests.remote.rest_catalog import io_properties
from tests.remote.test_commands import SendingRunner

Options = dict[str, str]


def no_progress(phase: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Lake:
    """A table in a bucket.

    Attributes:
        url: URL of the table.
        options: Storage options of the bucket.
        layout: Format of the table.
        catalog: For Iceberg: an SQLite file, or the address of a REST catalog.
        table: Name of the table in the catalog.
    """

    url: str
    options: Options
    layout: str
    catalog: Path | str
    table: str = "reput.messages"

    def through(self, options: Options) -> Lake:
        """Return the same table, reached through another server."""
        return replace(self, options=options)

    def open(self) -> Destination:
        """Open the table."""
        more = (
            {"catalog": self.catalog_uri, "table": self.table} if self.layout == "iceberg" else {}
        )
        return open_table(self.url, self.layout, storage_options=self.options, **more)

    @property
    def catalog_uri(self) -> str:
        """Return the address of the catalog."""
        return (
            f"http://{self.catalog}"
            if isinstance(self.catalog, str)
            else f"sqlite:///{self.catalog}"
        )

    def export(
        self,
        store: Path | str,
        *,
        incremental: bool = False,
        progress: Callable[[str, int, int], None] = no_progress,
        split_bytes: int = SMALL_SPLIT,
        commit_every: str | int | None = None,
        compact_after: int | None = None,
        **request: Any,
    ) -> ExportReport:
        """Export with a runner that sends its tasks to other processes."""
        return export_sources(
            open_stores([str(store)], (), self.options), self.open(), ExportRequest(**request),
            lambda size: SendingRunner(),
            ExportSettings(
                incremental=incremental, split_bytes=split_bytes, commit_every=commit_every,
                compact_after=compact_after,
            ),
            progress,
        )  # fmt: skip

    def rows(self, rejects: bool = False) -> pa.Table:
        """Return the rows of the table, by physical offset."""
        if self.layout == "delta":
            table = self.delta(rejects).to_pyarrow_table()
        elif self.layout == "iceberg":
            table = self.iceberg_table(rejects).scan().to_arrow()
        else:
            place = f"{self.url}.reput/rejects" if rejects else self.url
            system, folder = resolve(place, self.options)
            files = ds.dataset(folder, filesystem=system.arrow, partitioning="hive")
            table = files.to_table()
        return table.sort_by("physical_offset")

    def delta(self, rejects: bool = False) -> Any:
        """Return deltalake's table."""
        from deltalake import DeltaTable

        place = f"{self.url}/_rejects" if rejects else self.url
        settings = object_settings(self.url, self.options)
        return DeltaTable(place, storage_options=settings)

    def iceberg_table(self, rejects: bool = False) -> Any:
        """Return pyiceberg's table."""
        from pyiceberg.catalog import load_catalog

        kind = "rest" if isinstance(self.catalog, str) else "sql"
        catalog = load_catalog(
            "reput", type=kind, uri=self.catalog_uri, **io_properties(self.options)
        )
        return catalog.load_table(self.table + ("_rejects" if rejects else ""))

    def names(self) -> list[str]:
        """Return the names of all objects of the table and of its control folder, sorted."""
        parent, _, leaf = self.url.rpartition("/")
        found = Bucket(parent, self.options).list()
        return sorted(one.name for one in found if one.name.startswith(leaf))

    def is_tidy(self) -> bool:
        """Return whether ended runs left no temporary objects: staged data and signs of life."""
        return not [name for name in self.names() if "staging" in name or "alive" in name]
