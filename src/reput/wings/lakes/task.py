"""Run one task of an export: write a range of the log into data files, read them back and count rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.base import Finding
from reput.core import CommitLogFile, ScanBuffers
from reput.engine.rebuild import first_record, small_log
from reput.engine.tables import LogRange, RangeBatches, ReadTask
from reput.format.file_names import offset_file_name
from reput.io import FileReader, Scratch
from reput.wings.lakes.body_decoders import BodyDecoder
from reput.wings.lakes.body_shape import BodyShape
from reput.wings.lakes.data_file import DataFile, RowTally, tally_of
from reput.wings.lakes.decoding import decode_bodies
from reput.wings.lakes.json_body import parse_bodies, parse_permissively, with_charset
from reput.wings.lakes.parquet_files import ParquetFiles
from reput.wings.lakes.parsed_bodies import Misfit, ParsedBodies
from reput.wings.lakes.reject_reasons import Reasons
from reput.wings.lakes.request import JSON, KEY, TEXT_PARTITIONS, ExportRequest
from reput.wings.lakes.upsert import split_by_keys

REASON = pa.field("reason", pa.string())
"""The column that states why a row was rejected."""

_SAMPLED_RANGES = 16


@dataclass(frozen=True)
class ExportJob:
    """The common arguments of all tasks of an export.

    folder       folder for staged files, which all tasks can access
    file_schema  schema of the files
    reject_schema  schema of files of rejected rows
    shape        shape of bodies; None if they stay bytes
    why_no_partition  function that returns why a value cannot name a partition (see `Destination`); None if the
                      table is not partitioned by a text column
    decoder      decoder of bodies that are not JSON
    """

    request: ExportRequest
    folder: str
    file_schema: pa.Schema
    reject_schema: pa.Schema
    shape: BodyShape | None
    why_no_partition: Callable[[str, str], str] | None = None
    decoder: BodyDecoder | None = None


@dataclass(slots=True)
class TaskResult:
    """The result of a task.

    start, end    physical offsets at which the first record begins and the last one ends; if no record begins in the
                  range, `start` is at or after the end of the range
    messages      number of messages in the range, requested or not
    read, files   tally of the rows that were read, and the files that were written (see `run_export`)
    bad_bodies    rows whose stored body does not match the stored CRC, if this was checked
    reasons       number of rows for each reason why a row was rejected or one of its fields is null
    json_errors   rows with fields that are null because a value does not fit the type of its field
    """

    start: int
    end: int
    messages: int = 0
    read: RowTally = field(default_factory=RowTally)
    files: list[DataFile] = field(default_factory=list)
    damage: list[Finding] = field(default_factory=list)
    bad_bodies: int = 0
    reasons: Reasons = field(default_factory=Reasons)
    json_errors: int = 0


def run_export(job: ExportJob, tasks: Sequence[ReadTask]) -> list[TaskResult]:
    """Run some consecutive tasks, and return the result of each. The last result has the files of all.

    Their rows share files, so that many small log files do not make many small data files.

    The same tasks may run twice, even at the same time. Raises StoreAccessError and the errors of `RangeBatches`.
    """
    is_fast = job.request.is_fast
    rows = ParquetFiles(job.folder, job.file_schema, job.request.partition_by, is_fast=is_fast)
    rejects = ParquetFiles(job.folder, job.reject_schema, (), is_reject=True, is_fast=is_fast)
    try:
        results = [_run(job, task, rows, rejects) for task in tasks]
        results[-1].files = [*rows.finish(), *rejects.finish()]
    except BaseException:
        rows.abandon()
        rejects.abandon()
        raise
    return results


def _run(job: ExportJob, task: ReadTask, rows: ParquetFiles, rejects: ParquetFiles) -> TaskResult:
    part = task.part
    start = part.start
    if not part.by_queue and not part.at_record:
        # A range may begin within a record.
        start = first_record(task.open_file, part.file, part.start, part.stop, _buffers())
        part = replace(part, start=start, at_record=True)
    result = TaskResult(start, start)
    if start >= part.stop:
        # No record begins in the range.
        return result
    batches = RangeBatches(
        part, read_columns(job), job.request.conditions(), on_corrupt=job.request.on_corrupt,
        decompressed=job.request.decompressed, open_file=task.open_file, buffers=_buffers(),
    )  # fmt: skip
    _write(job, batches, result, rows, rejects)
    report = batches.report
    result.end, result.messages, result.damage = report.end, report.messages, report.damage
    return result


def read_columns(job: ExportJob) -> list[str]:
    """Return the columns that must be decoded."""
    request = job.request
    names = [name for name in request.table_schema().names if name != KEY.name]
    if KEY.name in request.table_schema().names:
        names.append("keys")
    if job.shape is not None or job.why_no_partition is not None or job.request.upsert_by:
        # Rejected rows may have more columns than accepted rows.
        names += [name for name in job.reject_schema.names if name not in (KEY.name, REASON.name)]
    names += [
        name if name in TEXT_PARTITIONS else "store_timestamp" for name in request.partition_by
    ]
    # Commits are verified by the sum of sizes, so the column `size` is always needed.
    return list(dict.fromkeys([*names, "size"]))


@cache
def _buffers() -> ScanBuffers:
    """Return the buffers that this worker reuses for all its tasks."""
    return ScanBuffers()


def _write(
    job: ExportJob,
    batches: RangeBatches,
    result: TaskResult,
    rows: ParquetFiles,
    rejects: ParquetFiles,
) -> None:
    for batch in batches:
        result.read += tally_of(batch)
        if "body_crc_ok" in batch.schema.names:
            result.bad_bodies += batch["body_crc_ok"].false_count
        batch = with_key(batch)
        # Each check sees only the rows that passed the earlier ones, so a row is rejected once, for one reason.
        if job.why_no_partition is not None:
            for name in job.request.text_partitions:
                batch, refused = split_by_text(batch, name, job.why_no_partition, result.reasons)
                _reject(refused, rejects)
        if job.request.upsert_by is not None:
            batch, refused = split_by_keys(batch, REASON, result.reasons)
            _reject(refused, rejects)
        if job.shape is not None and job.request.is_permissive:
            batch = with_values(batch, job, job.shape, result.reasons)
            errors = batch[job.request.error_column.name]
            result.json_errors += len(batch) - errors.null_count
        elif job.shape is not None:
            batch, misfits = split_by_fit(batch, job, job.shape, result.reasons)
            _reject(misfits, rejects)
        rows.write(batch)


def _reject(batch: pa.RecordBatch, rejects: ParquetFiles) -> None:
    if len(batch):
        rejects.write(batch)


def with_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add the column `key`: the first of each row's `keys`. Return the batch unchanged if it has no `keys`."""
    if "keys" not in batch.schema.names:
        return batch
    keys = batch["keys"]
    offsets: npt.NDArray[np.int32] = keys.offsets.to_numpy()
    # The first key of each row, or null for a row without keys.
    first = pa.array(offsets[:-1], mask=offsets[:-1] == offsets[1:])
    return batch.append_column(KEY, keys.values.take(first))


