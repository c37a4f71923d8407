"""One task of an export: a range of the log into data files, read back and counted."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.export.data_file import DataFile
from reput.export.json_body import parse_bodies
from reput.export.json_shape import JsonShape
from reput.export.parquet_files import ParquetFiles
from reput.export.request import JSON_COLUMN, KEY, ExportRequest
from reput.export.tally import Tally, tally_of
from reput.files.reader import FileReader
from reput.format.commit_log import encode
from reput.format.file_names import offset_file_name
from reput.store.commit_log_files import CommitLogFile
from reput.store.damage import Damage
from reput.store.rebuild.warm_up import small_message
from reput.store.scan import ScanBuffers
from reput.table.plan import ReadTask
from reput.table.read import LogRange, RangeBatches
from reput.table.splits import first_record

REASON = pa.field("reason", pa.string())
"""Further column of dead letters: why the body does not fit."""


@dataclass(frozen=True)
class ExportJob:
    """What all tasks of an export have in common.

    folder       where files are staged, seen by all who run tasks
    file_schema  of the files, dead_schema that of files of dead letters
    shape        that bodies are to have, None where they stay bytes
    """

    request: ExportRequest
    folder: str
    file_schema: pa.Schema
    dead_schema: pa.Schema
    shape: JsonShape | None


@dataclass(slots=True)
class TaskResult:
    """What became of a range.

    start, end    physical offsets of the walk; start is not below the range's stop where no record begins there
    messages      walked over, whether they were asked for or not
    read, files   what was read; what was written
    bad_bodies    rows whose stored body has not the stored CRC, if that was looked at
    """

    start: int
    end: int
    messages: int = 0
    read: Tally = field(default_factory=Tally)
    files: list[DataFile] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    bad_bodies: int = 0


def run_export(job: ExportJob, task: ReadTask) -> TaskResult:
    """Safe to run twice, and beside itself. Raises what `RangeBatches` raises, and StoreAccessError."""
    part = task.part
    start = part.start
    if part.topics is None and not part.at_record:
        start = first_record(task.open_file, part.file, part.start, part.stop, _buffers())
        part = replace(part, start=start, at_record=True)
    result = TaskResult(start, start)
    if start >= part.stop:
        return result
    batches = RangeBatches(
        part, read_columns(job), job.request.conditions(), on_corrupt=job.request.on_corrupt,
        decompressed=job.request.decompressed, open_file=task.open_file, buffers=_buffers(),
    )  # fmt: skip
    _write(job, batches, result)
    report = batches.report
    result.end, result.messages, result.damage = report.end, report.messages, report.damage
    return result


def read_columns(job: ExportJob) -> list[str]:
    """The columns that must be decoded."""
    request = job.request
    names = [name for name in request.table_schema().names if name != KEY.name]
    if KEY.name in request.table_schema().names:
        names.append("keys")
    if job.shape is not None:
        names += [name for name in job.dead_schema.names if name not in (KEY.name, REASON.name)]
    names += ["topic" if name == "topic" else "store_timestamp" for name in request.partition_by]
    # The bodies' CRCs and the sizes are what a commit is held against.
    return list(dict.fromkeys([*names, "size"]))


@cache
def _buffers() -> ScanBuffers:
    """A worker process keeps its buffers from task to task."""
    return ScanBuffers()


def _write(job: ExportJob, batches: RangeBatches, result: TaskResult) -> None:
    rows = ParquetFiles(job.folder, job.file_schema, job.request.partition_by)
    dead = ParquetFiles(job.folder, job.dead_schema, (), is_dead=True)
    try:
        for batch in batches:
            result.read += tally_of(batch)
            if "body_crc_ok" in batch.schema.names:
                result.bad_bodies += batch["body_crc_ok"].false_count
            batch = with_key(batch)
            if job.shape is not None:
                batch, misfits = split_by_fit(batch, job.shape)
                dead.write(misfits)
            rows.write(batch)
        result.files = [*rows.finish(), *dead.finish()]
    except BaseException:
        rows.abandon()
        dead.abandon()
        raise


def with_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the column `key`, if it has `keys`."""
    if "keys" not in batch.schema.names:
        return batch
    keys = batch["keys"]
    offsets: npt.NDArray[np.int32] = keys.offsets.to_numpy()
    first = pa.array(offsets[:-1], mask=offsets[:-1] == offsets[1:])
    return batch.append_column(KEY, keys.values.take(first))


def split_by_fit(batch: pa.RecordBatch, shape: JsonShape) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows whose bodies fit, with the column `json`; the others, with `reason`."""
    parsed = parse_bodies(batch["body"], shape)
    fits = parsed.reasons.is_null()
    values = pa.field(JSON_COLUMN, shape.type)
    if parsed.reasons.null_count == len(batch):
        return batch.append_column(values, parsed.values), batch.slice(0, 0).append_column(
            REASON, pa.array([], REASON.type)
        )
    good = batch.append_column(values, parsed.values).filter(fits)
    bad = batch.append_column(REASON, parsed.reasons).filter(parsed.reasons.is_valid())
    return good, bad


def sample_bodies(
    tasks: list[ReadTask], request: ExportRequest, most: int, most_tasks: int = 16
) -> pa.BinaryArray:
    """Bodies from here and there, to learn their shape from."""
    chosen = tasks[:: max(-(-len(tasks) // most_tasks), 1)]
    found = [pa.array([], pa.binary())]
    for task in chosen:
        found.append(next(_some(task, request, -(-most // len(chosen))), found[0]))
    return pa.concat_arrays(found)


def _some(task: ReadTask, request: ExportRequest, most: int) -> Iterator[pa.BinaryArray]:
    batches = RangeBatches(
        task.part, ["body"], request.conditions(), on_corrupt="skip", open_file=task.open_file,
        decompressed=request.decompressed, buffers=_buffers(),
    )  # fmt: skip
    for batch in batches:
        yield batch["body"].slice(0, most)


@cache
def warm_up() -> None:
    """Export one message, which compiles every kernel that an export calls, or loads it from the cache."""
    with tempfile.TemporaryDirectory(prefix="reput-warm-up-") as folder:
        file = Path(folder) / offset_file_name(0)
        file.write_bytes(encode(small_message()))
        log = CommitLogFile(0, file.stat().st_size, str(file))
        request, shape = ExportRequest(), JsonShape(pa.schema([("field", pa.string())]))
        schema = pa.schema([*request.table_schema(), pa.field(JSON_COLUMN, shape.type)])
        dead_schema = pa.schema([*request.table_schema(), REASON])
        job = ExportJob(request, folder, schema, dead_schema, shape)
        run_export(job, ReadTask(LogRange.whole(log), FileReader))
