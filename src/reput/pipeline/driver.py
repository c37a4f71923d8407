"""The rebuild from beginning to end, with any runner."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Literal

from reput.clock import now_ms
from reput.compare.proof import remember
from reput.config import StoreConfig
from reput.errors import StoreError, UsageError
from reput.files.anchors import AnchoredRunner, anchored, reading_for
from reput.files.lock import locked
from reput.files.reader import FileReader
from reput.files.stamps import Stamp
from reput.files.writer import make_folder
from reput.format.file_names import EXTENSION_FOLDER, INDEX_FOLDER, LOCK_FILE
from reput.index.reader import IndexFileReader
from reput.index.remembered import log_stamps
from reput.index.verdict import Proof
from reput.log.ends import LogEnds
from reput.log.files import CommitLogFile
from reput.log.scan_mode import DispatchRules
from reput.log.sources import StoreLog
from reput.pipeline.commit import name_index_files, swap_in, write_checkpoint
from reput.pipeline.index_layout import IndexFileTask, index_layout
from reput.pipeline.old_queues import LogPart
from reput.pipeline.queue_kinds import FileQueues, QueueBuild, QueueDatabase, QueueForm, kind_of
from reput.pipeline.queue_plan import QueueTask
from reput.pipeline.report import RebuildReport
from reput.pipeline.rocksdb_layout import RocksTask
from reput.pipeline.rocksdb_tables import RocksTableWritten, write_rocksdb_table
from reput.pipeline.scan_split import ScanJob, ScanTask, run_scan
from reput.pipeline.splits import default_split_bytes, plan_splits
from reput.pipeline.staging import STAGING_FOLDER, Staging, fingerprint
from reput.pipeline.stitch import LogSummary, Stitcher
from reput.pipeline.write_files import (
    IndexFileWritten,
    QueuesWritten,
    WriteJob,
    write_index_file,
    write_queues,
)
from reput.store.facts import KEPT_BY, facts_of
from reput.store.topics_file import batch_topics
from reput.tasks import Progress, Result, Runner, Task, silent

_SIZES_ASSUMED = (
    "no IndexFile was there to show its sizes, so a broker's defaults were used; where the broker has others, "
    "rebuild with its configuration, or with its numbers of slots and items"
)
_MANY_FILES = 64  # whose ends tasks look for
Only = Literal["consumequeue", "index"]


def rebuild_store(
    runner: Runner,
    store: str | Path,
    *,
    config: StoreConfig | None = None,
    only: Only | None = None,
    output: str | Path | None = None,
    queues: QueueForm | None = None,
    split_size: int | None = None,
    salvage: bool = False,
    progress: Progress = silent,
) -> RebuildReport:
    """Rebuild `consumequeue/` and `index/` (or `only` one of them) of `store` in `output`, by default in place.

    `queues` says whether they are written as 'files' or into 'rocksdb'; without it, as the store has them.
    Without a config, sizes are those of the store's own files where they are certain, else a broker's defaults.
    The phases of `progress` are scan, rescan and write, in bytes of the log, or of what is written.
    Raises StoreNotFoundError, StoreLockedError, StoreAccessError, StoreChangedError, UsageError. What could not be
    read of the log is no error: the report's `damage` tells it.
    """
    if only not in (None, "consumequeue", "index"):
        raise UsageError(f"only is 'consumequeue' or 'index', not {only!r}", arguments=["only"])
    if split_size is not None and split_size < 1:
        raise UsageError("split_size must be at least 1 byte", arguments=["split_size"])
    store = Path(store).absolute()
    output = store if output is None else Path(output).absolute()
    held = anchored(store) if output == store else reading_for(output, [store])
    with held if store.is_dir() else nullcontext():
        return _rebuild(
            AnchoredRunner(runner), store, config, only, output, queues, split_size, salvage, progress
        )  # fmt: skip


def _rebuild(
    runner: Runner,
    store: Path,
    config: StoreConfig | None,
    only: Only | None,
    output: Path,
    queues: QueueForm | None,
    split_size: int | None,
    salvage: bool,
    progress: Progress,
) -> RebuildReport:
    files = list(StoreLog(store).list().files)
    stamps = log_stamps(files)
    facts = facts_of(store, config)
    facts.require_certain(but=KEPT_BY[only])
    notes = [str(odd) for odd in facts.odd_files] if config is None else []
    if config is None and only != "consumequeue" and "hash_slots" not in facts.shown:
        notes.append(_SIZES_ASSUMED)
    config = facts.config
    kind = kind_of(store, config, queues, in_place=output == store and only != "index")
    if kind == "rocksdb":  # where enableLmq alone decides
        config = replace(config, enable_multi_dispatch=config.enable_lmq, store_version="5.3")
    staging = Staging(output / STAGING_FOLDER, fingerprint(files, stamps, config, salvage))
    report = RebuildReport(str(store), str(output), config=config, notes=notes)
    build: QueueBuild
    if kind == "rocksdb" and only != "index":
        build = QueueDatabase(staging, output, in_place=output == store)
    else:
        topics = batch_topics(str(store))
        extended = config.extension_files or (store / EXTENSION_FOLDER).is_dir()
        build = FileQueues(staging, output, config, topics, extended, in_place=output == store)
    ends = facts.ends
    report.note(*[str(one) for one in ends.findings() if one.start < ends.rebuild])
    rebuild = _Rebuild(
        runner, files, staging, config, only, output, progress, report, build, stamps, ends
    )
    with _owning(output, staging, in_place=output == store):
        rebuild.run(split_size or default_split_bytes(files), salvage)
    return report.sealed()


@contextmanager
def _owning(output: Path, staging: Staging, in_place: bool) -> Iterator[None]:
    """Keep brokers and other rebuilds out of the files that are replaced."""
    with ExitStack() as stack:
        make_folder(output)
        stack.enter_context(anchored(output))
        if in_place:
            busy = "a broker or another writer owns this store; stop it, or name another output"
            stack.enter_context(locked(output / LOCK_FILE, busy, arguments=["output"]))
        staging.create()
        stack.enter_context(anchored(staging.folder, owner=output))
        busy = "another rebuild is writing here; wait for it or stop it"
        stack.enter_context(locked(staging.owner, busy))
        yield


@dataclass(frozen=True, slots=True)
class _Rebuild:
    """One rebuild; its steps fill the report."""

    runner: Runner
    files: list[CommitLogFile]
    staging: Staging
    config: StoreConfig
    only: Only | None
    output: Path
    progress: Progress
    report: RebuildReport
    queues: QueueBuild
    log_before: dict[int, Stamp]  # stamps of the log's files before they were read
    ends: LogEnds

    def run(self, split_bytes: int, salvage: bool) -> None:
        times = [time.monotonic()]
        self.staging.prepare()
        log = self._scan(split_bytes, salvage)
        times.append(time.monotonic())
        proofs = self._write(log)
        times.append(time.monotonic())
        self._commit(log)
        self._remember(proofs)
        times.append(time.monotonic())
        report = self.report
        report.scan_s, report.write_s, report.commit_s = (
            after - before for before, after in pairwise(times)
        )
        report.total_s = times[-1] - times[0]

    def _scan(self, split_bytes: int, salvage: bool) -> LogSummary:
        """Scan every split, then again those whose beginning was guessed wrong, until all join."""
        if len(self.files) < _MANY_FILES:
            data_ends = list(map(_data_end, self.files))
        else:
            data_ends = self._run(_data_end, self.files, [1] * len(self.files), "")
        splits = plan_splits(self.files, data_ends, split_bytes)
        ends = {file.start: end for file, end in zip(self.files, data_ends, strict=True)}
        scan = partial(
            run_scan, ScanJob(str(self.staging.scanned), DispatchRules.of(self.config), salvage)
        )
        stitcher = Stitcher(splits)
        tasks, phase = [ScanTask(split) for split in splits], "scan"
        while tasks:
            weights = [_data_bytes(task, ends[task.split.file.start]) for task in tasks]
            for summaries in self._run(scan, tasks, weights, phase):
                stitcher.take(summaries)
                self.report.rescanned += len(summaries) if phase == "rescan" else 0
            tasks, phase = stitcher.rescans(), "rescan"
        self.report.splits = len(splits)
        self.report.log_bytes = sum(ends.values()) - sum(ends)
        log = stitcher.log()
        self._report_log(log)
        return log

    def _run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], weights: Sequence[int], phase: str
    ) -> list[Result]:  # fmt: skip
        """Run tasks of this run; a phase without a name reports no progress."""
        progress = partial(self.progress, phase) if phase else _silent
        return self.runner.run(self.staging.fenced(function), tasks, weights, progress)

    def _run_one(self, function: Callable[[Task], Result], task: Task) -> Result:
        (result,) = self._run(function, [task], [1], "")
        return result

    def _report_log(self, log: LogSummary) -> None:
        report = self.report
        report.log_begin, report.log_end = log.begin, log.end
        if log.damage and log.damage[-1].stop == log.end:
            # The rest of the last file was not read; the log still ends where its records do.
            report.log_end = min(max(self.ends.rebuild, log.damage[-1].start), log.end)
        report.torn_tail = log.torn
        report.messages, report.keys, report.damage = log.messages, log.keys, log.damage
        if misplaced := log.misplaced:
            report.note(
                f"{misplaced} messages state a physical offset that is not their own; indexed as they state"
            )
        if bad_multi := sum(split.bad_multi for split in log.splits):
            report.note(
                f"{bad_multi} messages have an INNER_MULTI_QUEUE_OFFSET that cannot be read"
            )

    def _write(self, log: LogSummary) -> dict[str, Proof | str]:
        """Write the new files into staging; the largest tasks first, so that the last to finish is small.

        Returns, by the name of each IndexFile, its proof or the reason why it has none.
        """
        new, report = self.staging.new, self.report
        job = WriteJob(
            report.store, str(self.staging.scanned), str(self.staging.plan), str(self.staging.parts),
            str(new), self.config, LogPart(log.begin, log.end, log.lost, log.misplaced > 0),
            report.store if report.store == str(self.output) else None,
        )  # fmt: skip
        tasks: list[IndexFileTask | QueueTask | RocksTask] = []
        if self.only != "consumequeue":
            tasks += index_layout(log, self.config)
        if self.only != "index":
            tasks += self.queues.tasks(log, 2 * self.runner.parallelism, self._run_one)
        weights = [task.weight for task in tasks]
        written = self._run(partial(_write_one, job), tasks, weights, "write")
        if self.only != "index":
            self.queues.finish(log, written, report)
        if self.only == "consumequeue":
            return {}
        return self._name_index_files(job, new / INDEX_FOLDER, written)

    def _name_index_files(
        self, job: WriteJob, folder: Path, written: Sequence[Written]
    ) -> dict[str, Proof | str]:
        files = sorted(result for result in written if isinstance(result, IndexFileWritten))
        paths = name_index_files(job, folder, files, now_ms())
        self.report.index_files = len(files)
        ends = [file.header.end_timestamp for file in files]
        self.report.index_end_timestamp = max(ends, default=0)
        return {path.name: file.proof for path, file in zip(paths, files, strict=True)}

    def _commit(self, log: LogSummary) -> None:
        self._count_files()
        swap_in(self.output, self.staging, () if self.only == "index" else self.queues.without)
        last = log.splits[-1].last_timestamp if log.splits else 0
        write_checkpoint(
            self.output,
            self.staging,
            None if self.only == "index" else last,
            None if self.only == "consumequeue" else self.report.index_end_timestamp,
            in_rocksdb=isinstance(self.queues, QueueDatabase),
        )
        self.staging.remove()

    def _remember(self, proofs: dict[str, Proof | str]) -> None:
        """Keep the proofs of the IndexFiles that lie in place now, so that who asks them need not spot-check them."""
        for name, proof in proofs.items():
            problem = proof if isinstance(proof, str) else self._keep(name, proof)
            if problem:  # the rebuild is done
                self.report.note(f"the IndexFiles could not be proved: {problem}")
                return

    def _keep(self, name: str, proof: Proof) -> str:
        path, config = str(self.output / INDEX_FOLDER / name), self.config
        try:
            with closing(IndexFileReader(path, config.hash_slots, config.index_items)) as file:
                remember(self.report.store, file, proof, self.log_before)
        except StoreError as error:
            return str(error)
        return ""

    def _count_files(self) -> None:
        files = [path for path in self.staging.new.rglob("*") if path.is_file()]
        self.report.queue_files = len(files) - self.report.index_files
        self.report.bytes_written = sum(path.stat().st_size for path in files)


def _data_end(file: CommitLogFile) -> int:
    """Physical offset behind the file's last byte that is not zero; a hole at its end is not read."""
    with FileReader(file.path) as reader:
        last = reader.last_nonzero(file.size)
    return file.start if last is None else file.start + last + 1


def _data_bytes(task: ScanTask, data_end: int) -> int:
    return max(min(task.split.stop, data_end) - task.split.begin, 1)


def _silent(done: int, total: int) -> None:
    """Report no progress."""


Written = IndexFileWritten | QueuesWritten | RocksTableWritten


def _write_one(job: WriteJob, task: IndexFileTask | QueueTask | RocksTask) -> Written:
    if isinstance(task, IndexFileTask):
        return write_index_file(job, task)
    if isinstance(task, RocksTask):
        return write_rocksdb_table(job, task)
    return write_queues(job, task)
