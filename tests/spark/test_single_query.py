"""A table that takes Spark's filters is refused for a second query, which would get the filters of the first one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import reput.spark
from reput.errors import UsageError
from tests.golden.stores import GoldenStore
from tests.spark.loading import load
from tests.spark.test_selection import spark_pushes_filters

_SCHEMA = "topic string, queue_id int, unique_key string, physical_offset long"
Golden = Callable[[str], GoldenStore]


@pytest.fixture
def table(tables: SparkSession, golden: Golden) -> Iterator[DataFrame]:
    with spark_pushes_filters(tables):
        yield load(tables, golden("orders").path, _SCHEMA, pushFilters="true")


def test_a_second_query_without_filters_is_refused(table: DataFrame) -> None:
    assert table.where("topic = 'orders'").count() == 5270
    with pytest.raises(
        PySparkException, match=r"filters of an earlier query.*load the table again"
    ):
        table.count()


def test_a_second_query_with_other_filters_is_refused(table: DataFrame) -> None:
    assert table.where("topic = 'orders'").count() == 5270
    with pytest.raises(PySparkException, match=r"with other filters.*load the table again"):
        table.where("topic = 'payments'").count()


def test_a_join_of_the_table_with_itself_is_refused(table: DataFrame) -> None:
    orders = table.where("topic = 'orders'").select("unique_key")
    payments = table.where("topic = 'payments'").select("unique_key")
    with pytest.raises(PySparkException, match="load the table again"):
        orders.union(payments).count()


def test_the_same_query_with_a_sort_may_run_twice(table: DataFrame) -> None:
    orders = table.where("topic = 'orders' AND queue_id = 1").orderBy("physical_offset")
    first = orders.select("physical_offset").collect()
    assert orders.select("physical_offset").collect() == first
    assert len(first) > 0


def test_queries_without_filters_may_be_many(table: DataFrame) -> None:
    assert [table.count(), table.count()] == [19622, 19622]


def test_a_query_without_filters_is_refused_after_an_explanation(table: DataFrame) -> None:
    orders = table.where("topic = 'orders'")
    assert "topic = 'orders'" in reput.spark.explain(orders)
    assert orders.count() == 5270
    reput.spark.explain(orders)
    with pytest.raises(
        PySparkException, match=r"filters of an earlier query.*load the table again"
    ):
        table.count()


def test_explain_says_what_a_query_reads(table: DataFrame, tables: SparkSession) -> None:
    text = reput.spark.explain(table.where("topic = 'orders'"))
    assert "topic = 'orders'" in text.splitlines()[0]
    assert "topic found through the ConsumeQueues" in text
    assert "s of processor time in" in text
    with pytest.raises(UsageError, match="no scan of a store"):
        reput.spark.explain(tables.range(3))
