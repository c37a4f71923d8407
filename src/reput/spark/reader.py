"""Implement `read` of the data source. Planning runs in a process of the driver, reading in processes of executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from reput.core import LogListing
from reput.engine.messages import column_name
from reput.engine.tables import (
    Bounds,
    Condition,
    compile_for,
    light_queues,
    plan_lines,
    plan_reading,
    start_compiling,
)
from reput.errors import UsageError
from reput.spark.errors import log, one_line
from reput.spark.options import EARLIEST, LATEST, SourceOptions
from reput.spark.partitions import LogPartition, offsets_by_store, partitions_of, read_partition
from reput.spark.pushdown import condition_of
from reput.spark.single_query import SingleQueryPlan


class LogReader(DataSourceReader):
    """Reads the messages that exist when the query is planned."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema
        self._conditions = options.conditions()

    def partitions(self) -> Sequence[InputPartition]:
        with one_line():
            return self._plan()

    def _plan(self) -> list[LogPartition]:
        options = self._options
        if start_compiling(map(column_name, self._schema.names)):
            log("compiling kernels, once on this machine; the query waits for them")
        compile_for(())
        for line in light_queues(self._conditions):
            log(line)
        sources = options.logs()
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
            for missing in plan.missing:
                log(f"{missing.lost}; continuing after them")
        whole = sum(file.size for source in sources for file in source.files)
        conditions = ", ".join(map(str, self._conditions)) or "none"
        planned[0].explanation = (f"conditions: {conditions}", *plan_lines(plan, whole))
        if options.verbose:
            for note in [*map(str, self._conditions), *plan.notes]:
                log(note)
            size = plan.log_bytes
            log(f"{len(plan.tasks)} ranges of {size} bytes to look at, in {len(planned)} tasks")
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPartition)
        return read_partition(partition, self._options, self._schema, self._conditions)


class FilteredLogReader(LogReader):
    """A reader that applies Spark's filters. Its table must be loaded for a single query.

    Attributes:
        load: Identifies the loaded table.
    """

    load = ""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._pushed: list[Condition] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        rest = []
        for spark_filter in filters:
            condition = condition_of(spark_filter)
            if condition is None:
                rest.append(spark_filter)
            else:
                self._pushed.append(condition)
        self._conditions += self._pushed
        return rest

    def _plan(self) -> list[LogPartition]:
        partitions = super()._plan()
        if self._pushed:
            plan = SingleQueryPlan.of(self.load, self._pushed)
            for partition in partitions:
                partition.plan = plan
        return partitions


def batch_bounds(options: SourceOptions, sources: Sequence[LogListing]) -> dict[str, Bounds]:
    """Return, for each store, the bounds between which a batch query reads. Raises UsageError."""
    if options.starting_offsets == LATEST:
        raise UsageError("startingOffsets: latest is for streams; a batch would read nothing")
    if options.ending_offsets == EARLIEST:
        raise UsageError("endingOffsets: earliest is not possible; a batch would read nothing")
    start = offsets_by_store(options.starting_offsets, "startingOffsets", sources)
    stop = offsets_by_store(options.ending_offsets, "endingOffsets", sources)
    names = [source.name for source in sources]
    return {name: Bounds(start.get(name), stop.get(name)) for name in names}
