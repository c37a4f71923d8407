"""Small files of a table put together, by a commit of its own: the rows and the checkpoints stay as they are."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from reput.errors import UsageError
from reput.lakes.commit import Destination, Staged, State, understood
from reput.lakes.control import Control, control_of, format_of
from reput.lakes.data_file import DataFile
from reput.lakes.merging import TARGET_BYTES, MergeJob, check_target, merged_files
from reput.lakes.request import ExportRequest
from reput.notebook import ShownAsTable
from reput.tasks import Progress, Runner, silent

Rewrite = Callable[[Sequence[DataFile], str, pa.Schema], tuple[list[DataFile], list[DataFile]]]
"""Given a table's files, the folder that their names are below, and the columns that rows are to have: the files that
are put together, and the new ones, in staging."""


@runtime_checkable
class Compactable(Protocol):
    """A destination whose files can be put together."""

    def compact(
        self, state: State, rewrite: Rewrite, publish: Callable[..., None], target_bytes: int
    ) -> tuple[int, int]:
        """Rewrite small files and publish them under a state; how many files became how many.

        `publish(commit, action=…)` brings the files of a commit to the table, and makes it by the action.
        """


@runtime_checkable
class CountsSmallFiles(Compactable, Protocol):
    """A destination that knows whether compaction is worth it."""

    def most_small_files(self, target_bytes: int) -> int:
        """Return the number of small files in the partition that has most of them."""


@dataclass(slots=True)
class CompactReport(ShownAsTable):
    """The result of a compaction.

    files, new_files  how many files were combined, into how many
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


def compact_table(
    destination: Destination,
    runner_for: Callable[[int], Runner],
    *,
    target_file_bytes: int = TARGET_BYTES,
    progress: Progress = silent,
) -> CompactReport:
    """Combine the small files of each partition, up to a size.

    runner_for  is called with the bytes of all files

    Raises StoreError, UsageError; StoreLockedError while an export writes the table. The rows of the table stay the
    same after every error.
    """
    check_target(target_file_bytes)
    if not isinstance(destination, Compactable):
        raise UsageError(
            f"{destination.name}: tables of layout {destination.layout} are not compacted there"
        )
    report, begun = CompactReport(destination.name), time.monotonic()
    control = control_of(destination)
    with control.claimed():
        if control.recover():
            report.notes.append("the last run was committed, but not finished: it is now")
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
    """Combine small files of a table that this run owns, if a partition has at least so many of them.

    Returns:
        How many files became how many.

    Raises:
        StoreError.
    """
    assert isinstance(destination, CountsSmallFiles)
    state = destination.state([])
    if state is None or destination.most_small_files(target_bytes) < max(least_files, 2):
        return 0, 0
    return _compact(destination, control, state, target_bytes, runner_for, progress)


def check_compact_after(destination: Destination, least_files: int | None) -> None:
    """Raise UsageError for a number below 2, or a destination that cannot be compacted."""
    if least_files is None:
        return
    if least_files < 2:
        raise UsageError(
            f"compact_after must be at least 2, not {least_files}", arguments=["compact_after"]
        )
    if not isinstance(destination, CountsSmallFiles):
        raise UsageError(
            f"compact_after: tables of layout {destination.layout} are not compacted at {destination.name}",
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
    job = MergeJob(source, str(staged), schema, schema)
    found = merged_files(job, files, target_bytes, runner, partial(progress, "merge"))
    progress("written", 1, 1)
    return found


def request_of(state: State, place: str) -> ExportRequest:
    """Return the request that a table was created with. Raises StoreAccessError if it is lost."""
    with understood(place):
        if not state.request:
            raise ValueError("the request of its first run is missing")
        return ExportRequest.from_json(state.request)


def layout_of(folder: str) -> str:
    """Return the layout of the table in a folder. Raises UsageError if it has no table."""
    layout = format_of(folder)
    if layout is None:
        raise UsageError(f"{folder}: no table that `reput export` wrote")
    return layout
