"""The data source in Spark: the same rows as without Spark, and one clear line for each error."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, LessThan
from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

from reput.engine.messages.schema import COLUMNS, DAMAGE_COLUMNS
from reput.engine.tables.arrow import to_arrow
from reput.errors import StoreChangedError, StoreNotFoundError, UsageError
from reput.spark import reader, session
from reput.spark.options import read_options
from reput.spark.reader import FilteredLogReader, LogReader
from reput.spark.source import RocketMQDataSource, arrow_schema, register
from tests.golden.stores import GoldenStore
from tests.oracle.forge import flip_bit, write_store
from tests.oracle.random_logs import LogOptions, random_log
from tests.remote.s3_server import s3_server, upload
from tests.spark.loading import load
from tests.tables.reading import read, rows_of

Golden = Callable[[str], GoldenStore]


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows_of(table), key=lambda row: (row["store"], row["physical_offset"]))


def refused(frame: Callable[[], Any]) -> str:
    """Return the line with the reason, without Spark's own text."""
    with pytest.raises(PySparkException) as caught:
        frame()
    text = str(caught.value)
    assert "Traceback" not in text
    assert '.py"' not in text
    (line,) = [line for line in text.splitlines() if "reput.errors" in line]
    return line.partition("reput.errors.")[2]


@pytest.mark.spark_min
@pytest.mark.parametrize("name", ["basic", "tricky"])
def test_spark_has_the_rows_of_the_table(tables: SparkSession, golden: Golden, name: str) -> None:
    store = golden(name).path
    found = load(tables, store, onCorrupt="row", minPartitions="7").toArrow()
    assert found.schema.names == DAMAGE_COLUMNS.names
    assert found.schema.types == DAMAGE_COLUMNS.types
    assert sorted_rows(found) == sorted_rows(read(store, DAMAGE_COLUMNS.names, on_corrupt="row"))


@pytest.mark.slow
def test_a_schema_is_a_projection_and_paths_may_be_several(
    tables: SparkSession, golden: Golden
) -> None:
    paths = [str(golden(name).path) for name in ("basic", "timed")]
    frame = tables.read.format("rocketmq").schema("tags string, store string").load(paths)
    assert frame.columns == ["tags", "store"]
    counted = sorted(frame.groupBy("store").count().collect())
    assert counted == [(path, 5000) for path in sorted(paths)]


def test_a_machine_that_compiles_first_is_told(
    golden: Golden, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "start_compiling", lambda columns: True)
    reader_of(golden("basic").path).partitions()
    assert capsys.readouterr().err == (
        "reput: compiling kernels, once on this machine; the query waits for them\n"
    )
    monkeypatch.setattr(session, "start_compiling", lambda: True)
    session.begin_compiling()
    assert "reput: compiling kernels in the background" in capsys.readouterr().err
    monkeypatch.undo()
    reader_of(golden("basic").path).partitions()
    assert capsys.readouterr().err == "", "kernels are compiled before tests"


def test_names_of_columns_have_any_capitals(golden: Golden) -> None:
    columns = StructType(
        [StructField("Topic", StringType()), StructField("BODY_error", StringType())]
    )
    reader = LogReader(read_options({"path": str(golden("basic").path)}), arrow_schema(columns))
    (batch, *_) = reader.read(reader.partitions()[0])
    assert batch.schema.names == ["Topic", "BODY_error"]
    assert batch["Topic"][0].as_py() == golden("basic").messages[0].topic
    twice = StructType([StructField("topic", StringType()), StructField("TOPIC", StringType())])
    with pytest.raises(UsageError, match="named twice"):
        arrow_schema(twice)


def reader_of(path: Path, **options: str) -> FilteredLogReader:
    """Return the reader that Spark creates in its own process."""
    return FilteredLogReader(read_options({"path": str(path), **options}), COLUMNS)


@pytest.mark.slow
def test_the_readers_log_says_what_was_left_out(
    golden: Golden,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    store = golden("orders").path
    reader = reader_of(store, verbose="true")
    until = datetime(2026, 10, 12, 6, tzinfo=UTC)
    filters = [
        LessThan(("store_timestamp",), until),
        EqualTo(("topic",), "payments"),
        EqualTo(("properties", "a"), "b"),
    ]
    assert list(reader.pushFilters(filters)) == filters[2:]
    assert len(reader.partitions()) == 1
    printed = capsys.readouterr().err.splitlines()
    assert printed[:3] == [
        "reput: store_timestamp < 2026-10-12 06:00:00+00:00",
        "reput: topic = 'payments'",
        f"reput: {store}: 6 of 7 files skipped, excluded by store_timestamp",
    ]
    assert (
        printed[3]
        == f"reput: {store}: 6483472 of 6549067 bytes skipped, excluded by store_timestamp"
    )
    assert printed[4].startswith(f"reput: {store}: topic found through the ConsumeQueues")
    assert printed[5] == "reput: 1 ranges of 65595 bytes to look at, in 1 tasks"
    (partition,) = reader.partitions()
    capsys.readouterr()
    rows = sum(map(len, reader.read(partition)))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"reput: {store}: {store}/commitlog/")
    assert line.endswith(f" messages there, {rows:,} rows")


