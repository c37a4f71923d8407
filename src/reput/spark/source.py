"""Define the data source `rocketmq`: the messages of CommitLogs as rows, for Spark's batch reads and streams.

    reput.spark.register(spark)
    spark.read.format("rocketmq").load("/data/broker-*/store")
    spark.read.format("rocketmq").option("columns", "topic, queue_id").load(path)

`reput.engine.messages.schema` defines the columns. Spark does not pass a query's columns to Python data sources, so the
option `columns`, or a schema, selects the columns to decode. With a schema, Spark creates the source, and reports its
errors, when the first query runs. Without a schema, it does so at `load()`. Filters are pushed down only if the option
`pushFilters` is set: Spark keeps the filters of one query with the loaded table, and applies them to the next query,
which `reput.spark.single_query` refuses.

In Spark, one process creates the source, another process plans a read, and further processes read. Each process must
import the modules that it needs. So modules for reading are imported only when they are needed.
"""

from __future__ import annotations

import os
import traceback
import uuid
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from reput.base import checked
from reput.engine.messages import COLUMNS, DAMAGE_COLUMNS, column_name, select
from reput.engine.tables import start_compiling
from reput.errors import ReputError, UsageError
from reput.spark.connect import ship
from reput.spark.errors import log, one_line
from reput.spark.options import NAME, SourceOptions, read_options
from reput.spark.session import begin_compiling, is_connect, is_local
from reput.spark.ship import ARROW_DEPENDENCIES
from reput.spark.table_function import register_function
from reput.spark.versions import arrow_columns
from reput.spark.workers import end_quietly

_CODE = str(Path(__file__).parents[2])
"""Folder from which `reput` is imported."""


@checked
def register(spark: SparkSession) -> None:
    """Register `rocketmq` as a format and a table function of this session.

    On a cluster, or with a server of Spark Connect, this sends reput's code if the executors lack it. Relative paths
    are relative to the current folder of this process. Raises SparkJobError if the executors lack numba, numpy or
    pyarrow.
    """
    if not is_connect(spark) and is_local(str(spark.sparkContext.master)):
        begin_compiling()
    ship(spark, ARROW_DEPENDENCIES)
    folder = _current_folder()
    spark.dataSource.register(_source_in(folder))
    register_function(spark, folder)


def _current_folder() -> str:
    with suppress(OSError):  # The folder may have been deleted.
        return os.getcwd()
    return ""


class RocketMQDataSource(DataSource):
    """The data source. Spark creates it at `load()`. `reput.spark.options` has the options."""

    folder = ""
    """The folder to which relative paths refer. An empty string means the working directory of Spark's process."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.load = uuid.uuid4().hex
        end_quietly()
        if _is_to_be_written():
            # Messages can never be written with this source. Report this before any mistake in the options.
            self.writer(StructType(), overwrite=False)
        # If the path is missing, the next method that Spark calls raises the error.
        if "path" in options or "paths" in options:
            with one_line():
                self._check(self._read_options())

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Add the folder of reput's code to the pickle, so that the code can be imported where the pickle is loaded.

        In Spark Connect, the process that plans a stream lacks the session's artifacts.
        """
        state = cloudpickle.dumps((type(self), self.__dict__))  # type: ignore[no-untyped-call]
        return _finding_its_code(), (_CODE, state)

    def _check(self, options: SourceOptions) -> None:
        """Check the stores and topics in the options, and begin to compile kernels, as soon as the source is created.

        Raises an error if a path is wrong. Prints a line for each topic that no store has.
        """
        for line in options.unknown_topics(options.logs()):
            log(line)
        start_compiling(options.columns or COLUMNS.names)

    def _columns(self, options: SourceOptions, schema: StructType) -> pa.Schema:
        """Return the schema that Spark expects of batches. Raises UsageError."""
        if options.columns is not None and options.columns != tuple(schema.names):
            raise UsageError("columns: pass columns or a schema, not both")
        return arrow_schema(schema)

    def _read_options(self) -> SourceOptions:
        return read_options(self.options, self.folder)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        with one_line():
            options = self._read_options()
        if options.columns is not None:
            return from_arrow_schema(select(options.columns))
        return from_arrow_schema(DAMAGE_COLUMNS if options.on_corrupt == "row" else COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        from reput.spark.reader import FilteredLogReader, LogReader

        end_quietly()
        with one_line():
            options = self._read_options()
            columns = self._columns(options, schema)
            if not options.push_filters:
                return LogReader(options, columns)
            reader = FilteredLogReader(options, columns)
            reader.load = self.load
            return reader

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from reput.spark.stream import LogStream, RefusedStream

        end_quietly()
        try:
            options = self._read_options()
            return LogStream(options, self._columns(options, schema))
        except ReputError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with one_line():
            raise UsageError(
                f"{NAME} can only be read; put messages with reput.open_store(mode='rw')"
            )


def _finding_its_code() -> Callable[[str, bytes], object]:
    """Return a function that Spark sends by value.

    It takes the folder of reput's code and a pickle, adds the folder to `sys.path`, and restores the pickled object.
    """

    def restored(folder: str, data: bytes) -> object:
        import sys

        from pyspark import cloudpickle

        if folder not in sys.path:
            sys.path.append(folder)
        kind, state = cloudpickle.loads(data)
        instance = object.__new__(kind)
        instance.__dict__.update(state)
        return instance

    return restored


def _is_to_be_written() -> bool:
    """Return whether Spark creates the source for writing. Only Spark's call stack shows this."""
    frames = (frame for frame, _ in traceback.walk_stack(None))
    names = (frame.f_code.co_filename for frame in frames)
    return any(os.path.basename(name) == "write_into_data_source.py" for name in names)


def _source_in(folder: str) -> type[RocketMQDataSource]:
    """Create the data source as a local class. Spark sends it by value, so its attribute `folder` is sent too."""
    return type(
        "RocketMQDataSourceHere", (RocketMQDataSource,), {"folder": folder, "__module__": __name__}
    )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema of batches of these columns for Spark. Raises UsageError for an unknown column."""
    if not schema.fields:
        raise UsageError("the schema must have at least one column, even to count rows")
    of_table = from_arrow_schema(select(map(column_name, schema.names)))
    for field, column in zip(schema.fields, of_table.fields, strict=True):
        expected = StructField(field.name, column.dataType, column.nullable)
        kind, stated = expected.dataType.simpleString(), field.dataType.simpleString()
        if stated != kind:
            raise UsageError(
                f"column {field.name} has type {kind}, not {stated}; correct the schema"
            )
        # If the given schema says that a column is never null, Spark trusts it. If there are nulls, Spark would return
        # wrong answers.
        if field != expected:
            raise UsageError(
                f"column {field.name}: its type, and all types in it, must be nullable"
            )
    return arrow_columns(schema)
