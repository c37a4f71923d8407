"""The stream: rate limits, restarts, growth, expiry, wrong use."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import reput
import reput.spark
from reput.spark.versions import HAS_LIMITS
from tests.docs.pages import CHECKOUT
from tests.docs.readme import python_examples
from tests.golden.stores import GoldenStore
from tests.oracle.forge import write_store
from tests.oracle.random_logs import LogOptions, random_log
from tests.small import SMALL_32K
from tests.spark.streams import run
from tests.tables.reading import read, rows_of

Golden = Callable[[str], GoldenStore]
LIMITED = {"maxOffsetsPerTrigger": "300"} if HAS_LIMITS else {}
needs_limits = pytest.mark.skipif(not HAS_LIMITS, reason="Spark 4.1 has no limits of batches")
COLUMNS = "store string, physical_offset long, body binary"


class Sink:
    """A stream into Parquet files that can be restarted."""

    def __init__(self, spark: SparkSession, path: Path | str, folder: Path) -> None:
        self.spark, self.path, self.folder = spark, str(path), folder

    def start(self, **options: Any) -> StreamingQuery:
        options = {"startingOffsets": "earliest", "decompress": "false", **options}
        stream = self.spark.readStream.format("rocketmq").schema(COLUMNS).options(**options)
        return (
            stream.load(self.path)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self.folder / "table"))
        )

    def run(self, **options: Any) -> list[int]:
        """Return the rows of each batch of a run to the end of the log."""
        queries = run(lambda: self.start(**options))
        rows = (batch["numInputRows"] for query in queries for batch in query.recentProgress)
        return [count for count in rows if count]

    def offsets(self) -> list[tuple[str, int]]:
        rows = self.spark.read.parquet(str(self.folder / "table")).select(
            "store", "physical_offset"
        )
        return sorted((row[0], row[1]) for row in rows.collect())


@pytest.fixture
def sink(tables: SparkSession, tmp_path: Path) -> Callable[[Path | str], Sink]:
    return lambda path: Sink(tables, path, tmp_path / "sink")


def expected(*stores: Path) -> list[tuple[str, int]]:
    return sorted(
        (row["store"], row["physical_offset"])
        for store in stores
        for row in rows_of(read(store, ["store", "physical_offset"]))
    )


def put(store: Path, count: int) -> None:
    with reput.open_store(store, mode="rw", config=SMALL_32K) as living:
        living.put_many(reput.Message("t", b"body %d" % n, f"k{n}") for n in range(count))


def refused(start: Callable[[], StreamingQuery]) -> str:
    with pytest.raises(StreamingQueryException) as caught:
        run(start)
    text = str(caught.value)
    assert '.py"' not in text
    assert "another exception" not in text
    line = next(line for line in text.splitlines() if "reput.errors" in line)
    return line.partition("reput.errors.")[2]


@pytest.mark.spark_min
# Spark gives its workers ten seconds to start, which may be too few on a busy machine
@pytest.mark.slow
def test_a_stream_goes_on_where_it_stopped(sink: Callable[[Path], Sink], tmp_path: Path) -> None:
    store = tmp_path / "store"
    into = sink(store)
    put(store, 500)
    assert sum(into.run()) == 500
    assert into.run() == []
    put(store, 700)
    assert sum(into.run(**LIMITED)) == 700
    assert into.offsets() == expected(store)


@needs_limits
@pytest.mark.slow
def test_rate_limits_cut_batches(sink: Callable[[Path], Sink], golden: Golden) -> None:
    store = golden("basic").path
    into = sink(store)
    batches = into.run(maxOffsetsPerTrigger="1500")
    assert batches == [1500, 1500, 1500, 500]
    assert into.offsets() == expected(store)
    shutil.rmtree(into.folder)
    size = sum(row["size"] for row in rows_of(read(store, ["size"])))
    batches = into.run(maxBytesPerTrigger=str(size // 3))
    assert len(batches) in (3, 4)
    assert sum(batches) == 5000
    assert into.offsets() == expected(store)


@needs_limits
@pytest.mark.slow
def test_the_docs_example_appends_each_batch_once_though_it_is_planned_again(
    tables: SparkSession, golden: Golden, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    page = (CHECKOUT / "docs" / "spark-stream.md").read_text(encoding="utf-8")
    (example,) = [text for text in python_examples(page) if "write_deltalake" in text]
    store = golden("basic").path
    example = example.replace("/data/store", str(store)).replace("256 << 20", "300_000")
    example = example.replace('"lake/', f'"{tmp_path}/')
    exec(example, {"spark": tables})
    table = str(tmp_path / "messages")
    batches = len(deltalake.DeltaTable(table).history())
    assert batches > 2
    for mark in (tmp_path / "checkpoint" / "commits").glob(f"*{batches - 1}*"):
        mark.unlink()  # as if killed after the table's commit, before Spark's own
    exec(example, {"spark": tables})
    written = deltalake.DeltaTable(table).to_pyarrow_table()
    assert sorted(written["physical_offset"].to_pylist()) == [at for _, at in expected(store)]
    assert len(deltalake.DeltaTable(table).history()) == batches


@pytest.mark.slow
def test_stores_that_come_later_are_read_from_their_beginning(
    sink: Callable[[str], Sink], tmp_path: Path
) -> None:
    first, second = tmp_path / "b1" / "store", tmp_path / "b2" / "store"
    into = sink(str(tmp_path / "b*" / "store"))
    put(first, 100)
    assert sum(into.run(startingOffsets="latest")) == 0
    put(first, 50)
    put(second, 70)
    into.run(**LIMITED)
    stores = [store for store, _ in into.offsets()]
    assert (stores.count(str(first)), stores.count(str(second))) == (50, 70)


@pytest.mark.slow
def test_a_stream_begins_where_the_options_say(
    sink: Callable[[Path], Sink], golden: Golden
) -> None:
    store = golden("orders").path
    rows = rows_of(read(store, ["physical_offset", "store_timestamp"]))
    into = sink(store)
    assert sum(into.run(startingOffsets=rows[-7]["physical_offset"] - 1)) == 7
    shutil.rmtree(into.folder)
    since_ms = rows[15000]["store_timestamp"] // 1000
    into.run(startingOffsets="earliest", startingTimestamp=since_ms)
    assert len(into.offsets()) == sum(row["store_timestamp"] >= since_ms * 1000 for row in rows)


@pytest.mark.slow
def test_what_expired_while_the_stream_was_stopped_is_told(
    sink: Callable[[Path], Sink], tmp_path: Path
) -> None:
    log = random_log(8, LogOptions(records=120))
    files = log.files
    store = write_store(tmp_path / "store", [*files[:2], (files[2][0], bytes(4096))])
    into = sink(store)
    into.run()
    read_so_far = [offset for _, offset in into.offsets()]
    shutil.rmtree(store)
    write_store(store, files[4:])
    message = refused(into.start)
    begin = files[4][0]
    assert message.startswith(f"StoreChangedError: {store}: offsets 8192 to {begin} have expired")
    assert "failOnDataLoss=false" in message
    into.run(failOnDataLoss="false")
    left = [at for at in log.offsets if at >= begin]
    assert [offset for _, offset in into.offsets()] == read_so_far + left


@pytest.mark.slow
def test_a_log_that_ends_before_what_was_read_is_told(
    sink: Callable[[Path], Sink], tmp_path: Path
) -> None:
    log = random_log(8, LogOptions(records=60))
    store = write_store(tmp_path / "store", log.files)
    into = sink(store)
    into.run()
    shutil.rmtree(store)
    write_store(store, [log.files[0]])
    message = refused(into.start)
    assert "replaced or truncated since it was read up to offset" in message
    assert "the log ends at 4096" in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"endingOffsets": "latest"}, "UsageError: endingOffsets: a stream has no end"),
        ({"color": "red"}, "UsageError: unknown option color; the options are path"),
    ],
)
def test_a_wrong_option_is_one_clear_line(
    tables: SparkSession, golden: Golden, tmp_path: Path, options: dict[str, str], line: str
) -> None:
    into = Sink(tables, golden("basic").path, tmp_path)
    with pytest.raises(PySparkException) as caught:
        run(lambda: into.start(**options))
    text = str(caught.value)
    assert line in text
    assert '.py"' not in text


# A process that acts as a broker: it puts two hundred messages a second until it is stopped.


@needs_limits
@pytest.mark.slow
def test_progress_has_the_lag_of_each_store(sink: Callable[[Path], Sink], golden: Golden) -> None:
    store = golden("basic").path
    into = sink(store)
    queries = run(lambda: into.start(maxOffsetsPerTrigger="1500"))
    told = [json.loads(each["sources"][0]["latestOffset"]) for each in queries[-1].recentProgress]
    assert [each[str(store)]["messages_behind"] for each in told][:4] == [3500, 2000, 500, 0]
    assert told[3][str(store)]["bytes_behind"] == 0
