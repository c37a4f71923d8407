"""DataFrames with filters: their rows, and the part of the log that Spark reads for them, however they are used."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reput.engine.messages.schema import COLUMNS
from reput.spark.options import read_options
from reput.spark.reader import LogReader
from tests.golden.stores import GoldenStore
from tests.spark.loading import load
from tests.spark.streams import run
from tests.tables.reading import read, rows_of

pytestmark = pytest.mark.slow

Golden = Callable[[str], GoldenStore]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SCHEMA = "topic string, queue_id int, physical_offset long"
ORDERS, PAYMENTS, ALL = 5270, 5000, 19622
LOG_BYTES = 7 << 20


@contextmanager
def spark_pushes_filters(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    try:
        yield
    finally:
        spark.conf.unset(PUSHDOWN)


@pytest.fixture(params=[False, True], ids=["not pushing", "pushing"])
def messages(
    tables: SparkSession, golden: Golden, request: pytest.FixtureRequest
) -> Iterator[DataFrame]:
    """Return all messages, in a session that pushes filters into sources, and in one that does not."""
    loaded = load(tables, golden("orders").path, SCHEMA)
    if request.param:
        with spark_pushes_filters(tables):
            yield loaded
    else:
        yield loaded


def of(frame: DataFrame, topic: str) -> DataFrame:
    return frame.where(F.col("topic") == topic)


def test_a_frame_is_used_again_and_again(messages: DataFrame) -> None:
    assert messages.count() == ALL
    assert of(messages, "orders").count() == ORDERS
    assert messages.count() == ALL
    orders, payments = of(messages, "orders"), of(messages, "payments")
    orders.explain()
    assert payments.count() == PAYMENTS
    assert orders.count() == ORDERS
    assert payments.count() == PAYMENTS


def test_a_frame_is_joined_with_itself(messages: DataFrame) -> None:
    orders, payments = (
        of(messages, topic).groupBy("queue_id").agg(F.count("*").alias(topic))
        for topic in ("orders", "payments")
    )
    rows = orders.join(payments, "queue_id").collect()
    assert sum(row["orders"] for row in rows) == ORDERS
    assert sum(row["payments"] for row in rows) == PAYMENTS
    shares = of(messages, "orders").crossJoin(messages.agg(F.count("*").alias("all")))
    assert shares.groupBy("all").count().collect() == [(ALL, ORDERS)]


def test_a_frame_is_put_together_with_itself(messages: DataFrame) -> None:
    both = of(messages, "orders").unionAll(of(messages, "payments"))
    assert {(row["topic"], row["count"]) for row in both.groupBy("topic").count().collect()} == {
        ("orders", ORDERS), ("payments", PAYMENTS),
    }  # fmt: skip


def test_a_frame_is_cached(messages: DataFrame) -> None:
    cached = of(messages, "orders").cache()
    try:
        assert cached.count() == ORDERS
        assert messages.count() == ALL
        assert of(messages, "payments").count() == PAYMENTS
        assert cached.count() == ORDERS
    finally:
        cached.unpersist()


@pytest.mark.parametrize("made_in_sql", [False, True])
def test_a_frame_is_a_view(messages: DataFrame, golden: Golden, made_in_sql: bool) -> None:
    spark = messages.sparkSession
    if made_in_sql:
        place = golden("orders").path
        spark.sql(
            f"CREATE OR REPLACE TEMP VIEW seen ({SCHEMA}) USING rocketmq OPTIONS (path '{place}')"
        )
    else:
        messages.createOrReplaceTempView("seen")
    count = "SELECT count(*) FROM seen WHERE topic"
    found = spark.sql(
        f"SELECT ({count} = 'orders') a, ({count} = 'payments') b, (SELECT count(*) FROM seen) c"
    )
    assert found.collect() == [(ORDERS, PAYMENTS, ALL)]
    assert spark.sql(f"{count} = 'orders'").collect() == [(ORDERS,)]
    assert spark.table("seen").count() == ALL


def test_registering_leaves_other_sources_as_they_were(tables: SparkSession) -> None:
    """Spark has one setting for all Python sources that push filters. Registering this source leaves it off."""
    assert tables.conf.get(PUSHDOWN) == "false"


QUERIES = (
    "topic = 'payments'",
    "topic IN ('payments', 'shipments') AND queue_id <> 1 AND tags IS NOT NULL",
    "store_timestamp >= timestamp'2026-10-14 00:00:00' AND store_timestamp < '2026-10-15'",
    "physical_offset BETWEEN 100000 AND 2000000 AND tags LIKE 'auth%'",
    "unique_key = '{key}'",
    "topic = '{topic}' AND unique_key = '{key}'",
    "NOT topic = 'orders' AND body_crc_ok",
    "topic <=> 'orders' AND NOT queue_id IN (1, 2)",
    "size > 330 AND transaction = 'none' AND message_id LIKE '%0'",
    "array_contains(keys, 'order-104918') OR queue_offset % 97 = 3",
    "topic = NULL",
)


@pytest.fixture(scope="module")
def everything(tables: SparkSession, golden: Golden) -> Iterator[DataFrame]:
    """Return the messages as rows of Spark."""
    frame = tables.createDataFrame(read(golden("orders").path)).cache()
    yield frame
    frame.unpersist()


@pytest.mark.parametrize("query", QUERIES)
def test_filters_keep_what_spark_alone_would_keep(
    tables: SparkSession, everything: DataFrame, golden: Golden, query: str
) -> None:
    row = everything.where("topic = 'payments'").first()
    assert row is not None
    query = query.format(key=row["unique_key"], topic=row["topic"])
    rows = everything.where(query).select("physical_offset").toArrow()
    expected = sorted(rows["physical_offset"].to_pylist())
    for push in ("true", "false"):
        with spark_pushes_filters(tables):
            loaded = load(tables, golden("orders").path, pushFilters=push)
            found = loaded.where(query).select("physical_offset").toArrow()
        assert sorted(found["physical_offset"].to_pylist()) == expected


@pytest.mark.spark_min
def test_filters_that_are_pushed_down_leave_the_plan(
    tables: SparkSession, golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = load(tables, golden("orders").path, pushFilters="true")
    with spark_pushes_filters(tables):
        frame.where("queue_id > 1 AND topic = 'payments'").explain()
    printed = capsys.readouterr().out
    assert "+- BatchScan rocketmq" in printed
    assert "Filter (" not in printed


def test_filters_are_not_pushed_into_a_session_that_does_not_allow_it(
    tables: SparkSession, golden: Golden
) -> None:
    frame = load(tables, golden("orders").path, SCHEMA, pushFilters="true")
    with pytest.raises(PySparkException, match=PUSHDOWN):
        of(frame, "orders").count()


def matching(store: Path, keeps: Callable[[dict[str, Any]], bool]) -> list[int]:
    names = ["topic", "queue_id", "keys", "unique_key", "store_timestamp", "physical_offset"]
    return [row["physical_offset"] for row in rows_of(read(store, names)) if keeps(row)]


def selections(store: Path) -> list[tuple[dict[str, str], Callable[[dict[str, Any]], bool]]]:
    rows = rows_of(read(store, ["topic", "keys", "unique_key", "store_timestamp"]))
    one, other = [row for row in rows if row["topic"] == "payments"][100:2000:1500]
    a_key, unique, stamp_ms = one["keys"][0], other["unique_key"], one["store_timestamp"] // 1000
    other_keys = [a_key, other["keys"][0], "none has this"]
    return [
        ({"topic": "payments"}, lambda r: r["topic"] == "payments"),
        ({"topic": '["payments", "shipments"]', "queueId": "[0, 3]"},
         lambda r: r["topic"] in ("payments", "shipments") and r["queue_id"] in (0, 3)),
        ({"queueId": "2"}, lambda r: r["queue_id"] == 2),
        ({"key": a_key}, lambda r: a_key in r["keys"]),
        ({"topic": "payments", "key": str(other_keys).replace("'", '"')},
         lambda r: r["topic"] == "payments" and bool(set(other_keys) & set(r["keys"]))),
        ({"uniqueKey": unique}, lambda r: r["unique_key"] == unique),
        ({"topic": "orders", "uniqueKey": unique}, lambda r: False),
        ({"key": a_key, "uniqueKey": one["unique_key"]},
         lambda r: r["unique_key"] == one["unique_key"]),
        ({"topic": "orders", "endingTimestamp": str(stamp_ms)},
         lambda r: r["topic"] == "orders" and r["store_timestamp"] <= stamp_ms * 1000),
        ({"topic": "no such topic"}, lambda r: False),
    ]  # fmt: skip


def reader_of(path: Path, **options: str) -> LogReader:
    """Return the reader that Spark creates in its own process."""
    return LogReader(read_options({"path": str(path), **options}), COLUMNS)


@pytest.mark.parametrize("number", range(10))
def test_options_select_what_brute_force_selects(golden: Golden, number: int) -> None:
    store = golden("orders").path
    options, keeps = selections(store)[number]
    expected = matching(store, keeps)
    assert (number in (6, 9)) == (not expected)
    for use_indexes in ("true", "false"):
        reader = reader_of(store, useIndexes=use_indexes, **options)
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        found = [row for batch in batches for row in batch["physical_offset"].to_pylist()]
        assert sorted(found) == expected


def test_a_selection_is_part_of_the_frame(tables: SparkSession, golden: Golden) -> None:
    """Filters of queries are added to it."""
    orders = load(tables, golden("orders").path, SCHEMA, topic="orders")
    first = orders.where("queue_id = 0").count()
    assert 0 < first < ORDERS
    assert orders.count() == ORDERS
    assert of(orders, "payments").count() == 0
    assert orders.where("queue_id = 0").count() == first


def test_a_stream_selects_as_a_batch_does(
    tables: SparkSession, golden: Golden, tmp_path: Path
) -> None:
    store = golden("orders").path
    stream = (
        tables.readStream.format("rocketmq")
        .schema("physical_offset long")
        .options(topic="payments", queueId="1", startingOffsets="earliest")
        .load(str(store))
    )
    sink = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "mark"))
    run(lambda: sink.trigger(availableNow=True).start(str(tmp_path / "table")))
    found = tables.read.parquet(str(tmp_path / "table")).toArrow()["physical_offset"].to_pylist()
    expected = matching(store, lambda row: row["topic"] == "payments" and row["queue_id"] == 1)
    assert sorted(found) == expected


def told(path: Path, capsys: pytest.CaptureFixture[str], **options: str) -> list[str]:
    """Return the lines in which a reader reports its plan."""
    assert reader_of(path, verbose="true", **options).partitions()
    return capsys.readouterr().err.splitlines()


def test_options_decide_what_is_read(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    store = golden("orders").path
    (row,) = rows_of(read(store, ["keys", "unique_key"]).slice(9000, 1))
    through = f"reput: {store}: topic found through the ConsumeQueues, where these are complete"
    assert through in told(store, capsys, topic="payments")
    assert through not in told(store, capsys, topic="payments", useIndexes="false")
    by_unique = told(store, capsys, uniqueKey=row["unique_key"])
    by_key = told(store, capsys, key=row["keys"][0])
    for printed, column in ((by_unique, "unique_key"), (by_key, "keys")):
        (line,) = [line for line in printed if f"{column} found through the index" in line]
        # Little is scanned: only the end of the log, whose messages are not indexed yet.
        assert int(line.split(": ")[-1].split()[0]) < 1 << 20 < LOG_BYTES / 5
    until = datetime(2026, 10, 12, 6, tzinfo=UTC)
    by_time = told(store, capsys, endingTimestamp=str(int(until.timestamp() * 1000)))
    assert f"reput: {store}: 6 of 7 files skipped, excluded by store_timestamp" in by_time
