"""A commit has only rows that were read: damage to a file in between is detected first."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reput.base.tasks import SerialRunner
from reput.engine.rebuild.growing import first_record
from reput.errors import StoreAccessError, StoreChangedError
from reput.wings.lakes import task
from reput.wings.lakes.data_file import RowTally, tally_of
from reput.wings.lakes.driver import export_sources
from reput.wings.lakes.planning import open_stores
from reput.wings.lakes.request import ExportRequest, ExportSettings
from reput.wings.lakes.tables.opening import open_table
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import FORMATS, control_of, export, offsets, read_table
from tests.slow import slow_from

Golden = Callable[[str], GoldenStore]


def lose_a_row(table: pa.Table) -> pa.Table:
    return table.slice(1)


def repeat_a_row(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(0, 1)])


def swap_a_row(table: pa.Table) -> pa.Table:
    """Replace a row by a copy of another one: the number of rows stays."""
    return pa.concat_tables([table.slice(1), table.slice(1, 1)])


def flip_a_bit(table: pa.Table) -> pa.Table:
    bodies = table["body"].to_pylist()
    bodies[5] = bytes([bodies[5][0] ^ 1]) + bodies[5][1:]
    at = table.schema.get_field_index("body")
    return table.set_column(at, table.schema.field(at), pa.array(bodies, pa.binary()))


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
@pytest.mark.parametrize("harm", [lose_a_row, repeat_a_row, swap_a_row, flip_a_bit])
def test_a_file_that_is_not_what_was_read_is_refused(
    golden: Golden,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
    harm: Callable[[pa.Table], pa.Table],
) -> None:
    store, out = golden("orders").path, tmp_path / "out"
    write, calls = pq.ParquetWriter.write_table, []

    def harmed(self: Any, table: pa.Table, **options: Any) -> None:
        calls.append(len(table))
        write(self, harm(table) if len(calls) == 3 else table, **options)

    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "write_table", harmed)
        with pytest.raises(StoreAccessError, match="nothing was committed"):
            export(store, out, layout)
    left = [path for path in out.rglob("*.parquet") if "_delta_log" not in path.parts]
    assert left == []
    assert len(calls) > 3
    export(store, out, layout)  # the destination is empty, so the export need not be incremental
    assert len(read_table(out, layout)) == 19622


def test_ranges_that_do_not_join_are_refused(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They occur if a file is replaced between two tasks, so that records in between are skipped."""

    def one_too_far(*arguments: Any) -> int:
        found = first_record(*arguments)
        return found + 357 if found == 300_138 or found > 2_000_000 else found

    monkeypatch.setattr(task, "first_record", one_too_far)
    with pytest.raises(StoreChangedError, match="first record begins at"):
        export(golden("orders").path, tmp_path / "out")
    assert list((control_of(tmp_path / "out") / "commits").iterdir()) == []


def test_a_task_that_runs_twice_counts_once(golden: Golden, tmp_path: Path) -> None:
    class Twice(SerialRunner):
        def run(self, function: Any, tasks: Any, weights: Any, progress: Any) -> list[Any]:
            super().run(function, tasks, weights, progress)
            return super().run(function, tasks, weights, progress)

    store = golden("orders")
    export_sources(
        open_stores([str(store.path)]), open_table(str(tmp_path / "out"), "parquet"), ExportRequest(),
        lambda size: Twice(), ExportSettings(split_bytes=300_000),
    )  # fmt: skip
    expected = [message.physical_offset for message in store.messages]
    assert offsets(read_table(tmp_path / "out", "parquet")) == expected
    left = {path.name for path in control_of(tmp_path / "out").iterdir()}
    assert left == {"owner", "format", "commits"}


def test_sums_tell_rows_apart() -> None:
    def of(*rows: tuple[int, bytes | None]) -> RowTally:
        sizes, bodies = zip(*rows, strict=True)
        return tally_of(
            pa.record_batch({"size": pa.array(sizes), "body": pa.array(bodies, pa.binary())})
        )

    one, other = (300, b"body"), (400, b"other body")
    assert of(one, other) == of(other, one) == of(one) + of(other)
    assert of(one) + of((0, None)) != of(one)
    assert not of(one, one).agrees_with(of(one, other))
    assert not of(one).agrees_with(of((300, b"Body")))
    assert of(one).agrees_with(RowTally(1, 300, None))
    assert not of(one).agrees_with(RowTally(1, 301, None))
