"""Five rounds of drift in JSON bodies, read by DuckDB, Polars and Spark.

pyarrow, pyiceberg and deltalake read the same rounds, value by value, in `test_json_evolution`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.lakes.exporting import FORMATS, GrowingStore, export, iceberg_table
from tests.lakes.test_compaction import compact
from tests.lakes.test_json_evolution import ROUNDS

pytestmark = pytest.mark.slow

Found = tuple[Any, ...]
"""Number of rows, sum of the field `id`, and numbers of rows with the fields `deep` and `late`."""


def expected(rounds: int, is_wide: bool) -> Found:
    bodies = [body for each in ROUNDS[:rounds] for body in each]
    ids = [body["id"] for body in bodies if is_wide or isinstance(body["id"], int)]
    return (
        len(bodies), sum(ids), sum("deep" in body for body in bodies),
        sum("late" in body for body in bodies),
    )  # fmt: skip


def drifted(folder: Path, layout: str, rounds: int) -> Path:
    store, out = GrowingStore(folder / "store"), folder / "out"
    for bodies in ROUNDS[:rounds]:
        store.add(bodies)
        export(
            store.path, out, layout, incremental=True,
            json_body="infer", json_timestamps=True, json_mode="permissive",
        )  # fmt: skip
    return out


def files_of(out: Path, layout: str) -> list[str]:
    """Return the current data files of the table."""
    if layout == "iceberg":
        paths = iceberg_table(out).inspect.files()["file_path"].to_pylist()
        return [path.removeprefix("file://") for path in paths]
    if layout == "delta":
        from deltalake import DeltaTable

        return list(DeltaTable(out).file_uris())
    return sorted(str(path) for path in out.rglob("*.parquet"))


def by_duckdb(out: Path, layout: str, has_late: bool) -> Found:
    late = "count(json.late)" if has_late else "0"
    files = files_of(out, layout)
    with duckdb.connect() as connection:
        table = connection.read_parquet(files, union_by_name=True)
        (row,) = table.aggregate(f"count(*), sum(json.id), count(json.deep), {late}").fetchall()
    return row


def by_polars(out: Path, layout: str, has_late: bool) -> Found:
    # Imported here, because it takes a second in each process that collects tests.
    import polars as pl

    if layout == "iceberg":
        frame = pl.scan_iceberg(iceberg_table(out)).collect()
    elif layout == "delta":
        frame = pl.read_delta(str(out))
    else:
        frames = [pl.read_parquet(path) for path in files_of(out, layout)]
        frame = pl.concat(frames, how="diagonal_relaxed")
    json = frame["json"].struct
    late = json.field("late").count() if has_late else 0
    return len(frame), json.field("id").sum(), json.field("deep").count(), late


def by_spark(spark: SparkSession) -> Callable[[Path, str, bool], Found]:
    def read(out: Path, layout: str, has_late: bool) -> Found:
        frame = spark.read.option("mergeSchema", "true").parquet(*files_of(out, layout))
        late = "count(json.late)" if has_late else "0"
        (row,) = frame.selectExpr(
            "count(*)", "sum(json.id)", "count(json.deep)", late
        ).collect()  # fmt: skip
        return tuple(row)

    return read


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("rounds", [4, 5])
def test_drifted_tables_are_read_by_other_engines(
    spark: SparkSession, tmp_path: Path, layout: str, rounds: int
) -> None:
    out = drifted(tmp_path, layout, rounds)
    engines: dict[str, Any] = {"duckdb": by_duckdb, "polars": by_polars, "spark": by_spark(spark)}
    has_late = rounds == 5
    # Only a Parquet table gets files with a wider column. Other tables keep int64, without the values that do not fit.
    is_wide = layout == "parquet" and has_late
    wanted = expected(rounds, is_wide)
    if is_wide:  # documented behaviour
        with pytest.raises((PySparkException, Py4JError), match="CANNOT_MERGE_SCHEMAS"):
            engines["spark"](out, layout, has_late)
    for name, read in engines.items():
        if not (is_wide and name == "spark"):
            assert read(out, layout, has_late) == wanted, name
    compact(out, layout)
    for name, read in engines.items():
        assert read(out, layout, has_late) == wanted, f"{name}, compacted"
