"""Export messages as JSON Lines, in the order of the log, into a stream or into a file to which each export appends.

`<file>.reput.json`, beside the file, records the last commit: the number of committed bytes, and for each store the
offset up to which its log was exported (the mark). If `<file>` has more bytes than were committed, an interrupted run
wrote the rest, and the next run truncates the file.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from reput.base import Finding, Progress, silent
from reput.core import LogListing, ScanBuffers, ScannedPiece
from reput.engine.messages import ALL_COLUMNS, log_lines
from reput.engine.tables import ReadMark, ReadTask
from reput.errors import StoreAccessError, UsageError, explained
from reput.format.untrusted_json import parse_json
from reput.io import DISK, FileReader, locked
from reput.wings.lakes.commit import State, understood
from reput.wings.lakes.planning import check_apart, extents_of, plan_of
from reput.wings.lakes.report import ExportReport
from reput.wings.lakes.request import DEFAULT_SETTINGS, ExportRequest, ExportSettings

_BUFFER_BYTES = 1 << 20
# Ranges are not split, because one process writes all lines in order.
_WHOLE_FILES = 1 << 62


def export_lines(
    sources: Sequence[LogListing],
    output: str | BinaryIO,
    request: ExportRequest,
    settings: ExportSettings = DEFAULT_SETTINGS,
    progress: Progress = silent,
) -> ExportReport:
    """Write each message of the stores once, into a file or a stream. An export to a stream cannot be incremental.

    Raises StoreError, UsageError.
    """
    for name, value in (("columns", request.columns), ("partition_by", request.partition_by)):
        if value:
            raise UsageError(
                f"{name} is only for tables; JSON lines have all fields", arguments=[name]
            )
    if (
        request.value_column is not None
        or request.upsert_by is not None
        or request.on_corrupt == "row"
    ):
        raise UsageError(
            "JSON Lines do not support the options body, json_body, upsert_by or on_corrupt=row; "
            "export to a table",
            arguments=["body", "json_body", "upsert_by", "on_corrupt"],
        )
    begun = time.monotonic()
    if output == "":
        raise UsageError("name a file, or - for stdout")
    name = output if isinstance(output, str) else "-"
    lines = _LinesExport(sources, request, settings, progress, ExportReport(name))
    if isinstance(output, str):
        with DISK.writing_to(
            output, [source.folder for source in sources if source.folder is not None]
        ):
            _into_file(Path(os.path.abspath(output)), lines, settings.incremental)
    elif settings.incremental:
        raise UsageError(
            "incremental needs a file: a stream does not record where the last run ended",
            arguments=["incremental"],
        )
    else:
        lines.write(output, None)
        output.flush()
        lines.report.committed = True
    lines.report.total_s = time.monotonic() - begun
    return lines.report.sealed()


class _LinesExport:
    """One export; its steps fill the report."""

    def __init__(
        self,
        sources: Sequence[LogListing],
        request: ExportRequest,
        settings: ExportSettings,
        progress: Progress,
        report: ExportReport,
    ) -> None:
        self.sources, self.request, self.report, self.progress = sources, request, report, progress
        self._fail_on_data_loss = settings.fail_on_data_loss
        self._buffers = ScanBuffers()

    def write(self, output: BinaryIO, state: State | None) -> dict[str, ReadMark]:
        """Write the messages that earlier runs did not read. Return the offset up to which each store is now read.

        `state` has these offsets after the last run. If `state` is None, write all messages.
        """
        bounds, ends = extents_of(self.sources, state, self.report, self.request)
        plan = plan_of(
            self.sources, bounds, self.request, self._fail_on_data_loss, _WHOLE_FILES, self.report,
            use_indexes=False,
        )  # fmt: skip
        self.report.log_bytes = total = sum(t.part.stop - t.part.start for t in plan.tasks)
        done = 0
        for task in plan.tasks:
            for lines in self._lines_of(task):
                output.write(lines)
                self.report.file_bytes += len(lines)
            done += task.part.stop - task.part.start
            self.progress("export", done, total)
        return {**(state.marks if state else {}), **ends}

    def _lines_of(self, task: ReadTask) -> Iterator[memoryview]:
        scan = task.scan(self._buffers)
        for piece in scan.pieces():
            self.report.messages += len(piece.batch)
            positions = piece.positions[self._kept(piece)]
            self.report.rows += len(positions)
            yield from log_lines(piece.data, positions, positions + piece.base)
        for damage in task.damage(scan):
            self._take_note(damage)

    def _kept(self, piece: ScannedPiece) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return a mask of the rows that meet the request's conditions on topics and times."""
        keeps = np.ones(len(piece.batch), np.bool_)
        rows = piece.batch.messages
        for condition in self.request.conditions():
            kind = ALL_COLUMNS.field(condition.column).type
            if condition.column == "topic":
                topics = pa.array([queue.topic for queue in piece.batch.queues], kind)
                keeps &= condition.keeps(topics)[rows["queue"]]
            else:
                stamps = rows["store_timestamp"].astype(np.int64)
                # Conditions are in microseconds, store timestamps in milliseconds.
                limit = condition.value // 1000
                keeps &= stamps >= limit if condition.operator == ">=" else stamps <= limit
        return keeps

    def _take_note(self, damage: Finding) -> None:
        if self.request.on_corrupt == "fail":
            raise damage.as_error()
        self.report.damage = [*self.report.damage, damage]