@pytest.mark.slow
def test_offsets_and_times_are_options_too(tables: SparkSession, golden: Golden) -> None:
    store = golden("orders").path
    table = read(store, ["physical_offset", "store_timestamp"])
    offsets = table["physical_offset"].to_pylist()
    micros = table["store_timestamp"].cast(pa.int64()).to_pylist()

    def count(**options: Any) -> int:
        return load(tables, store, "physical_offset long", **options).count()

    assert count(startingOffsets=offsets[100], endingOffsets=offsets[150]) == 50
    assert count(startingOffsets=f'{{"{store}": {offsets[-3]}}}', endingOffsets="latest") == 3
    middle_ms = micros[5000] // 1000
    expected = [
        stamp for stamp in micros if middle_ms * 1000 <= stamp <= (middle_ms + 60_000) * 1000
    ]
    assert count(startingTimestamp=middle_ms, endingTimestamp=middle_ms + 60_000) == len(expected)


WRONG_OPTIONS = [
    ({"color": "red"}, "UsageError: unknown option color; the options are path, "),
    ({"subscribe": "t"}, "UsageError: unknown option subscribe: use topic, "),
    (
        {"topics": "t"},
        "UsageError: unknown option topics; did you mean topic?; the options are path, ",
    ),
    (
        {"columns": "[1]"},
        "UsageError: columns must be names separated by commas, or a JSON list, not [1]",
    ),
    ({"columns": "topic,bodi"}, "UsageError: no column bodi; did you mean body?; the columns are"),
    (
        {"startingOffsets": "-1"},
        "UsageError: startingOffsets must be earliest, latest, a physical offset",
    ),
    ({"startingOffsets": "latest"}, "UsageError: startingOffsets: latest is for streams"),
    ({"endingOffsets": '{"/x": 5}'}, "UsageError: endingOffsets: no store /x; the stores are "),
    ({"startingTimestamp": "noon"}, "UsageError: startingTimestamp: 'noon' is not a time: "),
    ({"minPartitions": "0"}, "UsageError: minPartitions must be a number above 0, not 0"),
    ({"failOnDataLoss": "maybe"}, "UsageError: failOnDataLoss must be true or false, not maybe"),
    ({"onCorrupt": "cry"}, "UsageError: onCorrupt must be fail, skip or row, not cry"),
    ({"topic": ""}, "UsageError: topic must be a text or a JSON list of texts, not "),
    ({"key": "[1]"}, "UsageError: key must be a text or a JSON list of texts, not [1]"),
    ({"uniqueKey": "[x"}, "UsageError: uniqueKey must be a text or a JSON list of texts, not [x"),
    (
        {"queueId": "-1"},
        "UsageError: queueId must be a number from 0 on, or a JSON list of such numbers, not -1",
    ),
]


@pytest.mark.parametrize(("options", "line"), WRONG_OPTIONS)
def test_a_wrong_option_is_one_clear_line(
    tables: SparkSession, golden: Golden, options: dict[str, str], line: str
) -> None:
    store = golden("basic").path
    assert refused(lambda: load(tables, store, **options).count()).startswith(line)


def test_times_and_patterns_are_spelled_as_in_the_command_line() -> None:
    options = read_options(
        {"path": "/s", "startingTimestamp": "2026-10-14T08:35:06", "endingTimestamp": "2026-10-14",
         "topic": "orders-*"}
    )  # fmt: skip
    assert options.starting_ms == 1_791_966_906_000
    assert options.ending_ms == 1_792_022_399_999
    (topics,) = options.selected
    assert topics.keeps(pa.array(["orders-1", "orders", "x-orders-1"])).tolist() == [
        True, False, False,
    ]  # fmt: skip
    assert read_options({"path": "/s", "startingTimestamp": "-5"}).starting_ms == -5
    assert read_options({"path": "/s", "startingTimestamp": "2h ago"}).starting_ms is not None


