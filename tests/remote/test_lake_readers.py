"""Tables in buckets as other programs read them: Polars, DuckDB, deltalake, pyiceberg, Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from reput.io.bucket import Bucket, object_settings
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import grow_to
from tests.remote.lake_buckets import Lake
from tests.remote.s3_server import s3_process, upload_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("obstore")
pytestmark = pytest.mark.slow

Golden = Callable[[str], GoldenStore]
_READERS = Path(__file__).parents[2] / "build/readers"
_REQUIRED = os.environ.get("REPUT_READERS") == "required"


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
    found["spark"] = _with_spark(lake, tmp_path / "copy", spark)
    if lake.layout == "parquet":
        found["duckdb, by pyarrow"] = _with_duckdb(lake)
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

    from reput.io.file_systems import resolve

    system, folder = resolve(lake.url, lake.options)
    messages = ds.dataset(folder, filesystem=system.arrow, partitioning="hive")
    with duckdb.connect() as connection:
        connection.register("messages", messages)
        return connection.sql("SELECT topic, physical_offset FROM messages").to_arrow_table()


def _with_spark(lake: Lake, copy: Path, spark: SparkSession) -> Any:
    """Copy the data files of the table's current version to a local folder, and read them with Spark.

    Spark alone reads neither S3 nor Delta Lake nor Iceberg, and no Python package has the jars for them.
    """
    table, folder = f"{lake.url}/", Bucket(lake.url, lake.options)
    if lake.layout == "delta":
        names = [each.removeprefix(table) for each in lake.delta().file_uris()]
    elif lake.layout == "iceberg":
        tasks = lake.iceberg_table().scan().plan_files()
        names = [task.file.file_path.removeprefix(table) for task in tasks]
    else:
        names = [one.name for one in folder.list()]
    for name in names:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(folder.get(name).data)
    # Iceberg's folders are not partitions: the files have all columns.
    reader = spark.read.option("recursiveFileLookup", lake.layout == "iceberg")
    return reader.parquet(str(copy)).select("topic", "physical_offset").toArrow()


@pytest.mark.skipif(not _READERS.is_dir() and not _REQUIRED, reason="make test-lakes installs it")
def test_duckdb_reads_what_pyarrow_reads(lake: Lake, tmp_path: Path) -> None:
    """DuckDB reads the bucket, the Delta log and Iceberg's metadata with its own code."""
    url, output = lake.url, tmp_path / "rows.parquet"
    if lake.layout == "iceberg":
        url = lake.iceberg_table().metadata_location
    subprocess.run(
        [sys.executable, "-m", "tests.remote.duckdb_reader", lake.layout, url, json.dumps(lake.options), str(output)],
        env=os.environ | {"PYTHONPATH": str(_READERS)}, check=True, timeout=300,
    )  # fmt: skip
    found = pq.read_table(output).sort_by("physical_offset")
    own = lake.rows().select(found.column_names)
    assert found.num_rows > 0
    for name in found.column_names:
        assert _plain(found[name]) == _plain(own[name]), name


def _plain(column: Any) -> list[Any]:
    """Return the values of a column. Times become Python's UTC, because each reader has its own name for UTC."""
    values = column.to_pylist()
    return [
        value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value
        for value in values
    ]
