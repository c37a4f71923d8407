"""Compaction of tables: fewer files have the same rows, exports continue afterwards, and interruptions lose nothing."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reput.base.tasks import SerialRunner
from reput.errors import StoreAccessError, StoreLockedError, UsageError
from reput.io.parquet import opened_parquet
from reput.wings.lakes.compaction import CompactReport, compact_destination, layout_of
from reput.wings.lakes.tables.opening import open_table
from tests.cli.running import reput
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import (
    FORMATS,
    GrowingStore,
    control_of,
    export,
    grow_to,
    offsets,
    read_table,
)
from tests.slow import slow_from
from tests.writer.crashing import dying

Golden = Callable[[str], GoldenStore]
ENDS = (500_000, 900_000, 1_300_000, 2_000_000)


def compact(folder: Path, layout: str = "parquet", **options: Any) -> CompactReport:
    table = open_table(str(folder), layout)
    return compact_destination(table, lambda size: SerialRunner(), **options)


def exported(golden: Golden, tmp_path: Path, layout: str, **request: Any) -> tuple[Path, Path]:
    store, out = tmp_path / "store", tmp_path / "out"
    for end in ENDS:
        grow_to(golden("orders").path, store, end)
        export(store, out, layout, incremental=True, **request)
    return store, out


def rows_of(out: Path, layout: str) -> list[dict[str, Any]]:
    """Return rows with columns in a fixed order, and maps as sets."""
    table = read_table(out, layout)
    rows: list[dict[str, Any]] = table.select(sorted(table.schema.names)).to_pylist()
    return [{**row, "properties": dict(row["properties"])} for row in rows]


@pytest.mark.parametrize("layout", FORMATS)
def test_appends_combine_their_files_past_a_threshold(
    golden: Golden, tmp_path: Path, layout: str
) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    notes = []
    for end in range(20_000, 120_000, 20_000):
        grow_to(golden("basic").path, store, end)
        report = export(store, out, layout, incremental=True, compact_after=3)
        notes.append([note for note in report.notes if "combined" in note])
    combined = "3 small files were combined into 1"
    assert notes == [[], [], [combined], [], [combined]]
    stored = [m.physical_offset for m in golden("basic").messages]
    assert offsets(read_table(out, layout)) == [
        o for o in stored if o < report.stores[str(store)][1]
    ]
    with pytest.raises(UsageError, match="compact_after must be at least 2"):
        export(store, out, layout, incremental=True, compact_after=1)


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
@pytest.mark.parametrize(
    "partition_by", [("topic", "day"), pytest.param((), marks=pytest.mark.slow)]
)
def test_files_become_few_and_exports_go_on(
    golden: Golden, tmp_path: Path, layout: str, partition_by: tuple[str, ...]
) -> None:
    store, out = exported(golden, tmp_path, layout, partition_by=partition_by)
    before = rows_of(out, layout)
    report = compact(out, layout)
    assert report.committed
    assert report.new_files < report.files
    assert rows_of(out, layout) == before
    assert not compact(out, layout).committed, "a single file stays one"
    grow_to(golden("orders").path, store, 1 << 40)
    export(store, out, layout, incremental=True, partition_by=partition_by)
    expected = [message.physical_offset for message in golden("orders").messages]
    assert offsets(read_table(out, layout)) == expected
    assert {path.name for path in control_of(out, layout).iterdir()} <= {
        "owner",
        "format",
        "commits",
    }


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
def test_files_of_other_fields_become_one_with_all_of_them(tmp_path: Path, layout: str) -> None:
    store, out = GrowingStore(tmp_path / "store"), tmp_path / "out"
    for body in ({"a": 1}, {"a": 2, "deep": {"x": 1}}, {"deep": {"x": 2, "y": ["z"]}}, {"a": 0.5}):
        store.add([body])
        export(store.path, out, layout, json_body="infer", json_mode="permissive", incremental=True)
    before = read_table(out, layout)["json"].to_pylist()
    compact(out, layout)
    table = read_table(out, layout)
    assert table["json"].to_pylist() == before
    assert before[2] == {"a": None, "deep": {"x": 2, "y": ["z"]}}
    if layout == "parquet":
        (path,) = out.glob("*.parquet")
        assert pa.types.is_float64(pa.parquet.read_schema(path).field("json").type.field("a").type)


@pytest.mark.slow
def test_a_parquet_table_is_compacted_whole_wherever_it_dies(
    golden: Golden, tmp_path: Path
) -> None:
    _, first = exported(golden, tmp_path, "parquet")
    expected = offsets(read_table(first, "parquet"))
    with dying(None) as steps:
        compact(first)
    assert steps.made > 12
    for last in range(steps.made)[:: max(steps.made // 8, 1)]:
        store, out = tmp_path / f"store{last}", tmp_path / f"out{last}"
        for end in ENDS[:2]:
            grow_to(golden("orders").path, store, end)
            export(store, out, incremental=True)
        with dying(last):
            compact(out)
        assert set(offsets(read_table(out, "parquet"))) <= set(expected)
        grow_to(golden("orders").path, store, ENDS[-1])
        export(store, out, incremental=True)
        compact(out)
        assert offsets(read_table(out, "parquet")) == expected, last
        assert len([*out.rglob("*.parquet")]) == 1


def test_a_compaction_and_an_export_exclude_each_other(golden: Golden, tmp_path: Path) -> None:
    store, out = exported(golden, tmp_path, "parquet")

    def export_now(phase: str, done: int, total: int) -> None:
        if phase == "written":
            with pytest.raises(StoreLockedError, match="another export is writing here"):
                export(store, out, incremental=True)

    assert compact(out, progress=export_now).committed


def test_what_is_no_table_is_not_compacted(golden: Golden, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="contains no table that `reput export` wrote"):
        layout_of(str(tmp_path))
    _, out = exported(golden, tmp_path, "parquet")
    with pytest.raises(UsageError, match="target_file_bytes must be at least"):
        compact(out, target_file_bytes=1)
    control_of(out).rename(out / "_reput")
    with pytest.raises(UsageError, match=r"cannot be compacted, because .* written by reput 0\.2"):
        compact(out)


def test_the_command_finds_out_the_format(golden: Golden, tmp_path: Path) -> None:
    _, out = exported(golden, tmp_path, "parquet", partition_by=("topic",))
    ran = reput("compact-table", out, "--format", "json")
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert report["new_files"] < report["files"]
    assert "no small files" in reput("compact-table", out).out
    assert reput("compact-table", tmp_path).code == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_a_fifo_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "data.parquet")
    with (
        pytest.raises(StoreAccessError, match="not a regular file"),
        opened_parquet(tmp_path / "data.parquet"),
    ):
        pass
