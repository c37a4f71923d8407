"""The bulk look-up on real Spark: frames in, frames out, several partitions, files."""

import csv
import json
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import reput.spark
from reput.cli.lookup import print_rows
from reput.engine.lookup.coverage import coverage_of
from reput.engine.lookup.local_files import AnswerFormat
from reput.errors import StoreNotFoundError, UsageError
from reput.spark.bulk_lookup import find_on_spark
from reput.spark.lookup_files import read_keys, write_answer, write_coverage
from tests.cli.running import reput_process
from tests.golden.stores import GoldenStore
from tests.query.stores import expected_offsets, keyed_messages
from tests.spark.standalone import StandaloneCluster, run_python

Golden = Callable[[str], GoldenStore]
KEYS = "topic string, key string, begin timestamp, note int"


@pytest.mark.spark_min
def test_every_row_is_answered_whatever_its_partition(spark: SparkSession, golden: Golden) -> None:
    store = golden("orders")
    keyed = keyed_messages(store.messages)
    some = sorted(keyed)[::7]
    rows: list[tuple[str, str, datetime | None, int]]
    rows = [(topic, key, None, number) for number, (topic, key) in enumerate(some)]
    begin = datetime(2026, 10, 17, tzinfo=UTC)
    rows += [("orders", "customer-48", begin, -1), ("orders", "nobody", None, -2)]
    keys = spark.createDataFrame(rows, KEYS).repartition(5)
    answer = reput.spark.lookup(spark, store.path, keys, columns=["physical_offset", "body"])
    assert answer.columns == [*keys.columns, "physical_offset", "body", "is_complete"]
    found = defaultdict(list)
    bodies = {}
    for row in answer.collect():
        found[row.note].append(row.physical_offset)
        bodies[row.physical_offset] = row.body
        assert row.is_complete
    begin_ms = int(begin.timestamp() * 1000)
    assert found.pop(-1) == expected_offsets(keyed, "orders", "customer-48", begin_ms, 2**63)
    assert found.pop(-2) == [None]
    assert len(found) == len(rows) - 2
    for topic, key, _, number in rows[:-2]:
        assert found[number] == expected_offsets(keyed, topic, key, -(2**63), 2**63)
    with reput.open_store(store.path) as opened:
        for offset in list(bodies)[::50]:
            assert offset is None or bodies[offset] == opened.get(offset).body


@pytest.mark.slow
def test_several_stores_and_an_index_elsewhere(
    spark: SparkSession, golden: Golden, tmp_path: Path
) -> None:
    keys = spark.createDataFrame([("TopicB", "K1")], "topic string, key string")
    paths = [golden(name).path for name in ("basic", "timed")]
    answer = reput.spark.lookup(spark, paths, keys, columns=["store", "physical_offset"]).collect()
    assert {row.store for row in answer} == {str(path) for path in paths}
    (scanned,) = {
        row.coverage.indexed_bytes
        for row in reput.spark.lookup(
            spark, paths[0], keys, index=tmp_path, coverage="rows"
        ).collect()
    }
    assert scanned == 0
    found = reput.spark.lookup(spark, paths, keys, columns=["store"])
    summary = reput.spark.coverage_of(found.where("store is not null").drop("key")).collect()
    assert [row.store for row in summary] == list(map(str, paths))
    assert all(row.log_bytes == row.indexed_bytes + row.scanned_bytes for row in summary)
    with pytest.raises(UsageError, match="not an answer of lookup, or its columns is_complete"):
        reput.spark.coverage_of(found.drop("is_complete"))


def test_wrong_use_is_told_before_anything_runs(spark: SparkSession, golden: Golden) -> None:
    store = golden("basic").path
    good = spark.createDataFrame([("T", "k")], "topic string, key string")
    with pytest.raises(UsageError, match="no column nothing"):
        reput.spark.lookup(spark, store, good, columns=["nothing"])
    with pytest.raises(UsageError, match="no column 'key'"):
        reput.spark.lookup(spark, store, good.drop("key"))
    with pytest.raises(UsageError, match="has a column 'Tags' of its own; rename yours"):
        reput.spark.lookup(spark, store, good.selectExpr("*", "1 Tags"), columns="tags")
    with pytest.raises(UsageError, match="is valid for one store only"):
        reput.spark.lookup(spark, [store, store.parent], good, index=store)
    with pytest.raises(UsageError, match="at least one store"):
        reput.spark.lookup(spark, [], good)
    with pytest.raises(StoreNotFoundError, match="not a RocketMQ store"):
        reput.spark.lookup(spark, store / "index", good)
    late = spark.createDataFrame([("T", "k", "soon")], "topic string, key string, end string")
    with pytest.raises(UsageError, match="'end' must contain only milliseconds or only ISO 8601"):
        reput.spark.lookup(spark, store, late)


