"""Measure the reading of the benchmark store as a table on local[2], in comparison with a source of ready-made batches.

The rate of that source is the limit of Spark for rows from Python. The table must also read and decode its rows.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from benchmarks.generate import MESSAGE_BYTES, RARE_TOPIC
from benchmarks.own_process import in_own_process
from benchmarks.result import Figure
from reput.engine.messages.schema import BATCH_BYTES, COLUMNS
from reput.engine.tables.log_paths import find_logs
from reput.engine.tables.plan import SPLIT_BYTES, plan_reading
from reput.engine.tables.read import LogRange, RangeBatches, ReadTask
from reput.format.file_names import COMMIT_LOG_FOLDER, CONSUME_QUEUE_FOLDER
from reput.io.reader import FileReader

_GROUP = "the table on local[2], no-op sink"
HEADER = (
    "topic string, queue_id int, queue_offset bigint, physical_offset bigint, size bigint, flag int, "
    "sys_flag int, born_timestamp timestamp, store_timestamp timestamp, reconsume_times int"
)


def measure(store: Path, indexes: Path) -> Iterator[Figure]:
    """Measure on the log of `store`, with the rebuilt ConsumeQueues in `indexes`."""
    # Link log and queues into one folder, as in the store of a broker.
    indexed = indexes.parent / "indexed"
    indexed.mkdir(exist_ok=True)
    for folder in (store / COMMIT_LOG_FOLDER, indexes / CONSUME_QUEUE_FOLDER):
        link = indexed / folder.name
        link.unlink(missing_ok=True)
        link.symlink_to(folder.resolve())
    result = in_own_process("benchmarks.table", store, indexed)
    unit = "million messages/s"
    share = result["all"] / result["ready-made"] * 100
    yield Figure(_GROUP, "ready-made batches, all columns", result["ready-made"], unit)
    yield Figure(_GROUP, "all columns", result["all"], unit)
    yield Figure(_GROUP, "all columns, of ready-made", share, "%", least=80)
    yield Figure(_GROUP, "header columns", result["header"], unit, least=1.5)
    yield Figure(_GROUP, "decoding all columns, one core", result["decode"], unit, least=2.4)
    yield Figure(_GROUP, "one topic of 1 %, against all", result["topic"], "times", least=20)


class ReadyMade(DataSource):
    """A source that decodes nothing: it yields the store's first batch repeatedly.

    It yields as many rows as the store has messages, in as many partitions as a scan of the store has.
    """

    @classmethod
    def name(cls) -> str:
        return "ready-made"

    def schema(self) -> StructType:
        return from_arrow_schema(COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _ReadyMadeReader(self.options["path"], int(self.options["messages"]))


class _ReadyMadeReader(DataSourceReader):
    def __init__(self, path: str, messages: int) -> None:
        self._path, self._messages = path, messages

    def partitions(self) -> Sequence[InputPartition]:
        count = -(-self._messages * MESSAGE_BYTES // SPLIT_BYTES)
        return [InputPartition(self._messages // count)] * count

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = first_batch(self._path)
        left: int = partition.value
        while left > 0:
            yield batch.slice(0, left)
            left -= len(batch)


def first_batch(path: str) -> pa.RecordBatch:
    file = find_logs([path])[0].files[0]
    part = LogRange(file, file.start, file.start + BATCH_BYTES - (64 << 10), path)
    return next(iter(RangeBatches(part)))


def _run(store: str, indexed: str) -> dict[str, float]:
    from reput.spark import register
    from reput.spark.session import create_session

    # Spark's JVM converts every row for this sink, which is heavy work. So allow its optimizing compiler, which
    # `create_session` disables by default.
    conf = {"spark.driver.extraJavaOptions": ""}
    spark = create_session("local[2]", "reput benchmark", conf)
    register(spark)
    spark.dataSource.register(ReadyMade)
    messages = spark.read.format("rocketmq").schema("queue_id int").load(store).count()
    # In this first read, the JVM compiles its code.
    sink(spark, store, options={"endingOffsets": str(1 << 30)})
    all_s = sink(spark, store)
    ready_s = sink(spark, store, source="ready-made", options={"messages": str(messages)})
    header_s = sink(spark, store, schema=HEADER)
    topic_s = sink(spark, indexed, options={"topic": RARE_TOPIC})
    spark.stop()
    return {
        "ready-made": messages / 1e6 / ready_s,
        "all": messages / 1e6 / all_s,
        "header": messages / 1e6 / header_s,
        "topic": all_s / topic_s,
        "decode": _decode_rate(store),
    }


def sink(
    spark: SparkSession,
    path: str,
    *,
    source: str = "rocketmq",
    schema: str | None = None,
    options: dict[str, str] | None = None,
) -> float:
    """Read all rows into a sink that drops them. Return the seconds."""
    begun = time.perf_counter()
    reader = spark.read.format(source).options(**(options or {}))
    frame = (reader.schema(schema) if schema else reader).load(path)
    frame.write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - begun
    print(f"{source} {schema or 'all'} {options or ''}: {seconds:.2f} s", file=sys.stderr)
    return seconds


def _decode_rate(store: str) -> float:
    """Return the rate (million messages/s) at which one core decodes all columns, with the log in the page cache."""
    tasks = plan_reading(find_logs([store])).tasks

    def decode(task: ReadTask) -> int:
        return sum(len(batch) for batch in RangeBatches(task.part, open_file=FileReader))

    # The first task loads the kernels, and makes the system map new memory.
    decode(tasks[0])
    begun = time.perf_counter()
    messages = decode(tasks[1])
    return messages / 1e6 / (time.perf_counter() - begun)


if __name__ == "__main__":
    print(json.dumps(_run(sys.argv[1], sys.argv[2])))
