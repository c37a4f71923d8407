"""Find the orders that were paid twice: python -m examples.paid_twice [STORE]

In the shop's store, no order was paid twice. Therefore the example puts two payments a second time into its copy of the
store. A producer does the same if it does not receive the broker's answer and sends the message again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import reput
import reput.spark
from examples.shop import store_of
from reput.spark.session import create_session

TWICE = ("order-104918", "order-100214")


def paid_twice(spark: SparkSession, store: Path) -> DataFrame:
    """Return the columns order, payments (their number), amount (their sum), first and last (their store times)."""
    reput.spark.register(spark)
    payments = (
        spark.read.format("rocketmq")
        .schema("tags string, store_timestamp timestamp, body binary")
        .option("topic", "payments")
        .load(str(store))
        .where("tags = 'authorised'")
        .withColumn("json", F.from_json(F.decode("body", "UTF-8"), "order string, amount double"))
    )
    return (
        payments.groupBy(F.col("json.order").alias("order"))
        .agg(
            F.count("*").alias("payments"),
            F.round(F.sum("json.amount"), 2).alias("amount"),
            F.min("store_timestamp").alias("first"),
            F.max("store_timestamp").alias("last"),
        )
        .where("payments > 1")
        .orderBy("first")
    )


def pay_again(store: Path, orders: tuple[str, ...] = TWICE) -> None:
    """Put the payments of these orders a second time."""
    config = reput.StoreConfig.from_broker_config(store.parent / "config.properties")
    with reput.open_store(store, mode="rw", config=config) as opened:
        for order in orders:
            paid = next(iter(opened.query("payments", order).messages))
            properties = {**paid.properties, "UNIQ_KEY": f"AGAIN{paid.properties['UNIQ_KEY'][5:]}"}
            opened.put(
                reput.Message(
                    topic=paid.topic, body=paid.body, queue_id=paid.queue_id, properties=properties,
                    born_timestamp=paid.born_timestamp + 1_500,
                )
            )  # fmt: skip


def main(arguments: list[str]) -> None:
    with store_of(arguments) as store, create_session() as spark:
        if not arguments:
            pay_again(store)
        paid_twice(spark, store).show(truncate=False)


if __name__ == "__main__":
    main(sys.argv[1:])
