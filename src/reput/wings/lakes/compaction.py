"""Combine small files of a table in a separate commit.

The commit changes neither the rows nor the offsets up to which stores have been exported.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from reput.base import Progress, Runner, ShownAsTable, silent
from reput.errors import UsageError
from reput.wings.lakes.commit import Destination, Staged, State, understood
from reput.wings.lakes.control import Control, control_of, format_of
from reput.wings.lakes.data_file import DataFile
from reput.wings.lakes.merging import TARGET_BYTES, MergeJob, check_target, merged_files
from reput.wings.lakes.request import ExportRequest

Rewrite = Callable[[Sequence[DataFile], str, pa.Schema], tuple[list[DataFile], list[DataFile]]]
"""A function that combines small files. Arguments: the files of a table, the folder that contains them, and the schema
for new files. It returns the files that it combined, and the staged files that replace them."""


@runtime_checkable
class Compactable(Protocol):
    """A destination whose files can be combined."""

    def compact(
        self, state: State, rewrite: Rewrite, publish: Callable[..., None], target_bytes: int
    ) -> tuple[int, int]:
        """Combine small files, commit the new files with `state`, and return the numbers of old and new files.

        An implementation may call `publish(commit, action=…)`. This function moves the new files in `commit` to the
        table. Then `publish` calls `action(commit)`, a function that makes the commit.
        """


@runtime_checkable
class CountsSmallFiles(Compactable, Protocol):
    """A destination that can count its small files."""

    def most_small_files(self, target_bytes: int) -> int:
        """Return the number of small files in the partition with the most small files."""


@dataclass(slots=True)
class CompactReport(ShownAsTable):
    """The result of a compaction.

    files, new_files  number of combined files, and number of files that replace them
    committed         False if there was nothing to combine
    """

    destination: str
    files: int = 0
    new_files: int = 0
    notes: list[str] = field(default_factory=list)
    committed: bool = False
    total_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def compact_destination(
    destination: Destination,
    runner_for: Callable[[int], Runner],
    *,
    target_file_bytes: int = TARGET_BYTES,
    progress: Progress = silent,
) -> CompactReport:
    """Combine the small files of each partition, up to a size.

    runner_for  function that takes the total bytes of the files and returns the runner of the tasks

    Raises StoreError, UsageError, and StoreLockedError while an export writes the table. After an error, the rows of
    the table are the same.
    """
    check_target(target_file_bytes)
    if not isinstance(destination, Compactable):
        raise UsageError(
            f"{destination.name}: this table of layout {destination.layout} cannot be compacted"
        )
    report, begun = CompactReport(destination.name), time.monotonic()
    control = control_of(destination)
    with control.claimed():
        if control.recover():
            report.notes.append(
                "the last run was interrupted after its commit, which is complete now"
            )
        state = destination.state([])
        if state is None:
            raise UsageError(f"{destination.name}: nothing was exported there")
        report.files, report.new_files = _compact(
            destination, control, state, target_file_bytes, runner_for, progress
        )
    report.committed = report.new_files > 0
    report.total_s = time.monotonic() - begun
    return report


def compact_if_needed(
    destination: Destination,
    control: Control,
    least_files: int,
    target_bytes: int,
    runner_for: Callable[[int], Runner],
    progress: Progress,
) -> tuple[int, int]:
    """Combine the small files of a table if a partition has at least `least_files` small files.

    The caller must hold the lock of the table (see `Control.claimed`).

    Returns:
        The numbers of combined files and of new files.

    Raises:
        StoreError.
    """
    assert isinstance(destination, CountsSmallFiles)
    state = destination.state([])
    if state is None or destination.most_small_files(target_bytes) < max(least_files, 2):
        return 0, 0
    return _compact(destination, control, state, target_bytes, runner_for, progress)


def check_compact_after(destination: Destination, least_files: int | None) -> None:
    """Raise UsageError if the number is below 2, or the destination cannot be compacted."""
    if least_files is None:
        return
    if least_files < 2:
        raise UsageError(
            f"compact_after must be at least 2, not {least_files}", arguments=["compact_after"]
        )
    if not isinstance(destination, CountsSmallFiles):
        raise UsageError(
            f"compact_after: {destination.name}: tables of layout {destination.layout} cannot be compacted",
            arguments=["compact_after"],
        )


def _compact(
    destination: Compactable,
    control: Control,
    state: State,
    target_bytes: int,
    runner_for: Callable[[int], Runner],
    progress: Progress,
) -> tuple[int, int]:
    # A compaction is a separate commit, so it needs its own id.
    state = replace(state, run=uuid.uuid4().hex)
    with control.staging(state.run) as staged:
        rewrite = partial(_rewrite, control, staged, target_bytes, runner_for, progress)
        make = partial(control.make, staged=staged, progress=progress)
        return destination.compact(state, rewrite, make, target_bytes)


def _rewrite(
    control: Control,
    staged: Staged,
    target_bytes: int,
    runner_for: Callable[[int], Runner],
    progress: Progress,
    files: Sequence[DataFile],
    source: str,
    schema: pa.Schema,
) -> tuple[list[DataFile], list[DataFile]]:
    runner = control.on(runner_for(sum(file.file_bytes for file in files)))
    # A compaction combines accepted rows only, so the schema of rejected rows (the last argument) is not used.
    job = MergeJob(source, str(staged), schema, schema)
    files_merged = merged_files(job, files, target_bytes, runner, partial(progress, "merge"))
    progress("written", 1, 1)
    return files_merged


def request_of(state: State, place: str) -> ExportRequest:
    """Return the request with which a table was created. Raises StoreAccessError if it is lost."""
    with understood(place):
        if not state.request:
            raise ValueError("the table's metadata lacks the options of its first export")
        return ExportRequest.from_json(state.request)


def layout_of(folder: str) -> str:
    """Return the layout of the table in a folder. Raises UsageError if it has no table."""
    layout = format_of(folder)
    if layout is None:
        raise UsageError(f"{folder}: contains no table that `reput export` wrote")
    return layout
