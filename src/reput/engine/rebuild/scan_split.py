"""The scan task: read one split, stage its batches, return its summary."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from posixpath import join

import numpy as np

from reput.core import (
    DispatchBatch,
    DispatchRules,
    FileScan,
    PassedRange,
    ScanBuffers,
    ScanMode,
    find_record,
)
from reput.engine.rebuild.batch_file import (
    BatchFileWriter,
    QueueRuns,
    extended,
    new_runs,
    read_summary,
)
from reput.engine.rebuild.splits import Split, SplitSummary
from reput.errors import FormatError, ObjectConflictError, StoreNotFoundError
from reput.format.file_names import offset_file_name
from reput.io import FileReader, FileWriter, OpenFile, StagedFiles


@dataclass(frozen=True, slots=True)
class ScanJob:
    """The common arguments of all scan tasks of a rebuild."""

    folder: str
    rules: DispatchRules
    salvage: bool
    open_file: OpenFile = FileReader


@dataclass(frozen=True, slots=True)
class ScanTask:
    """A scan of a split from `start` on. If `start` is None, the scan searches for the first record.

    A rescan may continue into later splits: `following` has each of them, and the offset at which its first scan began.
    The rescan stops when it reaches such an offset, because from there on the first scans are right.
    """

    split: Split
    start: int | None = None
    end_offset: int = 0
    following: tuple[tuple[Split, int | None], ...] = ()


def run_scan(job: ScanJob, task: ScanTask) -> list[SplitSummary]:
    """Return the summaries of the scanned splits. Safe to run twice, also at the same time."""
    summary = scan_split(job, task.split, task.start, task.end_offset)
    summaries = [summary]
    for split, first_start in task.following:
        if summary.finished:
            break
        if summary.end >= split.stop:
            continue
        if summary.end == first_start:
            break
        summary = scan_split(job, split, summary.end, summary.end_offset_out)
        summaries.append(summary)
    return summaries


def scan_split(
    job: ScanJob, split: Split, start: int | None = None, end_offset: int = 0
) -> SplitSummary:
    """Scan one split, or reuse the staged file of an earlier run for the same arguments.

    start       physical offset of the first record; None to search for it
    end_offset  physical offset of the message that was indexed last before this scan
    """
    source = start if start is not None else "search"
    name = f"{offset_file_name(split.begin)}-{split.stop}-{source}-{end_offset}"
    staged = join(job.folder, name)
    try:
        return _staged_summary(staged)
    except FormatError:
        # A killed attempt left the file without its footer.
        StagedFiles.delete(staged)
    except StoreNotFoundError:
        pass
    if start is None:
        start = split.begin
        if not split.opens_file:
            # The guess may be bytes of a body that imitate a record. Stitching finds that out.
            with job.open_file(split.file.path) as reader:
                start = find_record(reader, split.file, split.begin, split.stop, in_data=True)
    summary = SplitSummary(split.number, name, start, start if start is not None else split.begin)
    summary.end_offset_in = summary.end_offset_out = end_offset
    try:
        with StagedFiles.writing(staged) as attempt:
            _stage(job, split, attempt, summary)
    # A broker is writing the log. Another attempt at this task saw a different end of the log, and was the first to
    # stage its result. That result counts.
    except ObjectConflictError:
        return _staged_summary(staged)
    return summary


def _staged_summary(staged: str) -> SplitSummary:
    return SplitSummary.from_json(read_summary(staged))


@cache
def _buffers() -> ScanBuffers:
    """Return the scan buffers of this worker process, which all of its tasks reuse."""
    return ScanBuffers()


def _stage(job: ScanJob, split: Split, path: Path, summary: SplitSummary) -> None:
    with FileWriter(path) as file:
        writer = BatchFileWriter(file)
        runs, facts = new_runs(0), ""
        if summary.start is not None:
            runs, facts = _walk(job, split, writer, summary)
        writer.finish(summary.as_json(), runs, facts)


def _walk(
    job: ScanJob, split: Split, writer: BatchFileWriter, summary: SplitSummary
) -> tuple[QueueRuns, str]:
    scan = FileScan(
        split.file, summary.end, split.stop, ScanMode.SALVAGE if job.salvage else ScanMode.BROKER, job.rules,
        end_offset=summary.end_offset_in, buffers=_buffers(), open_file=job.open_file,
    )  # fmt: skip
    runs, facts = new_runs(0), PassedRange.begin(split.file, scan.end.position)
    for batch in scan.batches():
        writer.append(batch)
        if facts is not None:
            facts.add(batch)
        _count(batch, summary)
        runs = extended(runs, batch)
    summary.entries = int(runs["entries"].sum())
    summary.end, summary.finished = scan.end.position, scan.end.finished
    summary.unreadable = scan.end.unreadable
    summary.data_follows, summary.torn = scan.end.data_follows, scan.end.torn
    summary.end_offset_out = scan.end_offset
    summary.misplaced, summary.bad_multi = scan.misplaced, scan.bad_multi
    summary.damage, summary.hiding = scan.damage, scan.hiding
    if facts is None or scan.damage or scan.misplaced:
        return runs, ""
    return runs, facts.result(summary.end).encoded().decode()


def _count(batch: DispatchBatch, summary: SplitSummary) -> None:
    summary.messages += len(batch)
    summary.keys += len(batch.key_hash)
    summary.last_timestamp = int(batch.messages["store_timestamp"][-1])
    key_count = batch.messages["key_count"]
    if len(batch.key_hash) and summary.first_keyed_offset is None:
        first = np.argmax(key_count > 0)
        summary.first_keyed_offset = int(batch.messages["physical_offset"][first])
    # After a full IndexFile, IndexService creates the next one even for a message without keys. So note whether
    # messages without keys follow the last message with keys.
    summary.keyless_tail = bool(key_count[-1] == 0)
