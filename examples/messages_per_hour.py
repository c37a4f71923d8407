"""Count messages per topic and hour with Spark: python -m examples.messages_per_hour [STORE]"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import reput.spark
from examples.shop import store_of
from reput.spark.session import create_session


def messages_per_hour(spark: SparkSession, store: Path) -> DataFrame:
    """Return the columns topic, hour and count."""
    reput.spark.register(spark)
    # Only the columns of the schema are decoded.
    messages = (
        spark.read.format("rocketmq")
        .schema("topic string, store_timestamp timestamp")
        .load(str(store))
    )
    hour = F.date_trunc("hour", "store_timestamp").alias("hour")
    return messages.groupBy("topic", hour).count().orderBy("topic", "hour")


def main(arguments: list[str]) -> None:
    with store_of(arguments) as store, create_session() as spark:
        messages_per_hour(spark, store).show(12, truncate=False)


if __name__ == "__main__":
    main(sys.argv[1:])
