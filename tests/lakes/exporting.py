"""Exports in tests: stores that grow, and tables read by an independent reader."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from reput.base.tasks import SerialRunner
from reput.testing.builders import MESSAGE, write_log
from reput.wings.lakes.commit import Destination
from reput.wings.lakes.driver import export_sources
from reput.wings.lakes.merging import TARGET_BYTES
from reput.wings.lakes.planning import open_stores
from reput.wings.lakes.report import ExportReport
from reput.wings.lakes.request import ExportRequest, ExportSettings
from reput.wings.lakes.tables.opening import open_table
from tests.growing import write_in_place

FORMATS: tuple[str, ...] = ("parquet", "iceberg", "delta")
SMALL_SPLIT = 300_000
"""Bytes per task: so few that each log file of a golden store is split."""


def export(
    stores: Path | Sequence[Path],
    folder: Path,
    layout: str = "parquet",
    *,
    names: Sequence[str] = (),
    destination: Destination | None = None,
    incremental: bool = False,
    fail_on_data_loss: bool = True,
    split_bytes: int | None = SMALL_SPLIT,
    max_rejects: str | int | None = None,
    target_file_bytes: int = TARGET_BYTES,
    commit_every: str | int | None = None,
    compact_after: int | None = None,
    progress: Any = lambda phase, done, total: None,
    **request: Any,
) -> ExportReport:
    """Export in this process."""
    paths = [stores] if isinstance(stores, Path) else stores
    return export_sources(
        open_stores([str(path) for path in paths], names),
        destination or open_table(str(folder), layout),
        ExportRequest(**request),
        lambda size: SerialRunner(),
        ExportSettings(
            incremental, fail_on_data_loss, split_bytes, target_file_bytes, commit_every,
            compact_after, max_rejects,
        ),
        progress,
    )  # fmt: skip


def iceberg_table(folder: Path, rejects: bool = False) -> Any:
    """Return pyiceberg's table in a folder with its own catalog."""
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("reput", type="sql", uri=f"sqlite:///{folder}/catalog.db")
    return catalog.load_table("reput.messages" + ("_rejects" if rejects else ""))


def read_table(folder: Path, layout: str, rejects: bool = False) -> pa.Table:
    """Read a table with the reader of its format, by store and physical offset."""
    if layout == "iceberg":
        table = iceberg_table(folder, rejects).scan().to_arrow()
    elif layout == "delta":
        from deltalake import DeltaTable

        place = folder / "_rejects" if rejects else folder
        table = DeltaTable(place).to_pyarrow_table()
    else:
        place = control_of(folder) / "rejects" if rejects else folder
        table = _dataset(place).to_table()
    keys = [name for name in ("store", "physical_offset") if name in table.schema.names]
    return table.sort_by([(name, "ascending") for name in keys]) if keys else table


def control_of(folder: Path, layout: str = "parquet") -> Path:
    """Return the path of a table's control folder."""
    return folder.with_name(f"{folder.name}.reput") if layout == "parquet" else folder / "_reput"


def _dataset(place: Path) -> Any:
    """Return a dataset with the fields of all files. By default pyarrow uses the first file's."""
    files = ds.dataset(place, partitioning="hive")
    schemas = [fragment.physical_schema for fragment in files.get_fragments()]
    if all(schema.equals(schemas[0]) for schema in schemas):
        return files
    known = [files.schema, *schemas]
    schema = pa.unify_schemas(known, promote_options="permissive")
    return ds.dataset(place, schema=schema, partitioning="hive")


def offsets(table: pa.Table) -> list[int]:
    """Physical offsets in a table, in order."""
    found: list[int] = pc.sort_indices(table["physical_offset"]).to_pylist()
    values: list[int] = table["physical_offset"].to_pylist()
    return [values[row] for row in found]


def grow_to(source: Path, store: Path, end: int) -> None:
    """Make `store` equal `source` at the time when its log ended at this physical offset. Files keep their sizes."""
    folder = store / "commitlog"
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted((source / "commitlog").iterdir()):
        start, data = int(file.name), file.read_bytes()
        if start < end:
            whole = data[: end - start] + bytes(max(start + len(data) - end, 0))
            write_in_place(folder / file.name, whole)


class GrowingStore:
    """A store that gets more JSON bodies in each round."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._messages: list[Any] = []

    def add(self, bodies: Sequence[Any]) -> None:
        for body in bodies:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            offset = len(self._messages)
            self._messages.append(replace(MESSAGE, body=data, queue_offset=offset))
        shutil.rmtree(self.path, ignore_errors=True)
        write_log(self.path, self._messages, file_bytes=1 << 20)


def expire(store: Path, files: int) -> None:
    """Delete the oldest files of a log."""
    for file in sorted((store / "commitlog").iterdir())[:files]:
        file.unlink()
