"""The reading paths of `reput.spark`. Only a session with Spark asks them: each question takes seconds."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

import reput.spark
from tests.spark.streams import run
from tests.truth.answers import Answer, Session, path
from tests.truth.messages import Question
from tests.truth.paths_api import KEYS_OF_LOOK_UP


def _options(asked: Question) -> dict[str, str]:
    """Return the conditions of a question as options of the data source."""
    given = {
        "topic": asked.topic,
        "startingTimestamp": asked.begin,
        "endingTimestamp": asked.end,
        # KEYS and unique keys are different conditions.
        "uniqueKey" if asked.key.startswith("7F") else "key": asked.key or None,
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def _places(frame: DataFrame) -> list[int]:
    return [row[0] for row in frame.select("physical_offset").collect()]


@path("spark table", "key", "window", is_of_log=True)
def table(session: Session, asked: Question) -> Answer | None:
    if session.spark is None:
        return None
    reader = session.spark.read.format("rocketmq").options(**_options(asked))
    found: set[int] = set()
    try:
        # The table returns inner batches or their messages, each with its own keys.
        for unwrap in ("false", "true") if asked.kind == "key" else ("false",):
            found.update(_places(reader.option("unwrapBatches", unwrap).load(session.path)))
    except PySparkException as error:
        return Answer((), False, str(error))
    return Answer.of(sorted(found))


@path("spark stream", "window", is_of_log=True)
def stream(session: Session, asked: Question) -> Answer | None:
    """Read the whole log as a stream into a table, and filter the table."""
    if (spark := session.spark) is None:
        return None
    place = session.new_path("-stream")

    def start() -> StreamingQuery:
        source = spark.readStream.format("rocketmq").option("startingOffsets", "earliest")
        sink = source.load(session.path).writeStream.format("parquet")
        sink = sink.option("checkpointLocation", str(place / "checkpoint"))
        return sink.trigger(availableNow=True).start(str(place / "table"))

    try:
        run(start)
    except StreamingQueryException as error:
        return Answer((), False, str(error))
    rows = spark.read.parquet(str(place / "table")).where(
        f"unix_millis(store_timestamp) between {asked.begin} and {asked.end}"
    )
    return Answer.of(_places(rows.where(rows.topic == asked.topic) if asked.topic else rows))


@path("spark lookup", "key")
def lookup(session: Session, asked: Question) -> Answer | None:
    if session.spark is None or asked.topic is None:
        return None
    row = {"topic": asked.topic, "key": asked.key, "begin": asked.begin, "end": asked.end}
    keys = pa.Table.from_pylist([row], KEYS_OF_LOOK_UP)
    rows = reput.spark.lookup(session.spark, session.path, keys).collect()
    offsets = [one.physical_offset for one in rows if one.physical_offset is not None]
    return Answer.of(offsets, all(one.is_complete for one in rows))
