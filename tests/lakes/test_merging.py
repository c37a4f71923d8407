"""The small files of a run become one file per partition, with the same rows, sorted and indexed again."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reput
from reput.errors import StoreAccessError, UsageError
from reput.io import DISK
from reput.wings.lakes import merging, parquet_files
from reput.wings.lakes.data_file import DataFile, RowTally, read_back
from reput.wings.lakes.merging import MergeJob, groups_of, run_merge
from reput.wings.lakes.parquet_files import ParquetFiles
from reput.wings.lakes.request import Profile
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import FORMATS, export, offsets, read_table
from tests.slow import slow_from

Golden = Callable[[str], GoldenStore]


def file_of(name: str, size: int, topic: str = "t", is_reject: bool = False) -> DataFile:
    return DataFile(name, size, RowTally(1, 1, 1), (("topic", topic),), {}, {}, is_reject)


def test_small_files_of_a_partition_go_together_up_to_the_target() -> None:
    files = [
        file_of("a", 20), file_of("b", 20), file_of("large", 25), file_of("c", 24), file_of("d", 24),
        file_of("e", 24), file_of("other", 5, "u"), file_of("reject", 5, is_reject=True),
    ]  # fmt: skip
    groups = [[file.name for file in group] for group in groups_of(files, 100)]
    assert groups == [["a", "b", "c", "d"]], "e would stay alone"
    assert groups_of(files, 20) == []


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
@pytest.mark.parametrize("partition_by", [(), ("topic", "day")])
def test_a_run_of_many_ranges_writes_one_file_a_partition(
    golden: Golden, tmp_path: Path, layout: str, partition_by: tuple[str, ...]
) -> None:
    store, out = golden("orders"), tmp_path / "out"
    report = export(store.path, out, layout, partition_by=partition_by, split_bytes=200_000)
    table = read_table(out, layout)
    assert offsets(table) == [message.physical_offset for message in store.messages]
    files = [path for path in out.rglob("*.parquet") if "_delta_log" not in path.parts]
    partitions = {
        (m.topic, m.store_timestamp // 86_400_000) if partition_by else () for m in store.messages
    }
    assert len(files) == report.files == len(partitions)
    for file in files[:5]:
        metadata = pq.read_metadata(file)
        assert metadata.num_row_groups == 1
        assert metadata.row_group(0).sorting_columns
        assert metadata.row_group(0).column(0).is_stats_set


def test_a_target_bounds_what_is_put_together(golden: Golden, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = export(golden("orders").path, out, split_bytes=30_000, target_file_bytes=200_000)
    sizes = [path.stat().st_size for path in out.glob("*.parquet")]
    assert len(sizes) == report.files > 3
    assert max(sizes) < 250_000
    with pytest.raises(UsageError, match="target_file_bytes must be at least 1024, not 1"):
        export(golden("orders").path, tmp_path / "other", target_file_bytes=1)


def test_rows_without_a_field_that_others_have_are_null_there(tmp_path: Path) -> None:
    old = pa.table({"size": [1], "json": [{"a": 1}]})
    new = pa.table({"size": [2], "json": [{"a": 0.5, "b": "x"}]})
    files = []
    for name, table in (("old", old), ("new", new)):
        pq.write_table(table, tmp_path / name)
        files.append(DataFile(name, 9, read_back(str(tmp_path / name)), (), {}, {}))
    (merged,) = run_merge(
        MergeJob(str(tmp_path), str(tmp_path), new.schema, pa.schema([])), tuple(files)
    )
    assert pq.read_table(tmp_path / merged.name)["json"].to_pylist() == [
        {"a": 1.0, "b": None},
        {"a": 0.5, "b": "x"},
    ]


def test_merged_files_that_hold_something_else_are_not_committed(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shaped = merging.shaped
    monkeypatch.setattr(merging, "shaped", lambda batch, schema: shaped(batch.slice(1), schema))
    with pytest.raises(StoreAccessError, match=r"were combined into files with .*; nothing was"):
        export(golden("orders").path, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.parquet"))


def test_the_rows_of_many_small_log_files_are_written_once(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, out = golden("orders").path, tmp_path / "out"
    assert len(list((store / "commitlog").iterdir())) > 3
    written: list[int] = []
    write = ParquetFiles.write

    def counting(files: ParquetFiles, batch: pa.RecordBatch) -> None:
        written.append(len(batch))
        write(files, batch)

    monkeypatch.setattr(ParquetFiles, "write", counting)
    report = export(store, out, "parquet", split_bytes=None)
    assert report.files == 1
    assert sum(written) == report.rows == len(golden("orders").messages)


@pytest.mark.parametrize("profile", ["safe", "fast"])
def test_rows_of_small_partitions_wait_for_more_and_are_encoded_once(
    golden: Golden, tmp_path: Path, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The rows are written in many groups; the most frequent topics have enough rows in each.
    monkeypatch.setattr(parquet_files, "ROW_GROUP_BYTES", 300_000)
    monkeypatch.setattr(parquet_files, "LEAST_GROUP_BYTES", 70_000)
    written: list[Path] = []
    sync = DISK.sync_file

    def noting(path: Path) -> None:
        written.append(path)
        sync(path)

    monkeypatch.setattr(DISK, "sync_file", noting)
    store, out = golden("orders"), tmp_path / "out"
    report = reput.export(store.path, out, partition_by=["topic"], profile=profile)
    assert offsets(read_table(out, "parquet")) == [m.physical_offset for m in store.messages]
    files = list(out.rglob("*.parquet"))
    assert len(files) == report.files == len({m.topic for m in store.messages})
    parts = {path for path in written if path.suffix == ".part"}
    assert len(parts) == len(files), "no file was written again"
    groups = {path.parent.name: pq.read_metadata(path).num_row_groups for path in files}
    assert min(groups.values()) == 1
    assert max(groups.values()) > 2
    for path in files:
        file = pq.ParquetFile(path)
        places = [
            file.read_row_group(n, ["physical_offset"])["physical_offset"].to_pylist()
            for n in range(file.num_row_groups)
        ]
        assert all(max(one) < min(other) for one, other in pairwise(places))
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".rows"]
