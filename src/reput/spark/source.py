"""The data source `rocketmq`: the messages of CommitLogs as rows, for Spark's batch reads and streams.

    reput.spark.register(spark)
    spark.read.format("rocketmq").load("/data/broker-*/store")
    spark.read.format("rocketmq").option("columns", "topic, queue_id").load(path)

Columns are those of `reput.messages.schema`. Python's data sources are not told which columns a query has: the option
`columns`, or a schema, is the projection, and only its columns are decoded. With a schema Spark makes the source when
the first query runs, and what is wrong is reported then; else at `load()`. Nor do they rely on Spark's filters unless
a load asks for it: Spark keeps what one query pushed down with the loaded table, and reads the next query's rows by it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import suppress

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from reput.errors import ReputError, UsageError
from reput.kernels.compile_cache import has_compiled
from reput.log.paths import find_logs
from reput.log.sources import LogListing
from reput.messages.schema import COLUMNS, DAMAGE_COLUMNS, column_name, select
from reput.spark.arrow_types import arrow_columns
from reput.spark.errors import one_line
from reput.spark.log import log
from reput.spark.options import EARLIEST, LATEST, SourceOptions, read_options
from reput.spark.partitions import LogPartition, offsets_by_store, partitions_of, read_partition
from reput.spark.pushdown import condition_of
from reput.spark.ship import ARROW_DEPENDENCIES, ship_code
from reput.spark.stream import LogStream, RefusedStream
from reput.table.filters import choices
from reput.table.packing import bytes_of
from reput.table.plan import Bounds, plan_reading
from reput.table.topics import unknown_topics

NAME = "rocketmq"
_KERNELS = ("commit_log_scan.scan_records", "record_columns.locate_parts")
"""That take longest to compile; some others are compiled as soon as they are imported."""


def register(spark: SparkSession) -> None:
    """Make `rocketmq` a format of this session; on a cluster, send reput's code to executors that lack it.

    Relative paths begin in the folder in which this process runs now.

    Raises SparkJobError: the executors lack numba, numpy or pyarrow.
    """
    ship_code(spark.sparkContext, ARROW_DEPENDENCIES)
    spark.dataSource.register(_source_in(_current_folder()))


def _current_folder() -> str:
    with suppress(OSError):  # it may be deleted
        return os.getcwd()
    return ""


class RocketMQDataSource(DataSource):
    """Made by Spark, at `load()`; see `reput.spark.options` for what may be asked for."""

    folder = ""
    """Where relative paths begin; where Spark runs if empty."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        if "path" in options or "paths" in options:  # else whatever is asked for says so
            with one_line():
                self._check(self._read_options())

    def _check(self, options: SourceOptions) -> None:
        """Report what is wrong when the table is loaded, also where the schema is given."""
        sources = find_logs(options.paths, options.file_systems)
        for line in unknown_topics(sources, choices(options.selected, "topic") or ()):
            log(line)

    def _columns(self, options: SourceOptions, schema: StructType) -> pa.Schema:
        """What batches look like to Spark. Raises UsageError."""
        if options.columns is not None and options.columns != tuple(schema.names):
            raise UsageError("columns: give columns or a schema, not both")
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
        with one_line():
            options = self._read_options()
            made = FilteredLogReader if options.push_filters else LogReader
            return made(options, self._columns(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            options = self._read_options()
            return LogStream(options, self._columns(options, schema))
        except ReputError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with one_line():
            raise UsageError(
                f"{NAME} is for reading only; reput.open_store(mode='rw') puts messages"
            )


def _source_in(folder: str) -> type[RocketMQDataSource]:
    """A class of its own: Spark sends it by value, with the folder."""
    return type(
        "RocketMQDataSourceHere", (RocketMQDataSource,), {"folder": folder, "__module__": __name__}
    )


def arrow_schema(schema: StructType) -> pa.Schema:
    """What batches of these columns look like to Spark. Raises UsageError for a column that is none."""
    if not schema.fields:
        raise UsageError("the schema has no column; a count needs one")
    of_table = from_arrow_schema(select(map(column_name, schema.names)))
    for field, column in zip(schema.fields, of_table.fields, strict=True):
        own = StructField(field.name, column.dataType, column.nullable)
        kind, given = own.dataType.simpleString(), field.dataType.simpleString()
        if given != kind:
            raise UsageError(f"column {field.name} is {kind}, not {given}")
        if field != own:  # Spark takes its word for it, and answers wrongly
            raise UsageError(f"column {field.name}: say nullable, and so of all that is in it")
    return arrow_columns(schema)


class LogReader(DataSourceReader):
    """Reads what there is when the query is planned."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema
        self._conditions = options.conditions()

    def partitions(self) -> Sequence[InputPartition]:
        with one_line():
            return self._plan()

    def _plan(self) -> list[InputPartition]:
        options = self._options
        sources = find_logs(options.paths, options.file_systems)
        plan = plan_reading(
            sources,
            self._conditions,
            bounds=batch_bounds(options, sources),
            split_bytes=options.split_bytes,
            least_tasks=options.min_partitions,
            use_indexes=options.use_indexes,
            unwrap_batches=options.unwrap_batches,
        )
        planned = partitions_of(plan, options)
        if options.on_corrupt != "row":
            for _, lost in plan.missing:
                log(f"{lost}; continuing after them")
        if not has_compiled(*_KERNELS):
            log(
                "compiling kernels, once on this machine: the first rows take up to a minute longer"
            )
        if options.verbose:
            size = sum(bytes_of(task.part) for task in plan.tasks)
            for note in [*map(str, self._conditions), *plan.notes]:
                log(note)
            log(f"{len(plan.tasks)} ranges of {size} bytes to look at, in {len(planned)} tasks")
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPartition)
        return read_partition(partition, self._options, self._schema, self._conditions)


class FilteredLogReader(LogReader):
    """A reader that answers Spark's filters, of the one query that its table is loaded for."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for given in filters:
            condition = condition_of(given)
            if condition is None:
                yield given
            else:
                self._conditions.append(condition)


def batch_bounds(options: SourceOptions, sources: Sequence[LogListing]) -> dict[str, Bounds]:
    """By store. Raises UsageError."""
    if options.starting_offsets == LATEST:
        raise UsageError("startingOffsets latest: a batch has nothing to read from there")
    if options.ending_offsets == EARLIEST:
        raise UsageError("endingOffsets earliest: a batch has nothing to read up to there")
    start = offsets_by_store(options.starting_offsets, "startingOffsets", sources)
    stop = offsets_by_store(options.ending_offsets, "endingOffsets", sources)
    names = [source.name for source in sources]
    return {name: Bounds(start.get(name), stop.get(name)) for name in names}
