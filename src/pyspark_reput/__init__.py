"""The data source `rocketmq`, where Spark finds it by itself: Spark 4 looks for packages named `pyspark_…`.

It does so once in each session, for whatever source is asked for, so nothing is imported here before it is used.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """`reput.spark.source.RocketMQDataSource` as Spark finds it."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        from reput.spark.source import RocketMQDataSource

        super().__init__(options)
        self._source = RocketMQDataSource(options)

    @classmethod
    def name(cls) -> str:
        from reput.spark.workers import end_quietly

        end_quietly()
        return "rocketmq"

    def schema(self) -> StructType:
        return self._source.schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return self._source.reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return self._source.streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return self._source.writer(schema, overwrite)
