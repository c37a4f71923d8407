"""The table function `rocketmq` of Spark SQL, and Spark's estimate of a table's size."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from reput.spark.table_function import RocketMQFunction
from tests.golden.stores import GoldenStore
from tests.spark.test_source import refused

Golden = Callable[[str], GoldenStore]


@pytest.mark.spark_min
def test_the_function_has_the_rows_of_the_data_source(tables: SparkSession, golden: Golden) -> None:
    store = golden("basic")
    topic = store.messages[0].topic
    table = tables.read.format("rocketmq").option("topic", topic).load(str(store.path))
    found = tables.sql(f"SELECT * FROM rocketmq('{store.path}', topic => '{topic}')")
    assert found.schema == table.schema
    assert sorted(map(str, found.collect())) == sorted(map(str, table.collect()))
    some = tables.sql(
        f"SELECT topic, body FROM rocketmq('{store.path}', columns => 'topic', "
        f"topic => array('{topic}', 'none'), useIndexes => false)"
    ).collect()
    assert len(some) == table.count()
    assert {(row.topic, row.body) for row in some} == {(topic, None)}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("topics => 'a'", "unknown option topics; did you mean topic"),
        ("onCorrupt => 'row'", "use a temporary view"),
        ("topic => cast(null as string)", "topic: the function rocketmq needs one constant"),
    ],
)
@pytest.mark.every_case
def test_a_wrong_argument_is_one_line(
    tables: SparkSession, golden: Golden, arguments: str, problem: str
) -> None:
    path = golden("lmq").path
    line = refused(tables.sql(f"SELECT * FROM rocketmq('{path}', {arguments})").collect)
    assert problem in line


def test_an_unknown_topic_is_reported_with_near_names(
    golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    """The task prints the line, because Spark calls an Arrow function only in tasks."""
    store = pa.array([str(golden("orders").path)])
    names = {"topic": pa.array([["order", "payments"]]), "columns": pa.array(["topic"])}
    topics = {
        name
        for batch in RocketMQFunction().eval(store, **names)
        for name in batch["topic"].to_pylist()
    }
    assert topics == {"payments"}
    printed = capsys.readouterr().err
    assert printed.startswith("reput: no queue of topic order; there are orders, ")
    assert printed.count("\n") == 1


def test_a_timestamp_is_a_time(golden: Golden) -> None:
    store = pa.array([str(golden("orders").path)])

    def count(**arguments: object) -> int:
        named = {name: pa.array([value]) for name, value in arguments.items()}
        return sum(map(len, RocketMQFunction().eval(store, **named)))

    every = count()
    assert count(startingTimestamp=datetime(2000, 1, 1, tzinfo=UTC)) == every > 0
    assert count(endingTimestamp=date(2000, 1, 1)) == 0
    with pytest.raises(Exception, match="startingTimestamp: must be a text, a number, a time"):
        count(startingTimestamp=Decimal("1.5"))


@pytest.mark.parametrize("arguments", ["", "topic => 'a'"])
@pytest.mark.every_case
def test_a_missing_path_is_one_line(tables: SparkSession, arguments: str) -> None:
    line = refused(tables.sql(f"SELECT * FROM rocketmq({arguments})").collect)
    assert "path is missing" in line
    assert "rocketmq('PATH')" in line


def test_spark_broadcasts_a_table_whose_size_it_can_estimate(
    tables: SparkSession, golden: Golden
) -> None:
    """A Python source reports no size: a hint or a limit replaces it."""
    table = tables.read.format("rocketmq")
    table.load(str(golden("lmq").path)).createOrReplaceTempView("small")
    tables.conf.set("spark.sql.autoBroadcastJoinThreshold", 10 << 20)
    tables.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        plans = [
            tables.sql(
                f"EXPLAIN SELECT {hint} * FROM {big} o JOIN {small} m USING (topic)"
            ).collect()[0][0]
            for hint, big, small in (
                ("", "small", "small"),
                ("/*+ BROADCAST(m) */", "small", "small"),
                ("", "small", "(SELECT * FROM small LIMIT 10000)"),
            )
        ]
    finally:
        tables.conf.unset("spark.sql.autoBroadcastJoinThreshold")
        tables.conf.unset("spark.sql.adaptive.enabled")
    assert ["BroadcastHashJoin" in plan for plan in plans] == [False, True, True]
