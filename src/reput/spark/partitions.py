"""Run the tasks of the data source: convert ranges of CommitLog files to Arrow batches for Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from reput.base import counted
from reput.core import LogListing, ScanBuffers
from reput.engine import tables
from reput.engine.messages import column_name
from reput.errors import StoreNotFoundError, UsageError
from reput.spark.errors import log, one_line
from reput.spark.options import Offsets, SourceOptions
from reput.spark.single_query import SingleQueryPlan
from reput.spark.workers import set_modules_aside

_buffers: list[ScanBuffers] = []


class LogPartition(InputPartition):
    """Ranges of stores to read, and missing files to report as rows. A partition with neither yields no rows.

    plan: the plan of the partition if it has pushed filters; else None
    explanation: in the first partition, the lines that describe the plan
    """

    def __init__(
        self, tasks: tuple[tables.ReadTask, ...] = (), missing: tuple[tables.MissingLog, ...] = ()
    ) -> None:
        self.tasks, self.missing = tasks, missing
        self.plan: SingleQueryPlan | None = None
        self.explanation: tuple[str, ...] = ()


def partitions_of(plan: tables.ReadPlan, options: SourceOptions) -> list[LogPartition]:
    """Pack ranges into partitions. Returns one empty partition if there is nothing to read.

    Raises CorruptMessageError for missing files, depending on the options.
    """
    if plan.missing and options.on_corrupt == "fail" and options.fail_on_data_loss:
        raise plan.missing[0].lost.as_error(
            "; to continue after the damage, set onCorrupt to 'skip' or 'row'"
        )
    batches = plan.packed(options.split_bytes, options.min_partitions)
    partitions = [LogPartition(tasks) for tasks in batches]
    if plan.missing and options.on_corrupt == "row":
        partitions.append(LogPartition(missing=tuple(plan.missing)))
    return partitions or [LogPartition()]


def offsets_by_store(
    offsets: Offsets | None, option: str, sources: Sequence[LogListing]
) -> dict[str, int]:
    """Return, by store name, the start or end offsets that an option states. Raises UsageError for an unknown store."""
    names = [source.name for source in sources]
    if isinstance(offsets, int):
        return dict.fromkeys(names, offsets)
    if not isinstance(offsets, dict):
        return {}
    if unknown := [name for name in offsets if name not in names]:
        raise UsageError(f"{option}: no store {unknown[0]}; the stores are {', '.join(names)}")
    return offsets


def read_partition(
    partition: LogPartition,
    options: SourceOptions,
    schema: pa.Schema,
    conditions: Sequence[tables.Condition],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition in batches of this schema."""
    with one_line():
        if partition.plan is not None:
            partition.plan.check()
        tables.compile_for(map(column_name, schema.names))
        set_modules_aside()
        for missing in partition.missing:
            yield _shaped(missing.row(conditions), schema)
        with closing(tables.OpenedQueues()) as queues:
            for task in partition.tasks:
                yield from _read(task, options, schema, conditions, queues)


def read_sample(tasks: Sequence[tables.ReadTask], columns: Sequence[str]) -> None:
    """Read some ranges, and drop their rows."""
    with closing(tables.OpenedQueues()) as queues:
        for task in tasks:
            batches = tables.RangeBatches(
                task.part, columns, on_corrupt="skip", open_file=task.open_file, opened=queues
            )
            for _ in batches:
                pass


def _read(
    task: tables.ReadTask,
    options: SourceOptions,
    schema: pa.Schema,
    conditions: Sequence[tables.Condition],
    queues: tables.OpenedQueues,
) -> Iterator[pa.RecordBatch]:
    # A worker process reads many partitions, one after the other, so reuse its buffers.
    buffers = _buffers.pop() if _buffers else ScanBuffers()
    batches = tables.RangeBatches(
        task.part, map(column_name, schema.names), conditions, on_corrupt=options.on_corrupt,
        decompressed=options.decompress, unwrap_batches=options.unwrap_batches,
        open_file=task.open_file, buffers=buffers, opened=queues,
    )  # fmt: skip
    try:
        for batch in batches:
            yield _shaped(batch, schema)
        if options.verbose:
            log(_done(task, batches))
    except StoreNotFoundError as error:
        if options.fail_on_data_loss:
            raise
        log(f"{error}; the file has expired, failOnDataLoss=false continues without it")
    finally:
        _buffers.append(buffers)
    for lost in batches.report.damage:
        log(str(lost))


def _done(task: tables.ReadTask, batches: tables.RangeBatches) -> str:
    """Return a log line about a finished task. Spark itself does not count the bytes that a Python source reads."""
    part, report = task.part, batches.report
    return (
        f"{part.store}: {part.file.path}: offsets {part.start} to {part.stop}: {part.log_bytes:,} bytes to look at, "
        f"{counted(report.messages, 'message')} there, {counted(report.rows, 'row')}"
    )


def _shaped(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [batch.column(column_name(name)) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