def test_what_is_wrong_is_reported_at_load(
    golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a given schema, Spark creates the source in `load()`, so errors of the source appear there."""
    store = golden("orders").path
    near = store.with_name(store.name + "s")
    with pytest.raises(StoreNotFoundError, match=rf"{near}: no such file .*; did you mean"):
        RocketMQDataSource({"path": str(near)})
    with pytest.raises(UsageError, match=r"unknown option topik; did you mean topic\?"):
        RocketMQDataSource({"path": str(store), "topik": "orders"})
    assert capsys.readouterr().err == ""
    RocketMQDataSource({"path": str(store), "topic": '["order", "payments"]'})
    printed = capsys.readouterr().err
    assert printed.startswith("reput: no queue of topic order; there are orders, ")
    assert printed.count("\n") == 1
    RocketMQDataSource({"path": str(store / "commitlog"), "topic": "orders"})
    RocketMQDataSource({"path": str(next((store / "commitlog").iterdir())), "topic": "order"})
    assert capsys.readouterr().err == "", "without queues the topics are unknown"


def test_columns_are_an_option(golden: Golden) -> None:
    store = str(golden("basic").path)
    source = RocketMQDataSource({"path": store, "columns": "Queue_ID, topic", "onCorrupt": "row"})
    assert source.schema().simpleString() == "struct<queue_id:int,topic:string>"
    source.reader(source.schema())
    assert RocketMQDataSource({"path": store, "columns": '["tags"]'}).schema().names == ["tags"]
    with pytest.raises(UsageError, match="columns: pass columns or a schema, not both"):
        source.reader(StructType([StructField("tags", StringType())]))


@pytest.mark.spark_min
@pytest.mark.slow
def test_relative_paths_begin_where_the_session_was_registered(
    spark: SparkSession, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's own processes run in other folders."""
    monkeypatch.chdir(golden("basic").path.parent)
    name = golden("basic").path.name
    register(spark)
    monkeypatch.chdir(tmp_path)
    found = load(spark, name, columns="store", endingOffsets=f'{{"{name}": 1000}}')
    assert found.first() == (str(golden("basic").path),)
    assert refused(lambda: load(spark, "nowhere")).startswith(
        f"StoreNotFoundError: {golden('basic').path.parent}/nowhere: no such file or folder"
    )


@pytest.mark.parametrize("paths", ['"store"', "[1]", "store", '{"a": 1}'])
def test_paths_are_a_list_of_texts(paths: str) -> None:
    with pytest.raises(UsageError, match="must be a JSON list of paths"):
        read_options({"paths": paths})


@pytest.mark.spark_min
@pytest.mark.slow
def test_wrong_columns_and_paths_are_one_clear_line(tables: SparkSession, golden: Golden) -> None:
    store = golden("basic").path
    assert refused(lambda: load(tables, store, "topic string, paint int").count()).startswith(
        "UsageError: no column paint; the columns are store, topic"
    )
    assert refused(lambda: load(tables, store, "topic int").count()).startswith(
        "UsageError: column topic has type string, not int"
    )
    assert refused(lambda: tables.read.format("rocketmq").load().count()).startswith(
        "UsageError: path is missing"
    )
    assert refused(lambda: load(tables, "").count()).startswith("UsageError: path is missing")
    twice = "topic string, queue_id int, topic string"
    assert refused(lambda: load(tables, store, twice).count()).startswith(
        "UsageError: a column is named twice"
    )
    assert refused(
        lambda: load(tables, store, "topic string").write.format("rocketmq").mode("append").save()
    ).startswith("UsageError: rocketmq can only be read")
    assert refused(
        lambda: (
            load(tables, store, "topic string")
            .write.format("rocketmq")
            .mode("append")
            .save("/no/such/place")
        )
    ).startswith("UsageError: rocketmq can only be read")
    assert refused(lambda: load(tables, "/no/such/store")).startswith(
        "StoreNotFoundError: /no/such/store: no such file or folder"
    )


def test_spark_sql_reads_a_temporary_view(tables: SparkSession, golden: Golden) -> None:
    path = golden("orders").path
    rows = read(path).num_rows
    tables.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW stored USING rocketmq OPTIONS (path 'file:{path}')"
    )
    assert tables.sql("SELECT count(*) AS n FROM stored").collect()[0].n == rows
    tables.sql("DROP VIEW stored")
    for ending in (f"OPTIONS (path '{path}')", f"LOCATION '{path}'"):
        create = partial(tables.sql, f"CREATE TABLE t USING rocketmq {ending}")
        assert refused(create).startswith("UsageError: CREATE TABLE does not work with rocketmq")