CLUSTER = """
import sys
from pathlib import Path
import reput.spark
from reput.errors import UsageError
from reput.spark.session import create_session

master, store, staging = sys.argv[1:]
spark = create_session(master)
keys = spark.createDataFrame([("orders", "customer-48"), ("orders", "x")], "topic string, key string")
try:
    reput.spark.lookup(spark, store, keys)
except UsageError as error:
    print(error)
answer = reput.spark.lookup(spark, store, keys.repartition(2), staging=staging)
print(answer.where("store is not null").count())
spark.stop()
"""


@pytest.mark.slow
def test_on_a_cluster_with_a_staging_folder_that_all_see(
    standalone_cluster: StandaloneCluster, golden: Golden, tmp_path: Path
) -> None:
    store = golden("orders")
    expected = keyed_messages(store.messages)["orders", "customer-48"]
    result = run_python(CLUSTER, standalone_cluster.url, str(store.path), str(tmp_path / "staged"))
    assert result.returncode == 0, result.stderr
    refused, count = result.stdout.splitlines()
    assert refused.startswith("staging: on a cluster, pass a folder")
    assert int(count) == len(expected)
    assert list((tmp_path / "staged").iterdir()) == [], "nothing is left behind"


@pytest.mark.slow
def test_the_command_prints_the_answer(golden: Golden, keys_csv: Path) -> None:
    store = golden("orders")
    common = ("lookup", store.path, "--keys", keys_csv, "--output", "-", "--master", "local[1]")
    ran = reput_process(*common)
    assert ran.code == 0
    rows = [json.loads(line) for line in ran.lines]
    assert [row["note"] for row in rows] == ["a"] * 2 + ["b"] * 9 + ["c"]
    assert rows[0]["physical_offset"] == 53821
    assert rows[0]["store_timestamp"] == 1791794106637
    assert rows[-1]["physical_offset"] is None
    assert rows[-1]["is_complete"]
    first, second = ran.err.splitlines()
    assert first == "3 keys: 2 have messages, 11 in all; 1 has none."
    assert second.startswith(
        "Searched the CommitLog from 0 to 6,549,067, through 15 IndexFiles (15 proven)"
    )


@pytest.mark.slow
def test_the_command_writes_files(
    spark: SparkSession, golden: Golden, keys_csv: Path, tmp_path: Path
) -> None:
    ran = reput_process(
        "lookup", golden("orders").path, "--keys", keys_csv, "--output", tmp_path / "found",
        "--master", "local[1]",
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, "")
    assert_answered(spark.read.parquet(str(tmp_path / "found")))
    for file in (tmp_path / "found").glob("*.parquet"):
        kind = pq.read_schema(file).field("store_timestamp").type
        assert kind == pa.timestamp("us", tz="UTC"), "as exports and pyarrow write it"


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["parquet", "jsonl"])
def test_rows_without_their_coverage(
    spark: SparkSession, golden: Golden, keys_csv: Path, tmp_path: Path, layout: AnswerFormat
) -> None:
    keys = read_keys(spark, str(keys_csv))
    found = find_on_spark(spark, golden("orders").path, keys, columns=["tags"])
    write_answer(spark, found, f"file://{tmp_path}/found", layout)
    write_coverage(spark, found, f"file://{tmp_path}/found/")
    read = spark.read.parquet if layout == "parquet" else spark.read.json
    frame = read(str(tmp_path / "found"))
    assert_answered(frame.where("is_complete"))
    assert "coverage" not in frame.columns
    assert json.loads((tmp_path / "found.coverage.json").read_bytes()) == coverage_of(found.schema)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["jsonl", "csv"])
def test_the_answer_as_text(
    spark: SparkSession,
    golden: Golden,
    keys_csv: Path,
    tmp_path: Path,
    layout: AnswerFormat,
    capfd: pytest.CaptureFixture[str],
) -> None:
    keys = read_keys(spark, str(keys_csv))
    found = find_on_spark(spark, golden("orders").path, keys, columns=["tags", "physical_offset"])
    write_answer(spark, found, f"file://{tmp_path}/found", layout)
    reader = spark.read.option("header", True)
    read = reader.json if layout == "jsonl" else reader.csv
    assert_answered(read(str(tmp_path / "found")))
    capfd.readouterr()
    assert layout != "parquet"
    print_rows(found.answer, layout)
    lines = capfd.readouterr().out.splitlines()
    files = sorted((tmp_path / "found").glob("part-*.txt"))
    written = [line for file in files for line in file.read_text().splitlines()]
    assert written == lines, "one form for all destinations"
    if layout == "csv":
        assert lines[:2] == [
            "topic,key,begin,note,tags,physical_offset,is_complete",
            "orders,order-100377,,a,cancelled,53821,true",
        ]
    else:
        assert [json.loads(line)["note"] for line in lines] == ["a"] * 2 + ["b"] * 9 + ["c"]
    with found:
        assert list(Path(found.folder).iterdir())
    assert not Path(found.folder).exists()


def assert_answered(read: DataFrame) -> None:
    assert read.count() == 12
    assert read.where("note = 'b'").count() == 9


