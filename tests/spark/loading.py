"""Load tables in tests."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession


def load(spark: SparkSession, path: str | Path, schema: str = "", **options: Any) -> DataFrame:
    reader = spark.read.format("rocketmq").options(**options)
    return (reader.schema(schema) if schema else reader).load(str(path))
