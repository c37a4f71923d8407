"""A table after one export has every selected message, with every column, once."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from reput.base.tasks import SerialRunner
from reput.core.log.sources import StoreLog
from reput.engine.tables.read import LogRange, RangeBatches
from reput.errors import StoreChangedError, StoreLockedError, StoreNotFoundError, UsageError
from reput.wings.lakes.driver import export_sources
from reput.wings.lakes.planning import open_stores
from reput.wings.lakes.request import KEY, TABLE_COLUMNS, ExportRequest, ExportSettings
from reput.wings.lakes.tables.opening import open_table
from tests.golden.stores import SHIPPED, GoldenStore
from tests.lakes.exporting import (
    FORMATS,
    expire,
    export,
    grow_to,
    iceberg_table,
    offsets,
    read_table,
)
from tests.slow import slow_from
from tests.tables.reading import read

Golden = Callable[[str], GoldenStore]


def decoded(store: Path) -> pa.Table:
    """Return all messages of a store, in the order of the log, and the first key of each."""
    files = StoreLog(store).list().files
    batches = [
        batch
        for file in files
        for batch in RangeBatches(
            LogRange.whole(file, str(store), file is files[-1]), on_corrupt="skip"
        )
    ]
    table = pa.Table.from_batches(batches)
    first = [keys[0] if keys else None for keys in table["keys"].to_pylist()]
    return table.append_column(KEY, pa.array(first, pa.string())).select(TABLE_COLUMNS.names)


def plain(table: pa.Table) -> list[dict[str, object]]:
    """Return rows with their maps as dicts: comparisons must ignore the order of entries, which engines may change."""
    rows: list[dict[str, object]] = table.to_pylist()
    for row in rows:
        row["properties"] = dict(row["properties"])  # type: ignore[call-overload]
    return rows


@pytest.mark.parametrize("layout", FORMATS)
def test_every_column_of_every_message_is_there(
    golden: Golden, tmp_path: Path, layout: str
) -> None:
    store = golden("orders")
    report = export(store.path, tmp_path / "out", layout)
    table = read_table(tmp_path / "out", layout)
    assert offsets(table) == [message.physical_offset for message in store.messages]
    assert (report.rows, report.messages, report.damage) == (19622, 19622, [])
    assert plain(table.select(TABLE_COLUMNS.names)) == plain(decoded(store.path))


@pytest.mark.parametrize("name", SHIPPED)
def test_every_golden_store_is_exported_whole(golden: Golden, tmp_path: Path, name: str) -> None:
    store = golden(name)
    report = export(
        store.path, tmp_path / "out",
        partition_by=("topic", "day"), on_corrupt="fail", decompressed=False,
    )  # fmt: skip
    found = read_table(tmp_path / "out", "parquet")
    assert offsets(found) == [message.physical_offset for message in store.messages]
    assert report.rows == len(store.messages)


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
@pytest.mark.parametrize(
    "partition_by",
    [("topic",), ("day",), pytest.param(("topic", "hour"), marks=pytest.mark.slow)],
)
def test_partitions_hold_what_they_say(
    golden: Golden, tmp_path: Path, layout: str, partition_by: tuple[str, ...]
) -> None:
    store = golden("orders")
    export(store.path, tmp_path / "out", layout, partition_by=partition_by)
    table = read_table(tmp_path / "out", layout)
    assert offsets(table) == [message.physical_offset for message in store.messages]
    topics = dict(zip(offsets(table), table["topic"].to_pylist(), strict=True))
    assert topics == {message.physical_offset: message.topic for message in store.messages}
    if layout == "parquet":
        stamps = table["store_timestamp"].to_pylist()
        if "day" in partition_by:
            assert list(map(str, table["day"].to_pylist())) == [f"{t:%Y-%m-%d}" for t in stamps]
        if "hour" in partition_by:
            assert table["hour"].to_pylist() == [f"{t:%Y-%m-%d-%H}" for t in stamps]
        folders = {path.name for path in (tmp_path / "out").iterdir()}
        assert ("topic=%25RETRY%25billing" in folders) == ("topic" in partition_by)


def test_an_iceberg_reader_skips_partitions(golden: Golden, tmp_path: Path) -> None:
    export(golden("orders").path, tmp_path / "out", "iceberg", partition_by=("topic", "day"))
    table = iceberg_table(tmp_path / "out")
    files = list(table.scan().plan_files())
    some = list(table.scan(row_filter="topic = 'payments'").plan_files())
    assert 0 < len(some) < len(files) / 3
    assert [field.name for field in table.spec().fields] == ["topic", "day"]


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
def test_topics_times_and_columns(golden: Golden, tmp_path: Path, layout: str) -> None:
    store = golden("orders")
    begin, end = (int(datetime(2026, 10, day, tzinfo=UTC).timestamp() * 1000) for day in (14, 16))
    columns = ("topic", "physical_offset", "key")
    report = export(
        store.path, tmp_path / "out", layout,
        topics=("payments", "orders"), begin_ms=begin, end_ms=end, columns=columns,
    )  # fmt: skip
    table = read_table(tmp_path / "out", layout)
    expected = [
        (message.topic, message.physical_offset, (message.keys or "").split()[0])
        for message in store.messages
        if message.topic in ("payments", "orders") and begin <= message.store_timestamp <= end
    ]
    assert table.schema.names == list(columns)
    assert sorted(zip(*table.to_pydict().values(), strict=True)) == sorted(expected)
    assert report.rows == len(expected) < len(store.messages) / 3


def test_a_table_may_lack_all_columns_by_which_rows_are_sorted(
    golden: Golden, tmp_path: Path
) -> None:
    report = export(golden("orders").path, tmp_path / "out", columns=("queue_id", "body"))
    assert len(read_table(tmp_path / "out", "parquet")) == report.rows == 19622


def test_several_stores_go_into_one_table(golden: Golden, tmp_path: Path) -> None:
    stores = [golden("orders"), golden("basic")]
    report = export([s.path for s in stores], tmp_path / "out", names=["shop", "test"])
    table = read_table(tmp_path / "out", "parquet")
    for store, name in zip(stores, ("shop", "test"), strict=True):
        of_store = table.filter(pc.field("store") == name)
        assert offsets(of_store) == [message.physical_offset for message in store.messages]
    assert report.rows == len(table)


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
def test_bodies_that_cannot_be_decompressed_are_exported_as_stored_and_reported(
    golden: Golden, tmp_path: Path, layout: str
) -> None:
    store = golden("tricky")
    report = export(store.path, tmp_path / "out", layout)
    table = read_table(tmp_path / "out", layout)
    assert report.rows == len(table) == len(store.messages)
    bad = [lost.physical_offset for lost in report.damage]
    assert bad
    stored = read(store.path, ["physical_offset", "body"], decompressed=False).to_pylist()
    bodies = {row["physical_offset"]: row["body"] for row in stored}
    rows = table.select(["physical_offset", "body"]).to_pylist()
    found = {row["physical_offset"]: row["body"] for row in rows}
    assert {at: found[at] for at in bad} == {at: bodies[at] for at in bad}


def test_a_store_of_no_message_makes_a_table_that_can_grow(golden: Golden, tmp_path: Path) -> None:
    source, store = golden("orders").path, tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    (store / "commitlog" / f"{0:020d}").write_bytes(bytes(1 << 20))
    assert export(store, tmp_path / "out").rows == 0
    grow_to(source, store, 700_000)
    assert export(store, tmp_path / "out", incremental=True).rows > 1000


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"columns": ("topic", "colour")}, "columns: no column colour"),
        ({"columns": ("topic", "topic")}, "named twice"),
        ({"partition_by": ("queue",)}, "partition_by queue: must be one of topic, real_topic"),
        ({"partition_by": ("day", "hour")}, "only one of day and hour"),
        ({"begin_ms": 2, "end_ms": 1}, "begin_ms is later than end_ms"),
    ],
)
def test_a_request_that_cannot_be_right_is_refused(
    golden: Golden, tmp_path: Path, request_: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        export(golden("orders").path, tmp_path / "out", **request_)  # type: ignore[arg-type]


def test_a_place_that_is_no_table_is_refused(golden: Golden, tmp_path: Path) -> None:
    path = golden("orders").path
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("hello")
    with pytest.raises(UsageError, match="not empty"):
        export(path, tmp_path / "full")
    with pytest.raises(UsageError, match="is a file"):
        export(path, tmp_path / "full" / "letter.txt")
    with pytest.raises(UsageError, match="conditional writes are not supported there"):
        open_table("hdfs://name/table", "parquet")
    with pytest.raises(StoreNotFoundError, match="not a RocketMQ store"):
        export(tmp_path / "full", tmp_path / "out")
    export(path, tmp_path / "out")
    with pytest.raises(UsageError, match="pass incremental to add"):
        export(path, tmp_path / "out")


def test_iceberg_partitions_need_their_columns(golden: Golden, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs the column store_timestamp"):
        export(
            golden("orders").path, tmp_path / "out", "iceberg",
            columns=("topic",), partition_by=("day",),
        )  # fmt: skip


def lose_files(store: Path) -> None:
    expire(store, 2)


def cut_a_file(store: Path) -> None:
    os.truncate(sorted((store / "commitlog").iterdir())[1], 1000)


@pytest.mark.parametrize(
    ("harm", "error", "said"),
    [
        (lose_files, StoreNotFoundError, "no longer exists"),
        (cut_a_file, StoreChangedError, "was longer when the job began"),
    ],
)
def test_a_store_that_changes_under_the_job_is_one_line(
    golden: Golden,
    tmp_path: Path,
    harm: Callable[[Path], None],
    error: type[Exception],
    said: str,
) -> None:
    store = tmp_path / "store"
    grow_to(golden("orders").path, store, 3_000_000)

    def change(phase: str, done: int, total: int) -> None:
        if phase == "export" and done < 400_000:
            harm(store)

    with pytest.raises(error, match=said) as raised:
        export(store, tmp_path / "out", progress=change)
    assert len(str(raised.value).splitlines()) == 1
    assert list((tmp_path / "out").iterdir()) == []


def test_a_second_export_into_a_table_is_refused(golden: Golden, tmp_path: Path) -> None:
    def export_again(phase: str, done: int, total: int) -> None:
        if phase == "written":
            with pytest.raises(StoreLockedError, match="another export is writing here"):
                export(golden("basic").path, tmp_path / "out")

    assert export(golden("basic").path, tmp_path / "out", progress=export_again).rows == 5000


def test_a_store_on_another_file_system(golden: Golden, tmp_path: Path) -> None:
    """Uses fsspec's files in memory. S3 and others use the same code."""
    store = golden("basic")
    files = fsspec.filesystem("memory")
    for path in sorted((store.path / "commitlog").iterdir()):
        files.pipe(f"/broker/store/commitlog/{path.name}", path.read_bytes())
    report = export_sources(
        open_stores(["memory://broker/store"], ["shop"]),
        open_table(str(tmp_path / "out"), "parquet"),
        ExportRequest(),
        lambda size: SerialRunner(),
        ExportSettings(split_bytes=20_000),
    )
    expected = [message.physical_offset for message in store.messages]
    assert offsets(read_table(tmp_path / "out", "parquet")) == expected
    assert list(report.stores) == ["shop"]


def test_polars_has_the_topics_of_a_partitioned_delta_table(golden: Golden, tmp_path: Path) -> None:
    """Polars takes the topics from paths, not from Delta's log."""
    polars = pytest.importorskip("polars")
    export(golden("basic").path, tmp_path / "out", "delta", partition_by=("topic", "day"))
    found = polars.scan_delta(str(tmp_path / "out")).select("topic", "physical_offset").collect()
    stored = sorted((m.topic, m.physical_offset) for m in golden("basic").messages)
    assert sorted(found.rows()) == stored