@pytest.mark.slow
def test_a_schema_that_would_be_answered_wrongly_is_refused(
    tables: SparkSession, golden: Golden
) -> None:
    def read_as(*fields: StructField) -> str:
        reader = tables.read.format("rocketmq").schema(StructType(list(fields)))
        return refused(lambda: reader.load(str(golden("basic").path)).count())

    assert read_as().startswith("UsageError: the schema must have at least one column")
    text = StringType()
    for name, kind, nullable in (
        ("unique_key", text, False),
        ("keys", ArrayType(text, containsNull=False), True),
        ("properties", MapType(text, text, valueContainsNull=False), True),
    ):
        assert read_as(StructField(name, kind, nullable)).startswith(
            f"UsageError: column {name}: its type, and all types in it, must be nullable"
        )


@pytest.mark.slow
def test_damage_fails_is_skipped_or_is_a_row(tables: SparkSession, tmp_path: Path) -> None:
    log = random_log(2, LogOptions(records=90))
    files = flip_bit(log.files, log.offsets[20] + 5, 0)
    store = write_store(tmp_path / "store", [file for file in files if file[0] != 8192])
    schema = "physical_offset long, size long, corrupt_reason string"
    found = load(tables, store, schema, onCorrupt="row", splitBytes="1000", decompress="false")
    damage = found.where("corrupt_reason IS NOT NULL").sort("physical_offset").collect()
    lost = [(row.physical_offset, row.size) for row in damage]
    assert lost == [(log.offsets[20], log.offsets[21] - log.offsets[20]), (8192, 4096)]
    good = load(tables, store, "topic string", onCorrupt="skip").count()
    assert good == len([at for at in log.offsets if not 8192 <= at < 12288]) - 1
    assert found.count() == good + 2
    nothing = load(tables, store, schema, onCorrupt="row", topic="nothing", startingTimestamp=0)
    assert [(row[0], row[1]) for row in nothing.sort("physical_offset").collect()] == lost
    message = refused(lambda: load(tables, store, "topic string").count())
    assert message.startswith("CorruptMessageError: ")
    assert "set onCorrupt to 'skip' or 'row'" in message


@pytest.mark.slow
def test_a_store_that_shrinks_under_a_job_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Normally the reader sets this limit in one of Spark's processes. Here it runs in the test's own process.
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)
    log = random_log(5, LogOptions(records=60))
    store = write_store(tmp_path / "store", log.files)
    reader = reader_of(store, decompress="false")
    planned = reader.partitions()
    first = store / "commitlog" / f"{0:020d}"
    first.write_bytes(first.read_bytes()[:1000])
    with pytest.raises(StoreChangedError, match="ends at 1000, but was longer when the job began"):
        list(reader.read(planned[0]))
    assert sys.tracebacklimit == 0
    first.unlink()
    with pytest.raises(StoreNotFoundError, match="no longer exists"):
        list(reader.read(planned[0]))
    lenient = reader_of(store, failOnDataLoss="false", decompress="false")
    (packed,) = planned
    found = [at for part in lenient.read(packed) for at in part["physical_offset"].to_pylist()]
    assert found == [at for at in log.offsets if at >= 4096]


@pytest.mark.slow
def test_executors_read_s3(tables: SparkSession, golden: Golden) -> None:
    store = golden("basic").path
    with s3_server() as options:
        upload(store, "cluster", options)
        found = load(
            tables,
            "s3://cluster/b1/store",
            "topic string, body binary",
            minPartitions="5",
            **options,
        ).toArrow()
    expected = read(store, ["topic", "body"])
    keys = [("topic", "ascending"), ("body", "ascending")]
    assert found.sort_by(keys).equals(expected.sort_by(keys))


@pytest.mark.slow
def test_inner_batches_unwrapped(tables: SparkSession, golden: Golden) -> None:
    store = golden("five_batch")
    schema = "queue_offset long, body binary"
    assert load(tables, store.path, schema).count() == len(store.messages)
    rows = load(tables, store.path, schema, unwrapBatches="true").collect()
    expected = to_arrow(store.path, ["queue_offset", "body"], unwrap_batches=True).read_all()
    assert len(rows) == expected.num_rows > len(store.messages)
    pairs = zip(expected["queue_offset"].to_pylist(), expected["body"].to_pylist(), strict=True)
    assert sorted((row.queue_offset, bytes(row.body)) for row in rows) == sorted(pairs)