def split_by_text(
    batch: pa.RecordBatch,
    name: str,
    why_no_partition: Callable[[str, str], str],
    reasons_counted: Reasons,
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Split off rows whose value in this column cannot name a partition.

    These rows get a column `reason`. The reasons are counted.
    """
    # A batch has few different values, so each is checked only once.
    texts = pc.unique(batch[name]).drop_null()
    why = {text: reason for text in texts.to_pylist() if (reason := why_no_partition(name, text))}
    if not why:
        return batch, batch.slice(0, 0)
    texts_refused = pa.array(why.keys(), pa.string())
    place = pc.index_in(batch[name], texts_refused)
    refused = batch.filter(place.is_valid())
    for entry in pc.value_counts(refused[name]).to_pylist():
        reason = why[entry["values"]]
        reasons_counted.add([Misfit(reason, reason, entry["values"])], entry["counts"])
    reasons = pa.array(why.values(), REASON.type).take(place.drop_null())
    return batch.filter(place.is_null()), refused.append_column(REASON, reasons)


def split_by_fit(
    batch: pa.RecordBatch, job: ExportJob, shape: BodyShape, counted: Reasons
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the rows whose bodies fit the table's types, with the decoded values, and the other rows.

    The other rows have a column `reason`. The reasons are counted.
    """
    parsed = _parsed(batch["body"], job, shape, counted)
    values = pa.field(job.request.value_column, shape.type)
    if not parsed.misfits:
        return batch.append_column(values, parsed.values), batch.slice(0, 0).append_column(
            REASON, pa.array([], REASON.type)
        )
    reasons = parsed.reasons
    good = batch.append_column(values, parsed.values).filter(reasons.is_null())
    return good, batch.append_column(REASON, reasons).filter(reasons.is_valid())


def with_values(
    batch: pa.RecordBatch, job: ExportJob, shape: BodyShape, counted: Reasons
) -> pa.RecordBatch:
    """Add a column with the values of the bodies, and a column with the reasons why values are null.

    A value that does not match the type of its field in `shape` becomes null. `counted` counts the reasons.
    """
    parsed = _parsed(batch["body"], job, shape, counted)
    values = pa.field(job.request.value_column, shape.type)
    columns = batch.append_column(values, parsed.values)
    return columns.append_column(job.request.error_column, parsed.reasons)


def _parsed(
    bodies: pa.BinaryArray, job: ExportJob, shape: BodyShape, counted: Reasons
) -> ParsedBodies:
    request = job.request
    if job.decoder is not None:
        parsed = decode_bodies(bodies, shape, job.decoder, is_permissive=request.is_permissive)
    else:
        parse = parse_permissively if request.is_permissive else parse_bodies
        parsed = with_charset(bodies, request.charset, lambda texts: parse(texts, shape))
    for misfits in parsed.misfits.values():
        counted.add(misfits)
    return parsed


def sample_bodies(
    tasks: list[ReadTask], request: ExportRequest, most: int
) -> Iterator[bytes | None]:
    """Yield sample bodies from several ranges, to infer the fields. Only one batch is in memory at a time."""
    # Choose evenly spaced ranges, so that the sample covers the whole log.
    sample = tasks[:: max(-(-len(tasks) // _SAMPLED_RANGES), 1)]
    for task in sample:
        yield from _first_bodies(task, request, -(-most // len(sample)))


def _first_bodies(task: ReadTask, request: ExportRequest, most: int) -> Iterator[bytes | None]:
    """Yield the bodies of the first batch of a range."""
    batches = RangeBatches(
        task.part, ["body"], request.conditions(), on_corrupt="skip", open_file=task.open_file,
        decompressed=request.decompressed, buffers=_buffers(),
    )  # fmt: skip
    for batch in batches:
        yield from (body.as_py() for body in batch["body"].slice(0, most))
        return


@cache
def warm_up() -> None:
    """Export three messages, which compiles every kernel that an export calls, or loads it from the cache."""
    records = small_log()
    with Scratch.file("", offset_file_name(0), records) as folder:
        log = CommitLogFile(0, len(records), str(folder / offset_file_name(0)))
        request, shape = (
            ExportRequest(json_body="a schema"),
            BodyShape(pa.schema([("field", pa.string())])),
        )
        schema = pa.schema([*request.table_schema(), pa.field(JSON, shape.type)])
        reject_schema = pa.schema([*request.table_schema(), REASON])
        job = ExportJob(request, str(folder), schema, reject_schema, shape)
        run_export(job, [ReadTask(LogRange.whole(log), FileReader)])
