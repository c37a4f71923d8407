"""Tables in buckets as other programs read them: Polars, DuckDB, deltalake, pyiceberg, Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reput.files.bucket import Bucket, object_settings
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import grow_to
from tests.remote.lake_buckets import Lake
from tests.remote.s3_server import s3_process, upload_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("obstore")
pytestmark = pytest.mark.slow

Golden = Callable[[str], GoldenStore]


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with s3_process() as options:
        upload_whole(tmp_path_factory.mktemp("empty"), "readers", options)
        yield options


@pytest.fixture(params=["parquet", "delta", "iceberg"])
def lake(
    request: pytest.FixtureRequest, golden: Golden, s3: dict[str, str], tmp_path: Path
) -> Lake:
    """A table of two exports, partitioned by topic."""
    found = Lake(f"s3://readers/{request.param}/messages", s3, request.param, tmp_path / "c.db")
    for end in (1_000_000, 1 << 40):
        grow_to(golden("orders").path, tmp_path / "store", end)
        found.export(tmp_path / "store", incremental=True, partition_by=("topic",))
    return found


@pytest.fixture
def expected(golden: Golden) -> list[tuple[str, int]]:
    return sorted((m.topic, m.physical_offset) for m in golden("orders").messages)


def test_every_reader_has_every_row_once(
    lake: Lake, expected: list[tuple[str, int]], tmp_path: Path, spark: SparkSession
) -> None:
    found = {"own": lake.rows().select(["topic", "physical_offset"])}
    found |= _with_polars(lake)
    if lake.layout == "parquet":
        found["duckdb"] = _with_duckdb(lake)
        found["spark"] = _with_spark(lake, tmp_path / "copy", spark)
    for reader, table in found.items():
        columns = [table[name].to_pylist() for name in ("topic", "physical_offset")]
        assert sorted(zip(*columns, strict=True)) == expected, reader


def _with_polars(lake: Lake) -> dict[str, Any]:
    import polars as pl

    settings = object_settings(lake.url, lake.options)
    options = {**{f"aws_{name}": value for name, value in settings.items() if name != "allow_http"}}
    options["aws_allow_http"] = "true"
    if lake.layout == "parquet":
        frame = pl.scan_parquet(f"{lake.url}/", storage_options=options, hive_partitioning=True)
    elif lake.layout == "delta":
        frame = pl.scan_delta(lake.url, storage_options=settings)
    else:
        frame = pl.scan_iceberg(lake.iceberg_table(), reader_override="pyiceberg")
    return {"polars": frame.select("topic", "physical_offset").collect().to_arrow()}


def _with_duckdb(lake: Lake) -> Any:
    """Read through pyarrow's file system: DuckDB's own is an extension that must be downloaded."""
    import duckdb
    import pyarrow.dataset as ds

    from reput.files.file_systems import resolve

    system, folder = resolve(lake.url, lake.options)
    messages = ds.dataset(folder, filesystem=system.arrow, partitioning="hive")
    with duckdb.connect() as connection:
        connection.register("messages", messages)
        return connection.sql("SELECT topic, physical_offset FROM messages").to_arrow_table()


def _with_spark(lake: Lake, copy: Path, spark: SparkSession) -> Any:
    """Read a copy of the objects: Hadoop's file system for S3 is not part of Spark."""
    bucket = Bucket(lake.url, lake.options)
    for one in bucket.list():
        (copy / one.name).parent.mkdir(parents=True, exist_ok=True)
        (copy / one.name).write_bytes(bucket.get(one.name).data)
    return spark.read.parquet(str(copy)).select("topic", "physical_offset").toArrow()
