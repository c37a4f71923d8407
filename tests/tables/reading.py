"""Reading tables in tests."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from reput.core.log.scan import ScanBuffers
from reput.engine.messages.schema import select
from reput.engine.tables.filters import Condition, OnCorrupt
from reput.engine.tables.log_paths import find_logs
from reput.engine.tables.plan import ReadPlan, plan_reading
from reput.engine.tables.read import RangeBatches

_BUFFERS = ScanBuffers()
_TIMES = ("born_timestamp", "store_timestamp")


def plan(path: str | Path, conditions: Sequence[Condition] = (), **arguments: Any) -> ReadPlan:
    return plan_reading(find_logs([str(path)]), conditions, **arguments)


def read(
    path: str | Path,
    columns: Iterable[str] | None = None,
    conditions: Sequence[Condition] = (),
    *,
    on_corrupt: OnCorrupt = "fail",
    batch_bytes: int = 1 << 20,
    decompressed: bool = True,
    unwrap_batches: bool = False,
    **arguments: Any,
) -> pa.Table:
    """Return the results of all tasks of a plan, in order."""
    wanted = None if columns is None else list(columns)
    return read_plan(
        plan(path, conditions, unwrap_batches=unwrap_batches, **arguments), wanted, conditions,
        on_corrupt=on_corrupt, batch_bytes=batch_bytes, decompressed=decompressed,
        unwrap_batches=unwrap_batches,
    )  # fmt: skip


def read_plan(
    planned: ReadPlan,
    columns: Sequence[str] | None = None,
    conditions: Sequence[Condition] = (),
    **arguments: Any,
) -> pa.Table:
    batches = []
    for task in planned.tasks:
        reader = RangeBatches(
            task.part, columns, conditions, open_file=task.open_file, buffers=_BUFFERS, **arguments
        )
        for batch in reader:
            batch.validate(full=True)
            batches.append(batch)
    return pa.Table.from_batches(batches, select(columns))


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows in the form of `tests.oracle.table`."""
    for name in _TIMES:
        if name in table.column_names:
            place = table.column_names.index(name)
            table = table.set_column(place, name, table.column(name).cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        if row.get("properties") is not None:
            assert len(dict(row["properties"])) == len(row["properties"])
            row["properties"] = dict(row["properties"])
    return rows