def _into_file(path: Path, lines: _LinesExport, incremental: bool) -> None:
    beside = path.with_name(f"{path.name}.reput.json")
    _check_place(path, beside)
    check_apart(path, lines.sources)
    is_missing = not path.exists()
    # Check this before locking, which would create the file.
    if is_missing and incremental and beside.exists():
        size, state = _read_commit(beside)
        _check_size(path, 0, size, beside)
    with locked(path, "another export is writing this file; wait for it or stop it"):
        size, state = _read_commit(beside) if beside.exists() else (0, None)
        if is_missing and not incremental and not path.stat().st_size:
            # The user deleted the file of an earlier export, and `locked` has created a new, empty file. Forget the
            # earlier export, and begin a new one.
            DISK.delete(beside)
            size, state = 0, None
        if state is not None and not incremental:
            raise UsageError(
                f"{path}: messages were exported there already; pass incremental to add only the new ones",
                arguments=["incremental"],
            )
        if state is not None:
            lines.request.check_same(state.request, str(path))
        _check_size(path, path.stat().st_size, size, beside)
        if not beside.exists():
            # Mark the file as an export before the first line is written.
            _write_commit(beside, 0, None)
        with DISK.appending(path, size, _BUFFER_BYTES) as file:
            marks = lines.write(file, state)
        lines.progress("written", 1, 1)
        # The first run always commits. A later run commits if it has written lines, or if it has only read further in
        # a log, for example because all new messages were of other topics. Otherwise, nothing has changed.
        if lines.report.rows or state is None or marks != state.marks:
            name = uuid.uuid4().hex
            end = size + lines.report.file_bytes
            _write_commit(beside, end, State(name, marks, lines.request.as_json()))
            lines.progress("committed", 1, 1)
            lines.report.committed, lines.report.files = True, 1


def _check_place(path: Path, beside: Path) -> None:
    """Raise UsageError if the destination cannot be a file of lines, and StoreAccessError if it is inaccessible."""
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; JSON lines go into a file")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: not a file; use - for stdout")
    with explained(path, "be read"):
        if path.exists() and path.stat().st_size and not beside.exists():
            raise UsageError(f"{path}: exists and is not an export; name another file")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent}: no such folder; create it first")


def _check_size(path: Path, size: int, exported: int, beside: Path) -> None:
    if size < exported:
        raise StoreAccessError(
            f"{path}: is shorter than the {exported:,} bytes that were exported; "
            f"restore it, or delete {beside} to start over"
        )


def _read_commit(path: Path) -> tuple[int, State | None]:
    text = FileReader.text_of(path)
    with understood(path):
        value: Mapping[str, Any] = parse_json(text)
        size, state = value["bytes"], value["state"]
        if not isinstance(size, int) or size < 0:
            raise ValueError(f"`bytes` must be a number of at least 0, not {size!r}")
        return size, None if state is None else State.from_json(state)


def _write_commit(path: Path, size: int, state: State | None) -> None:
    value = {"bytes": size, "state": None if state is None else state.as_json()}
    with DISK.replacing(path) as attempt:
        DISK.write_durable(attempt, json.dumps(value, indent=1).encode())
    DISK.sync_folder(path.parent)
