"""Run an export from beginning to end, with any runner and any table format, in these steps.

recover   if the last run was interrupted after its commit, do its step `finish`; if it was interrupted before its
          commit, delete its files
plan      divide each log into ranges, beginning at the table's mark: the offset up to which this log was exported
write     run tasks, each of consecutive ranges, which write staged files, read them back and count rows
reconcile compare the rows that were read from the logs with the rows in the staged files, and check that there are no
          gaps between ranges; after a mismatch, commit nothing
merge     combine small files of a partition
commit    commit the files and the new marks atomically
finish    do the work that remains after a commit, for example move files to their places
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
from typing import cast

import pyarrow as pa

from reput.base import Progress, Runner, silent
from reput.core import LogListing
from reput.engine.tables import Bounds, ReadMark, ReadTask, estimated_seconds, joined, plan_lines
from reput.errors import StoreAccessError, StoreChangedError, UsageError
from reput.io import Scratch
from reput.wings.lakes.body_decoders import BodyDecoder
from reput.wings.lakes.body_shape import BodyShape
from reput.wings.lakes.commit import Commit, Destination, Staged, State
from reput.wings.lakes.compaction import check_compact_after, compact_if_needed
from reput.wings.lakes.control import Control, control_of
from reput.wings.lakes.data_file import DataFile, total_of
from reput.wings.lakes.decoding import open_decoder
from reput.wings.lakes.json_inference import choose_shape
from reput.wings.lakes.merging import TARGET_BYTES, MergeJob, check_target, merged_files
from reput.wings.lakes.planning import check_apart, extents_of, length_of, most_bytes, plan_of
from reput.wings.lakes.reject_reasons import MostRejects, Reasons, most_frequent
from reput.wings.lakes.report import ExportReport
from reput.wings.lakes.request import DEFAULT_SETTINGS, KNOWN_COLUMNS, ExportRequest, ExportSettings
from reput.wings.lakes.steps import CommitEvery, ExportStep, are_in_order, grouped, weight_of
from reput.wings.lakes.task import REASON, ExportJob, TaskResult, run_export, warm_up
from reput.wings.lakes.upsert import Upsertable, check_upsert, upsert

# Maximum number of log bytes per task, unless the caller sets a number.
SPLIT_BYTES = 1 << 30
# Minimum number of log bytes per task, unless the caller sets a number.
_LEAST_SPLIT_BYTES = 128 << 20
# With much smaller ranges, there would be more tasks than messages.
_LEAST_GIVEN_BYTES = 16 << 10
# Number of tasks for each slot of the runner. With several tasks per slot, all slots finish at about the same time.
_TASKS_PER_SLOT = 4
# Maximum number of log bytes of tasks that write files of several partitions together.
_MOST_GROUP_BYTES = 4 << 30
# To open a log file takes as long as to read about this many bytes: tasks of many tiny files run in parallel.
_RANGE_BYTES = 1 << 20
# With at least this many stores, parallel tasks plan the export: planning serially would take longer than starting the
# tasks.
_MANY_STORES = 16


def export_sources(
    sources: Sequence[LogListing],
    destination: Destination,
    request: ExportRequest,
    runner_for: Callable[[int], Runner],
    settings: ExportSettings = DEFAULT_SETTINGS,
    progress: Progress = silent,
) -> ExportReport:
    """Export each message of the stores once.

    runner_for   function that returns a runner for the tasks. Argument: the number of log bytes that they read
    progress     called during "export" (bytes of the log) and "merge" (bytes of files), and at the end of the phases
                 "written", "pending", "published", "committed" and "finished"

    Raises StoreError, UsageError, RejectedRowsError. After every error the table is as it was after the last commit.
    """
    if settings.split_bytes is not None and settings.split_bytes < _LEAST_GIVEN_BYTES:
        raise UsageError(
            f"split_bytes must be at least {_LEAST_GIVEN_BYTES}, not {settings.split_bytes}",
            arguments=["split_bytes"],
        )
    compact_after, target_bytes = settings.compact_after, settings.target_file_bytes or TARGET_BYTES
    most_rejects = None if settings.max_rejects is None else MostRejects(settings.max_rejects)
    check_compact_after(destination, compact_after)
    check_upsert(request, destination)
    control = control_of(destination)
    check_apart(control.place, sources)
    report = ExportReport(destination.name)
    begun = time.monotonic()
    folders = [source.folder for source in sources if source.folder is not None]
    with control.claimed(), control.reading(folders):
        run = _ExportRun(
            destination, control, request, settings, most_rejects, check_target(target_bytes),
            CommitEvery.of(settings.commit_every), progress, report,
        )  # fmt: skip
        run.recover()
        run.export(sources, runner_for)
        if compact_after is not None and report.committed:
            old, new = compact_if_needed(
                destination, control, compact_after, target_bytes, runner_for, progress
            )
            if new:
                report.note(f"{old:,} small files were combined into {new:,}")
    report.total_s = time.monotonic() - begun
    return report.sealed()


def preview_export(
    sources: Sequence[LogListing],
    destination: Destination,
    request: ExportRequest,
    settings: ExportSettings,
    *,
    is_new: bool,
) -> ExportReport:
    """Return a report of what an export would read now. Nothing is written.

    `is_new`: whether nothing has been exported to the destination yet

    Raises StoreError, UsageError.
    """
    begun, report = time.monotonic(), ExportReport(destination.name, is_dry_run=True)
    control = control_of(destination)
    check_upsert(request, destination)
    check_apart(control.place, sources)
    control.check_place()
    # Opening a new Iceberg table could create its catalog.
    state = None if is_new else destination.state([source.name for source in sources])
    _check_state(state, destination, request, settings)
    bounds, _ = extents_of(sources, state, report, request)
    plan = plan_of(
        sources, bounds, request, settings.fail_on_data_loss, settings.split_bytes or SPLIT_BYTES,
        report, with_notes=False,
    )  # fmt: skip
    plan.tasks = joined(plan.tasks)
    report.log_bytes = plan.log_bytes
    report.note(*plan_lines(plan, sum(map(length_of, bounds.values()))))
    warm_up()
    report.estimated_s = estimated_seconds(plan, partial(_write_sample, request))
    report.total_s = time.monotonic() - begun
    return report.sealed()


def _write_sample(request: ExportRequest, tasks: Sequence[ReadTask]) -> None:
    """Write the rows of some tasks into files, and delete these files. Bodies are not decoded."""
    schema = request.columns_with(None)
    with Scratch.folder() as folder:
        run_export(ExportJob(request, str(folder), schema, schema, None), tasks)


def _check_state(
    state: State | None, destination: Destination, request: ExportRequest, settings: ExportSettings
) -> None:
    """Raise UsageError if an export cannot continue in a table."""
    if state is not None and not settings.incremental:
        raise UsageError(
            f"{destination.name}: messages were exported there already; "
            "pass incremental to add only the new ones",
            arguments=["incremental"],
        )
    if state is not None and state.request:
        request.check_same(state.request, destination.name)


@dataclass(slots=True)
class _ExportRun:
    """One export; its steps fill the report."""

    destination: Destination
    control: Control
    request: ExportRequest
    settings: ExportSettings
    most_rejects: MostRejects | None
    target_bytes: int
    commit_every: CommitEvery
    progress: Progress
    report: ExportReport
    read_bytes: int = 0
    reasons: Reasons = field(default_factory=Reasons)

    def recover(self) -> None:
        if self.control.recover():
            self.report.note("the last run was interrupted after its commit, which is complete now")

    def export(
        self,
        sources: Sequence[LogListing],
        runner_for: Callable[[int], Runner],
    ) -> None:
        state = self.destination.state([source.name for source in sources])
        _check_state(state, self.destination, self.request, self.settings)
        planner = None
        if len(sources) >= _MANY_STORES:
            planner = self.control.on(runner_for(most_bytes(sources, state)))
        bounds, ends = extents_of(sources, state, self.report, self.request, planner)
        runner = planner or self.control.on(
            runner_for(sum(length_of(limits) for limits in bounds.values()))
        )
        split_bytes = self.settings.split_bytes or _split_bytes(bounds, runner)
        plan = plan_of(
            sources, bounds, self.request, self.settings.fail_on_data_loss, split_bytes, self.report,
            runner=planner,
        )  # fmt: skip
        plan.tasks = joined(plan.tasks)
        marks = {**(state.marks if state else {})}
        if not self._moves_on(bounds, marks):
            return
        decoder = None if self.request.body is None else open_decoder(self.request.body)
        shape = choose_shape(
            self.request, self.destination, state, plan.tasks, self.report, decoder
        )
        by_name = {source.name: source for source in sources}
        # A commit records one offset per store, up to which messages are in the table. So a commit between tasks
        # requires that tasks run in the order of the log.
        every = self.commit_every if are_in_order(plan.tasks) else CommitEvery()
        self.report.log_bytes = sum(map(weight_of, plan.tasks))
        waiting, last, had_state = plan.tasks, None, state is not None
        while True:
            # Each commit has its own id and staging folder.
            name = uuid.uuid4().hex
            with self.control.staging(name) as staged:
                job = self._job(staged, shape, decoder)
                step, end = ExportStep(every, runner.parallelism), None
                while waiting and end is None:
                    tasks = step.next_tasks(waiting)
                    step.take(tasks, self._write(job, tasks, runner))
                    waiting = waiting[len(tasks) :]
                    if waiting and step.is_due():
                        end = step.end_before(waiting)
                self._count(step.results)
                last = self._reconcile(step, last)
                unfinished = {task.part.store for task in waiting}
                # A store with no tasks left has been exported up to its end.
                marks |= {store: mark for store, mark in ends.items() if store not in unfinished}
                # The step ends within this store's log, at the end of a record.
                if end is not None and (store := step.tasks[-1].part.store) in unfinished:
                    marks[store] = ReadMark.at(by_name[store], end)
                files = [file for result in step.results for file in result.files]
                state = State(name, {**marks}, self.request.as_json(), shape)
                self._check_rejects(Commit(state, files))
                if self.request.upsert_by is None:
                    self._commit(Commit(state, self._merged(job, files, runner)), staged)
                else:
                    self._upsert(job, files, state, had_state, runner, staged)
                had_state = True
            if not waiting:
                return

    def _moves_on(self, bounds: dict[str, Bounds], marks: dict[str, ReadMark]) -> bool:
        """Return whether any store is new or has new messages."""
        return any(name not in marks or length_of(limits) for name, limits in bounds.items())

    def _job(
        self, staged: Staged, shape: BodyShape | None, decoder: BodyDecoder | None
    ) -> ExportJob:
        schema = self.request.columns_with(shape)
        # Rejected rows also have the columns that identify their messages.
        names = {"store", "physical_offset", *schema.names}
        partitions = self.request.text_partitions
        names |= {*partitions}
        names |= {"body"} if shape is not None else set()
        rejects = [column for column in KNOWN_COLUMNS if column.name in names]
        reject_schema = pa.schema([*rejects, REASON])
        schema, reject_schema = self.destination.prepare(self.request, schema, reject_schema)
        why_no_partition = self.destination.why_no_partition if partitions else None
        return ExportJob(
            self.request, str(staged), schema, reject_schema, shape, why_no_partition, decoder
        )

    def _write(self, job: ExportJob, tasks: Sequence[ReadTask], runner: Runner) -> list[TaskResult]:
        weights, before = [weight_of(task) for task in tasks], self.read_bytes

        def progress(done: int, total: int) -> None:
            self.progress("export", before + done, self.report.log_bytes)

        begun = time.monotonic()
        slots = runner.parallelism
        least = _RANGE_BYTES if slots > 1 else 0
        groups = grouped(tasks, self._group_bytes(sum(weights), slots), least)
        shares = [sum(map(weight_of, group)) for group in groups]
        results = list(
            chain.from_iterable(runner.run(partial(run_export, job), groups, shares, progress))
        )
        self.report.read_s += time.monotonic() - begun
        self.read_bytes += sum(weights)
        return results

    def _group_bytes(self, total: int, parallelism: int) -> int:
        """Return the log bytes of tasks that write their rows together. More bytes make fewer and larger files."""
        if self.settings.split_bytes is not None:
            return self.settings.split_bytes
        if not self.request.partition_by:
            return _share(total, parallelism)
        # Each group writes a file per partition, which would be small, and all rows would be written again.
        return max(_share(total, parallelism), min(total // (2 * parallelism), _MOST_GROUP_BYTES))

    def _count(self, results: list[TaskResult]) -> None:
        report = self.report
        report.messages += sum(result.messages for result in results)
        report.bad_bodies += sum(result.bad_bodies for result in results)
        report.json_errors += sum(result.json_errors for result in results)
        for result in results:
            self.reasons += result.reasons
        report.reasons = dict(self.reasons.rows.most_common())
        report.reason_examples = self.reasons.examples
        report.damage = [*report.damage, *(lost for result in results for lost in result.damage)]
        self.progress("written", 1, 1)

    def _reconcile(
        self, step: ExportStep, last: tuple[ReadTask, TaskResult] | None
    ) -> tuple[ReadTask, TaskResult] | None:
        """Compare the rows read from the logs with those in the written files. Check for gaps between adjacent ranges.

        Args:
            step: The tasks whose files will be committed together, and the results of these tasks.
            last: The last task of the run's previous commit, and its result; None if this is the first commit.

        Returns:
            The last task in `step`, and its result.

        Raises:
            StoreChangedError, StoreAccessError.
        """
        results = step.results
        walked = [*([last] if last else []), *zip(step.tasks, results, strict=True)]
        for (before, ended), (after, began) in pairwise(walked):
            if not _joined(before, ended, after, began):
                raise StoreChangedError(
                    f"{after.part.file.path}: records end at {ended.end}, but the next range's first record "
                    f"begins at {began.start}; nothing was committed. Did the file change? Run the export again"
                )
        read = total_of(result.read for result in results)
        written = total_of(file.tally for result in results for file in result.files)
        if not read.agrees_with(written):
            raise StoreAccessError(
                f"{self.destination.name}: read {read}, but the written files contain {written}; "
                "nothing was committed. Check the disk, then run the export again"
            )
        return walked[-1] if walked else None

    def _merged(self, job: ExportJob, files: list[DataFile], runner: Runner) -> list[DataFile]:
        """Combine small files, and return all files of the commit. The rows do not change.

        Raises StoreAccessError.
        """
        merge = MergeJob(
            job.folder, job.folder, job.file_schema, job.reject_schema, is_run=True,
            is_fast=job.request.is_fast,
        )  # fmt: skip
        old, new = merged_files(
            merge, files, self.target_bytes, runner, partial(self.progress, "merge")
        )
        merged = {file.name for file in old}
        return [*(file for file in files if file.name not in merged), *new]

    def _upsert(
        self,
        job: ExportJob,
        files: list[DataFile],
        state: State,
        had_state: bool,
        runner: Runner,
        staged: Staged,
    ) -> None:
        """Commit the newest message of each key, and remove older rows of these keys from the table."""
        merge = MergeJob(
            job.folder, job.folder, job.file_schema, job.reject_schema, is_run=True,
            is_fast=job.request.is_fast,
        )  # fmt: skip
        table = cast(Upsertable, self.destination)
        result = upsert(
            merge, files, table if had_state else None, runner, partial(self.progress, "merge")
        )
        rows = self.report.rows + result.rows
        commit = Commit(state, self._merged(job, result.files, runner), result.replaces)
        self._commit(commit, staged, table.replace if result.replaces else None)
        # The commit also has rows that were copied from replaced files. Do not count the copied rows.
        self.report.rows = rows
        self.report.superseded += result.superseded

    def _check_rejects(self, commit: Commit) -> None:
        """Raise RejectedRowsError for too many rejected rows."""
        if self.most_rejects is not None:
            # `max_rejects` applies to the whole run, so include the rows of the run's earlier commits.
            rejects = self.report.rejects + commit.rejects.rows
            rows = self.report.rows + commit.rows.rows
            reasons = most_frequent(self.report.reasons, self.report.reason_examples)
            self.most_rejects.check(rejects, rows + rejects, reasons, self.destination.name)

    def _commit(
        self, commit: Commit, staged: Staged, action: Callable[[Commit], None] | None = None
    ) -> None:
        self.control.make(commit, staged, action or self.destination.commit, self.progress)
        report = self.report
        report.committed = True
        report.commits += 1
        report.rows += commit.rows.rows
        report.rejects += commit.rejects.rows
        report.files += len(commit.files)
        report.file_bytes += sum(file.file_bytes for file in commit.files)


def _split_bytes(bounds: dict[str, Bounds], runner: Runner) -> int:
    """Return the number of log bytes that each task reads."""
    return _share(sum(length_of(limits) for limits in bounds.values()), runner.parallelism)


def _share(total: int, parallelism: int) -> int:
    share = total // (_TASKS_PER_SLOT * parallelism)
    return max(_LEAST_SPLIT_BYTES, min(share, SPLIT_BYTES))


def _joined(before: ReadTask, ended: TaskResult, after: ReadTask, began: TaskResult) -> bool:
    """Return whether the first record of a range begins where the last record of the preceding range ended.

    Return True also if the two positions cannot be compared.
    """
    first, second = before.part, after.part
    if first.file != second.file or first.stop != second.start or second.by_queue:
        # The end of one range cannot be compared with the beginning of the other: the ranges are in different files,
        # are not adjacent, or are read through ConsumeQueues.
        return True
    if ended.start >= first.stop or ended.end < first.stop:
        # The end of the preceding range's last record is unknown: no record begins in that range, or the range ends
        # with unreadable bytes.
        return True
    # A long record may reach beyond the whole next range.
    return began.start == ended.end or (began.start >= second.stop and ended.end >= second.stop)
