"""The fast profile exports the same rows: unsorted, not read back, but counted."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from reput.base.tasks import SerialRunner
from reput.errors import StoreAccessError, UsageError
from reput.wings.lakes import parquet_files
from reput.wings.lakes.compaction import compact_destination
from reput.wings.lakes.merging import groups_of
from reput.wings.lakes.partitions import sorted_slices
from reput.wings.lakes.request import ExportRequest
from reput.wings.lakes.tables.opening import open_table
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import FORMATS, export, read_table
from tests.lakes.test_merging import file_of

Golden = Callable[[str], GoldenStore]


def data_files(out: Path) -> list[Path]:
    return [path for path in out.rglob("*.parquet") if "_delta_log" not in path.parts]


@pytest.mark.parametrize("layout", FORMATS)
def test_a_fast_export_has_the_rows_of_a_safe_one(
    golden: Golden, tmp_path: Path, layout: str
) -> None:
    store, out = golden("orders"), tmp_path / "fast"
    half: Any = {"layout": layout, "partition_by": ("topic",)}
    export(store.path, tmp_path / "safe", **half)
    export(store.path, out, **half, profile="fast")
    expected = read_table(tmp_path / "safe", layout)
    assert read_table(out, layout).equals(expected)
    for path in data_files(out):
        file = pq.ParquetFile(path)
        assert not file.metadata.row_group(0).sorting_columns
        places = file.read(["physical_offset"])["physical_offset"].to_pylist()
        assert places == sorted(places)
    assert export(store.path, out, **half, incremental=True).rows == 0, (
        "a table may change its profile"
    )


def test_compaction_sorts_what_a_fast_export_left_unsorted(golden: Golden, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(golden("orders").path, out, profile="fast", target_file_bytes=1 << 10)
    compact_destination(open_table(str(out), "parquet"), lambda size: SerialRunner())
    (path,) = data_files(out)
    assert pq.read_metadata(path).row_group(0).sorting_columns


def test_rows_that_a_fast_export_loses_stop_it(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sorted_slices

    def fewer(*arguments: Any) -> Iterator[Any]:
        for values, table in whole(*arguments):
            yield values, table.slice(1)

    monkeypatch.setattr(parquet_files, "sorted_slices", fewer)
    with pytest.raises(StoreAccessError, match="nothing was committed"):
        export(golden("orders").path, tmp_path / "out", profile="fast")
    monkeypatch.undo()
    monkeypatch.setattr(
        parquet_files, "pq", type("Short", (), {**vars(pq), "ParquetWriter": _ShortWriter})
    )
    with pytest.raises(StoreAccessError, match="has 860 of 861 rows"):
        export(golden("orders").path, tmp_path / "other", profile="fast")


class _ShortWriter(pq.ParquetWriter):  # type: ignore[misc]
    def write_table(self, table: Any, **options: Any) -> None:
        super().write_table(table.slice(1), **options)


def test_a_run_leaves_files_alone_that_a_compaction_combines() -> None:
    files = [file_of("a", 10 << 20), file_of("b", 10 << 20), file_of("c", 7 << 20), file_of("d", 1)]
    assert [[f.name for f in group] for group in groups_of(files, 256 << 20, True)] == [["c", "d"]]
    assert [[f.name for f in group] for group in groups_of(files, 256 << 20)] == [
        ["a", "b", "c", "d"]
    ]


def test_an_unknown_profile_is_refused() -> None:
    unknown: Any = "quick"
    with pytest.raises(UsageError, match="profile must be safe or fast, not quick"):
        ExportRequest(profile=unknown)