@pytest.mark.slow
def test_keys_that_are_no_dataframe_are_answered_as_one(
    spark: SparkSession, golden: Golden, keys_csv: Path, tmp_path: Path
) -> None:
    store = golden("orders").path
    plain = pa.table(
        {
            "topic": pa.array(["orders"] * 3, pa.large_string()),
            "key": ["order-100377", "nobody", None],
            "begin": pa.array([0, None, 5], pa.timestamp("us", "Europe/Berlin")),
            "note": pa.array([1, 2, 3], pa.int8()),
            "is_new": [True, None, False],
        }
    )
    local = plain.append_column("end", pa.array([2**52] * 3, pa.timestamp("us")))
    dates = plain.append_column("day", pa.array([1, 2, None], pa.date32()))
    pq.write_table(plain, tmp_path / "keys.parquet")
    given = [(table, spark.createDataFrame(table)) for table in (plain, local, dates)]
    given += [(path, read_keys(spark, str(path))) for path in (keys_csv, tmp_path / "keys.parquet")]
    for keys, frame in given:
        answer, expected = (
            reput.spark.lookup(spark, store, each, columns=["tags"]) for each in (keys, frame)
        )
        assert answer.dtypes == expected.dtypes
        assert answer.collect() == expected.collect()
    assert answer.count() == 4


@pytest.mark.slow
def test_a_path_of_no_keys_is_told(spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="no such file"):
        reput.spark.lookup(spark, golden("orders").path, tmp_path / "keys.csv")


@pytest.mark.slow
def test_a_store_that_is_given_twice_is_searched_once(
    spark: SparkSession, golden: Golden, tmp_path: Path
) -> None:
    store = golden("orders").path
    (tmp_path / "link").symlink_to(store)
    keys = spark.createDataFrame([("orders", "order-100377")], "topic string, key string")
    answer = reput.spark.lookup(spark, [str(store), tmp_path / "link", store], keys).collect()
    assert [(row.store, row.physical_offset) for row in answer] == [
        (str(store), 53821), (str(store), 52636)
    ]  # fmt: skip


@pytest.mark.slow
def test_csv_is_read_as_others_write_it(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("t", 'a "b"', "\\"), ("t", "ä,😀", 'x"'), ("t", "c\\", "")]
    path = tmp_path / "keys.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("topic", "key", "note"), *rows])
    found = [tuple(row) for row in read_keys(spark, str(path)).collect()]
    assert found == [*rows[:2], ("t", "c\\", None)]


@pytest.mark.slow
def test_csv_is_written_as_others_read_it(
    spark: SparkSession, golden: Golden, tmp_path: Path
) -> None:
    texts = [' a "b" ', "\\", "x\\", ",", "ä😀"]
    keys = spark.createDataFrame([("t", text) for text in texts], "topic string, key string")
    found = find_on_spark(spark, golden("orders").path, keys.coalesce(1), columns=["tags"])
    write_answer(spark, found, f"file://{tmp_path}/out", "csv")
    rows = []
    for path in (tmp_path / "out").glob("part-*.txt"):
        with path.open(newline="", encoding="utf-8") as file:
            rows += list(csv.reader(file))[1:]
    assert sorted(row[1] for row in rows) == sorted(texts)


@pytest.mark.slow
@pytest.mark.parametrize("line", ["orders,a key, with a comma", "orders"])
def test_a_line_of_other_columns_is_told(
    spark: SparkSession, golden: Golden, tmp_path: Path, line: str
) -> None:
    path = tmp_path / "keys.csv"
    path.write_text(f"topic,key\norders,order-100377\n{line}\n")
    told = f"keys: a line with more or fewer values than names: {line}"
    with pytest.raises(UsageError, match=told):
        reput.spark.lookup(spark, golden("orders").path, read_keys(spark, str(path)))


@pytest.mark.slow
def test_keys_that_are_no_parquet_are_told(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "keys.parquet"
    path.write_text("junk")
    with pytest.raises(UsageError, match=r"keys.parquet: cannot be read: .*Parquet"):
        read_keys(spark, str(path))


@pytest.mark.slow
def test_messages_of_inner_batches(spark: SparkSession, golden: Golden) -> None:
    store = golden("five_batch").path
    rows = [("BatchTopic", "I37"), ("Batch2", "I37"), ("Simple", "nothing")]
    keys = spark.createDataFrame(rows, "topic string, key string").repartition(2)
    found = reput.spark.lookup(spark, store, keys, columns=["physical_offset", "queue_offset"])
    expected = reput.look_up(store, rows, columns=["physical_offset", "queue_offset"]).read_all()
    assert sorted(map(str, found.toArrow().to_pylist())) == sorted(map(str, expected.to_pylist()))
    assert expected.num_rows > 20
    (summary,) = reput.spark.coverage_of(found).collect()
    assert summary.inner_batches.asDict() == coverage_of(expected)[0]["inner_batches"]
