"""Combine small data files of one partition: files of a run before its commit, or files of a table in a compaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from posixpath import join

import pyarrow as pa

from reput.base import Runner
from reput.errors import StoreAccessError, UsageError, explained
from reput.io import Parquet, StagedFiles
from reput.wings.lakes.data_file import DataFile, RowTally, tally_of, total_of
from reput.wings.lakes.parquet_files import ParquetFiles
from reput.wings.lakes.partitions import PartitionValues

TARGET_BYTES = 256 << 20
LEAST_TARGET_BYTES = 1 << 10
_BATCH_BYTES = 8 << 20
_WORTH_IT = 4
"""Files of at least 1/4 of the target size are not combined: rewriting costs more than readers gain."""

_WORTH_IT_AT_ONCE = 8 << 20
"""Of the files that it wrote, a run combines only those with fewer bytes than this number. If the run combined all its
files, it would write nearly all rows twice. A later compaction can combine the larger files."""


def check_target(target_bytes: int) -> int:
    """Return the target size unchanged. Raises UsageError if it is too small."""
    if target_bytes < LEAST_TARGET_BYTES:
        raise UsageError(
            f"target_file_bytes must be at least {LEAST_TARGET_BYTES}, not {target_bytes}",
            arguments=["target_file_bytes"],
        )
    return target_bytes


@dataclass(frozen=True)
class MergeJob:
    """The common arguments of all merges of a run.

    source, folder  folder of the files, and folder for new files; all tasks can access both
    schema          current schema of rows; older files may lack some of its fields
    reject_schema   current schema of rejected rows
    is_run          whether a run combines its own files; otherwise, a compaction combines files of the table
    is_fast         see `ParquetFiles`
    """

    source: str
    folder: str
    schema: pa.Schema
    reject_schema: pa.Schema
    is_run: bool = False
    is_fast: bool = False


Group = tuple[DataFile, ...]


def is_small(file_bytes: int, target_bytes: int) -> bool:
    """Return whether compaction combines a file of this size with others."""
    return file_bytes * _WORTH_IT < target_bytes


def most_small_files(files: Sequence[DataFile], target_bytes: int) -> int:
    """Return the number of small files in the partition with the most small files."""
    small = (file for file in files if is_small(file.file_bytes, target_bytes))
    counts = Counter((file.is_reject, file.partition) for file in small)
    return max(counts.values(), default=0)


def groups_of(files: Sequence[DataFile], target_bytes: int, is_run: bool = False) -> list[Group]:
    """Return groups of small files to combine: at least two files of one partition, together up to the target size."""
    small: dict[tuple[bool, PartitionValues], list[DataFile]] = {}
    for file in files:
        if is_small(file.file_bytes, target_bytes) and (
            not is_run or file.file_bytes < _WORTH_IT_AT_ONCE
        ):
            small.setdefault((file.is_reject, file.partition), []).append(file)
    packed = (
        group
        for files_of_partition in small.values()
        for group in _packed(files_of_partition, target_bytes)
    )
    return [group for group in packed if len(group) > 1]


def _packed(files: Sequence[DataFile], target_bytes: int) -> Iterator[Group]:
    waiting: list[DataFile] = []
    size = 0
    for file in files:
        if waiting and size + file.file_bytes > target_bytes:
            yield tuple(waiting)
            waiting, size = [], 0
        waiting.append(file)
        size += file.file_bytes
    if waiting:
        yield tuple(waiting)


def merged_files(
    job: MergeJob,
    files: Sequence[DataFile],
    target_bytes: int,
    runner: Runner,
    progress: Callable[[int, int], None],
) -> tuple[list[DataFile], list[DataFile]]:
    """Return the files that were combined, and the new files with their rows. Raises StoreAccessError."""
    groups = groups_of(files, target_bytes, job.is_run)
    weights = [sum(file.file_bytes for file in group) for group in groups]
    done = runner.run(partial(run_merge, job), groups, weights, progress) if groups else []
    return [file for group in groups for file in group], [file for new in done for file in new]


def run_merge(job: MergeJob, group: Group) -> list[DataFile]:
    """Merge a group of files.

    A second call for the same group does no harm. Raises StoreAccessError, for example if the rows written differ from
    the rows read.
    """
    # All files of a group belong to one partition, so the rows need not be divided again.
    first = group[0]
    schema = job.reject_schema if first.is_reject else job.schema
    writer = ParquetFiles(job.folder, schema, (), first.is_reject, is_fast=job.is_fast)
    read = RowTally()
    try:
        for file in group:
            with StagedFiles.reading(join(job.source, file.name)) as path:
                for batch in batches_of(Path(path)):
                    read += tally_of(batch)
                    writer.write(shaped(batch, schema))
        written = writer.finish()
    except BaseException:
        writer.abandon()
        raise
    expected = total_of(file.tally for file in group)
    holds = total_of(file.tally for file in written)
    if not (read.agrees_with(expected) and holds.agrees_with(read)):
        raise StoreAccessError(
            f"{job.folder}: files with {expected} were combined into files with {holds}; "
            "nothing was committed. Check the disk, then repeat the operation"
        )
    return [replace(file, partition=first.partition) for file in written]


def batches_of(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in batches of about `_BATCH_BYTES`."""
    with explained(path, "be read"), Parquet.opened(path) as file:
        groups = range(file.metadata.num_row_groups)
        size = sum(file.metadata.row_group(n).total_byte_size for n in groups)
        # The number of rows that take about `_BATCH_BYTES`.
        rows = max(file.metadata.num_rows * _BATCH_BYTES // max(size, 1), 1)
        for batch in file.iter_batches(batch_size=min(rows, 1 << 16), use_threads=False):
            # pyarrow does not check whether texts in Parquet files are UTF-8.
            batch.validate(full=True)
            yield batch


def shaped(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with the columns of a schema. Columns and fields that the rows lack become null."""
    columns = [
        batch[column.name].cast(column.type)
        if column.name in batch.schema.names
        else pa.nulls(len(batch), column.type)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
