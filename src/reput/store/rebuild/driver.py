"""The rebuild from beginning to end, whoever runs its tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from reput.config import StoreConfig
from reput.errors import UsageError
from reput.files.lock import locked
from reput.files.reader import FileReader
from reput.files.writer import make_folder
from reput.format.file_names import CONSUME_QUEUE_FOLDER, INDEX_FOLDER, LOCK_FILE
from reput.store.commit_log_files import CommitLogFile, list_commit_log_files
from reput.store.damage import Damage
from reput.store.rebuild.commit import name_index_files, swap_in, write_checkpoint
from reput.store.rebuild.layout import (
    IndexFileTask,
    Layout,
    QueueTask,
    index_layout,
    queue_layout,
)
from reput.store.rebuild.scan_split import ScanJob, ScanTask, run_scan
from reput.store.rebuild.splits import default_split_bytes, plan_splits
from reput.store.rebuild.staging import STAGING_FOLDER, Staging, fingerprint
from reput.store.rebuild.stitch import LogSummary, Stitcher
from reput.store.rebuild.write_files import (
    IndexFileWritten,
    QueuesWritten,
    WriteJob,
    write_index_file,
    write_queues,
)
from reput.store.record_search import last_nonzero

Task = TypeVar("Task")
Result = TypeVar("Result")
Only = Literal["consumequeue", "index"]
Progress = Callable[[str, int, int], None]
"""Called with the phase (scan, rescan, write), units done and units in all: bytes of the log, or files."""


class Runner(Protocol):
    """Runs a picklable function over tasks, in any order, each perhaps more than once."""

    parallelism: int

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        weights: Sequence[int],
        progress: Callable[[int, int], None],
    ) -> list[Result]:
        """Results in the order of the tasks; `weights` say how much of the work each is."""


class SerialRunner:
    """One task after the other in this process."""

    parallelism = 1

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        weights: Sequence[int],
        progress: Callable[[int, int], None],
    ) -> list[Result]:
        results, done, total = [], 0, sum(weights)
        for task, weight in zip(tasks, weights, strict=True):
            results.append(function(task))
            done += weight
            progress(done, total)
        return results


@dataclass(slots=True)
class RebuildReport:
    """What a rebuild found and made. Times in seconds, sizes in bytes, offsets physical."""

    store: str
    output: str
    log_begin: int = 0
    log_end: int = 0
    log_bytes: int = 0
    torn_tail: bool = False
    messages: int = 0
    keys: int = 0
    queues: int = 0
    queue_entries: int = 0
    queue_entries_dropped: int = 0
    queue_files: int = 0
    index_files: int = 0
    bytes_written: int = 0
    index_end_timestamp: int = 0
    splits: int = 0
    rescanned: int = 0
    damage: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    scan_s: float = 0.0
    write_s: float = 0.0
    commit_s: float = 0.0
    total_s: float = 0.0
    config: StoreConfig = field(default_factory=StoreConfig)

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.total_s if self.total_s else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "damage": [d._asdict() for d in self.damage],
            "messages_per_s": self.messages_per_s,
        }


def rebuild_store(
    runner: Runner,
    store: str | Path,
    *,
    config: StoreConfig,
    only: Only | None = None,
    output: str | Path | None = None,
    split_size: int | None = None,
    salvage: bool = False,
    progress: Progress = lambda phase, done, total: None,
) -> RebuildReport:
    """Rebuild `consumequeue/` and `index/` (or `only` one of them) of `store` in `output`, by default in place.

    Raises StoreNotFoundError, StoreLockedError, StoreAccessError, StoreChangedError, UsageError. What could not be
    read of the log is no error: the report's `damage` tells it.
    """
    if only not in (None, "consumequeue", "index"):
        raise UsageError(f"only (--only) is 'consumequeue' or 'index', not {only!r}")
    if split_size is not None and split_size < 1:
        raise UsageError("split_size (--split-size) must be at least 1 byte")
    store = Path(store).absolute()
    output = store if output is None else Path(output).absolute()
    begun = time.monotonic()
    report = RebuildReport(str(store), str(output), config=config)
    files = list_commit_log_files(store)
    staging = Staging(output / STAGING_FOLDER, fingerprint(files, config, salvage))
    with _owning(output, staging, in_place=output == store):
        staging.prepare()
        log = _scan(runner, files, staging, config, salvage, split_size, progress, report)
        scanned = time.monotonic()
        _write(runner, log, staging, config, only, progress, report)
        written = time.monotonic()
        swap_in(output, staging)
        _checkpoint(output, log, only, report)
        staging.remove()
    committed = time.monotonic()
    report.scan_s, report.write_s = scanned - begun, written - scanned
    report.commit_s, report.total_s = committed - written, committed - begun
    return report


@contextmanager
def _owning(output: Path, staging: Staging, in_place: bool) -> Iterator[None]:
    """Keep brokers and other rebuilds out of the files that are replaced."""
    with ExitStack() as stack:
        if in_place:
            busy = "a broker or another writer owns this store; stop it, or use --output"
            stack.enter_context(locked(output / LOCK_FILE, busy))
        make_folder(staging.folder)
        stack.enter_context(
            locked(staging.owner, "another rebuild works here; wait for it or stop it")
        )
        yield


def _scan(
    runner: Runner,
    files: list[CommitLogFile],
    staging: Staging,
    config: StoreConfig,
    salvage: bool,
    split_size: int | None,
    progress: Progress,
    report: RebuildReport,
) -> LogSummary:
    """Scan every split, then again those whose beginning was guessed wrong, until all join."""
    data_ends = [_data_end(file) for file in files]
    splits = plan_splits(files, data_ends, split_size or default_split_bytes(files))
    scan = partial(run_scan, ScanJob(str(staging.scanned), config, salvage))
    stitcher = Stitcher(splits)
    tasks, phase = [ScanTask(split) for split in splits], "scan"
    ends = {file.start: end for file, end in zip(files, data_ends, strict=True)}
    while tasks:
        weights = [
            max(min(task.split.stop, ends[task.split.file.start]) - task.split.begin, 1)
            for task in tasks
        ]
        for summaries in runner.run(scan, tasks, weights, partial(progress, phase)):
            stitcher.take(summaries)
            report.rescanned += len(summaries) if phase == "rescan" else 0
        tasks, phase = stitcher.rescans(), "rescan"
    log = stitcher.log()
    report.splits = len(splits)
    report.log_begin, report.log_end, report.torn_tail = log.begin, log.end, log.torn
    report.log_bytes = sum(ends.values()) - sum(file.start for file in files)
    report.messages, report.keys, report.damage = log.messages, log.keys, log.damage
    _note_oddities(log, report)
    return log


def _data_end(file: CommitLogFile) -> int:
    with FileReader(file.path) as reader:
        last = last_nonzero(reader, file)
    return file.start if last is None else last + 1


def _note_oddities(log: LogSummary, report: RebuildReport) -> None:
    misplaced = sum(split.misplaced for split in log.splits)
    if misplaced:
        report.notes.append(
            f"{misplaced} messages state a physical offset that is not their own; indexed as they state"
        )
    bad_multi = sum(split.bad_multi for split in log.splits)
    if bad_multi:
        report.notes.append(
            f"{bad_multi} messages have an INNER_MULTI_QUEUE_OFFSET that cannot be read"
        )


def _write(
    runner: Runner,
    log: LogSummary,
    staging: Staging,
    config: StoreConfig,
    only: Only | None,
    progress: Progress,
    report: RebuildReport,
) -> None:
    """Write the new files into staging; the largest tasks first, so that the last to finish is small."""
    job = WriteJob(str(staging.new / INDEX_FOLDER), str(staging.new / CONSUME_QUEUE_FOLDER), config)
    index_tasks = [] if only == "consumequeue" else index_layout(log, config)
    layout = Layout() if only == "index" else queue_layout(log, 2 * runner.parallelism)
    for folder, wanted in ((job.index_folder, "consumequeue"), (job.queue_folder, "index")):
        if only != wanted:
            make_folder(Path(folder))
    weights = [sum(part.stop - part.start for part in task.entries) for task in index_tasks]
    share = report.messages // max(len(layout.queues), 1)
    written = runner.run(
        partial(_write_one, job),
        [*index_tasks, *layout.queues],
        [weight + 1 for weight in weights] + [share + 1] * len(layout.queues),
        partial(progress, "write"),
    )
    index_files = [result for result in written if isinstance(result, IndexFileWritten)]
    name_index_files(job, index_files, time.time_ns() // 1_000_000)
    for result in written:
        if isinstance(result, QueuesWritten):
            report.queue_entries += result.taken
            report.queue_entries_dropped += result.dropped
    report.index_end_timestamp = max((file.header.end_timestamp for file in index_files), default=0)
    report.index_files, report.queues = len(index_files), layout.queue_count
    if layout.unnamed:
        names = ", ".join(repr(topic) for topic in sorted({q.topic for q in layout.unnamed})[:3])
        report.notes.append(f"no ConsumeQueue for topics that cannot name a folder: {names}")
    _count_files(staging, report)


def _write_one(job: WriteJob, task: IndexFileTask | QueueTask) -> IndexFileWritten | QueuesWritten:
    if isinstance(task, IndexFileTask):
        return write_index_file(job, task)
    return write_queues(job, task)


def _count_files(staging: Staging, report: RebuildReport) -> None:
    files = [path for path in staging.new.rglob("*") if path.is_file()]
    report.queue_files = len(files) - report.index_files
    report.bytes_written = sum(path.stat().st_size for path in files)


def _checkpoint(output: Path, log: LogSummary, only: Only | None, report: RebuildReport) -> None:
    last = log.splits[-1].last_timestamp if log.splits else 0
    write_checkpoint(
        output,
        None if only == "index" else last,
        None if only == "consumequeue" else report.index_end_timestamp,
    )
