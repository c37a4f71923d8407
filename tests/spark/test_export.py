"""Exports whose tasks run on Spark: the same table, and a one-line error for failures in a worker."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from reput.errors import CorruptMessageError, StoreNotFoundError
from reput.spark import export
from reput.spark.runner import SparkRunner, prepared_runner
from reput.wings.lakes.driver import export_sources
from reput.wings.lakes.planning import open_stores
from reput.wings.lakes.request import ExportRequest, ExportSettings
from reput.wings.lakes.tables.opening import open_table
from reput.wings.lakes.task import warm_up
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import expire, grow_to, offsets, read_table

pytestmark = pytest.mark.slow

Golden = Callable[[str], GoldenStore]


def test_several_stores_in_parallel(spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    stores = [golden("orders"), golden("basic")]
    request = ExportRequest(partition_by=("topic", "day"), json_body="infer")
    report = export(
        spark, [store.path for store in stores], tmp_path / "out", "delta", request,
        names=["shop", "test"], split_size=400_000,
    )  # fmt: skip
    rows = read_table(tmp_path / "out", "delta")
    rejects = read_table(tmp_path / "out", "delta", rejects=True)
    expected = [m.physical_offset for store in stores for m in store.messages]
    assert sorted([*offsets(rows), *offsets(rejects)]) == sorted(expected)
    assert (report.rows, report.rejects) == (len(rows), len(rejects))


@pytest.mark.spark_min
def test_spark_reads_what_was_written(spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    store = golden("orders")
    request = ExportRequest(partition_by=("topic", "day"))
    export(spark, store.path, tmp_path / "out", request=request)
    frame = spark.read.parquet(str(tmp_path / "out"))
    counts = {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()}
    assert counts == {
        topic: sum(message.topic == topic for message in store.messages)
        for topic in {message.topic for message in store.messages}
    }
    (found,) = frame.where("key = 'order-104918' AND topic = 'payments'").collect()
    assert found["properties"]["KEYS"].split()[0] == "order-104918"


def test_it_goes_on_and_a_file_that_went_is_one_line(
    spark: SparkSession, golden: Golden, tmp_path: Path
) -> None:
    source, store, out = golden("orders"), tmp_path / "store", tmp_path / "out"
    grow_to(source.path, store, 2_000_000)
    export(spark, store, out, incremental=True)
    before = offsets(read_table(out, "parquet"))
    grow_to(source.path, store, 1 << 40)

    def runner_that_comes_late(size: int) -> SparkRunner:
        expire(store, 5)  # the log was already read
        return prepared_runner(spark, warm_up)

    table = open_table(str(out), "parquet")
    with pytest.raises(StoreNotFoundError, match="no longer exists") as raised:
        export_sources(
            open_stores([str(store)]),
            table,
            ExportRequest(),
            runner_that_comes_late,
            ExportSettings(incremental=True),
        )
    assert len(str(raised.value).splitlines()) == 1
    assert offsets(read_table(out, "parquet")) == before
    grow_to(source.path, store, 1 << 40)
    export(spark, store, out, incremental=True)
    expected = [message.physical_offset for message in source.messages]
    assert offsets(read_table(out, "parquet")) == expected


def test_damage_in_a_worker_is_one_line(
    spark: SparkSession, golden: Golden, tmp_path: Path
) -> None:
    source = golden("orders")
    store = copy_store(source.path, tmp_path / "store")
    file = store / "commitlog" / f"{1 << 20:020d}"
    hit = next(m for m in source.messages if m.physical_offset > (1 << 20) + 1000)
    data = bytearray(file.read_bytes())
    at = hit.physical_offset - (1 << 20)
    data[at : at + 8] = bytes(8)
    file.write_bytes(data)
    with pytest.raises(CorruptMessageError, match=f"offset {hit.physical_offset}: ") as raised:
        export(spark, store, tmp_path / "out", request=ExportRequest(on_corrupt="fail"))
    assert len(str(raised.value).splitlines()) == 1
    report = export(spark, store, tmp_path / "out")
    assert [lost.physical_offset for lost in report.damage] == [hit.physical_offset]
    assert report.rows == len(source.messages) - 1
