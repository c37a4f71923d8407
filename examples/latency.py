"""Measure the time from an order to its payment, with a join of two topics: python -m examples.latency [STORE]"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import reput.spark
from examples.shop import store_of
from reput.spark.session import create_session

PERCENTILES = {"half": 0.5, "of_ten_nine": 0.9, "of_hundred_99": 0.99}


def latencies(
    spark: SparkSession, store: Path, first: str = "orders", second: str = "payments"
) -> DataFrame:
    """Return a row (key, tags, seconds) for each message of the second topic whose key occurs in the first topic.

    The tags are those of this message. `seconds` is the time since the first topic's first message with the key.
    """
    reput.spark.register(spark)
    begun = (
        _messages(spark, store, first).groupBy("key").agg(F.min("store_timestamp").alias("begun"))
    )
    seconds: Column = F.col("store_timestamp").cast("double") - F.col("begun").cast("double")
    ended = _messages(spark, store, second).join(begun, "key")
    return ended.select("key", "tags", seconds.alias("seconds"))


def _messages(spark: SparkSession, store: Path, topic: str) -> DataFrame:
    """Read the messages of one topic. ConsumeQueues are used if this is faster than reading the whole log."""
    return (
        spark.read.format("rocketmq")
        .schema("keys array<string>, tags string, store_timestamp timestamp")
        .option("topic", topic)
        .load(str(store))
        .select("tags", "store_timestamp", F.col("keys")[0].alias("key"))
    )


def summary(found: DataFrame) -> DataFrame:
    """Return a row for each tag: the number of payments, and the seconds within which 50, 90 and 99 % of them came."""
    parts = [F.percentile("seconds", F.lit(p)).alias(name) for name, p in PERCENTILES.items()]
    return found.groupBy("tags").agg(F.count("*").alias("messages"), *parts).orderBy("tags")


def main(arguments: list[str]) -> None:
    with store_of(arguments) as store, create_session() as spark:
        summary(latencies(spark, store)).show(truncate=False)


if __name__ == "__main__":
    main(sys.argv[1:])
