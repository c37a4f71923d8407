"""Measure the work of the driver in a rebuild of any size. The log is sparse, and the tasks do no work.

The driver is the real one: it plans, stitches and commits. The data that it would exchange with executors is counted in
pickled bytes. Only the last file of the log is read, and no index entries are written.
"""

from __future__ import annotations

import pickle
import shutil
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.result import Figure
from reput.base.config import StoreConfig
from reput.core.log.dispatch_batch import DispatchBatch, Queue
from reput.core.log.files import CommitLogFile
from reput.engine.rebuild.batch_file import BatchFileWriter, new_runs
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.rebuild.index_layout import IndexFileTask
from reput.engine.rebuild.queue_plan import (
    MOST_ENTRIES,
    PlanTask,
    QueueLayout,
    QueuePlan,
    QueueTask,
    plan_queues,
    write_plan,
)
from reput.engine.rebuild.scan_split import ScanTask
from reput.engine.rebuild.splits import SplitSummary
from reput.engine.rebuild.write_files import IndexFileWritten, QueuesWritten, WriteJob, index_part
from reput.format.consume_queue import ENTRY_BYTES
from reput.format.dtypes import MESSAGE_DTYPE, MULTI_DTYPE
from reput.format.file_names import COMMIT_LOG_FOLDER, offset_file_name
from reput.format.index_file import IndexHeader
from reput.io.writer import FileWriter


class Size(NamedTuple):
    """The size of a store: number of log files (1 GiB each), number of queues, and index entries per IndexFile."""

    files: int
    queues: int
    index_items: int


class Cost(NamedTuple):
    """The cost of one rebuild for the driver.

    tasks    number of tasks that were run
    seconds  processor time, without the code that replaces the tasks
    calls    number of function calls, in Python and in C
    memory   peak of allocated bytes
    sent     bytes of pickled tasks and functions
    received bytes of pickled results
    """

    tasks: int
    seconds: float
    calls: int
    memory: int
    sent: int
    received: int


class CountingRunner:
    """Counts tasks, their processor time, and the bytes that would be sent to executors and back."""

    parallelism = 512

    def __init__(self) -> None:
        self.tasks = self.sent = self.received = 0
        self.seconds = 0.0

    def counted(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], result: Callable[[Any], Any]
    ) -> list[Any]:
        """Return the result of each task. The time of this method does not count as time of the driver."""
        begun = time.process_time()
        results = [result(task) for task in tasks]
        self.tasks += len(tasks)
        self.sent += sum(len(pickle.dumps(task)) for task in tasks) + len(pickle.dumps(function))
        self.received += sum(len(pickle.dumps(result)) for result in results)
        self.seconds += time.process_time() - begun
        return results


class _Simulated(CountingRunner):
    """A Runner that does not run the tasks, but returns plausible results."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self._size = size

    def run(
        self,
        function: Callable[[Any], Any],
        tasks: Sequence[Any],
        weights: Sequence[int],
        progress: Callable[[int, int], None],
    ) -> list[Any]:
        return self.counted(function, tasks, partial(self._result, function))

    def _result(self, function: Callable[[Any], Any], task: Any) -> Any:
        if isinstance(task, CommitLogFile):
            return task.end
        if isinstance(task, ScanTask):
            return [_scanned(task, self._size)]
        if isinstance(task, PlanTask):
            return _planned(task, self._size)
        if isinstance(task, IndexFileTask):
            Path(index_part(_job_of(function).parts, task.number)).touch()
            header = IndexHeader(task.number, task.number + 1, 0, 1, 1, 1)
            return IndexFileWritten(task.number, header, task.number, "simulated")
        assert isinstance(task, QueueTask)
        return QueuesWritten(task.weight // ENTRY_BYTES - 1, 0)


def _scanned(task: ScanTask, size: Size) -> SplitSummary:
    split = task.split
    messages = (split.stop - split.begin) >> 10
    summary = SplitSummary(
        split.number, f"{split.begin:020d}-{split.stop}-search-0", split.begin, split.stop
    )
    summary.messages = summary.entries = messages
    summary.keys = 2 * messages
    summary.finished = split.stop == split.file.end
    summary.first_keyed_offset = split.begin
    summary.end_offset_out = split.stop
    return summary


def _planned(task: PlanTask, size: Size) -> QueueLayout:
    """Return the tasks that write the queue entries, each for consecutive splits, and write the plan file."""
    per_split = 1 << 20
    group = max(task.share // per_split, 1)
    starts = range(0, len(task.staged), group)
    tasks = [
        QueueTask(
            number,
            "regular",
            first,
            min(first + group, len(task.staged)),
            group * per_split * ENTRY_BYTES,
        )
        for number, first in enumerate(starts)
    ]
    queues = [Queue(f"topic-{number}", 0) for number in range(size.queues)]
    write_plan(task.plan, QueuePlan(task.staged, queues))
    return QueueLayout(tasks=tasks, count=size.queues)


def plan_cost(folder: Path, splits: int, queues: int, *, counts: bool = False) -> Cost:
    """Return the cost of the task that plans queues.

    The task plans `splits` staged files, each with entries of every queue. In the result, the number of tasks is the
    number of splits, `sent` is the size of the written plan, and `received` is the size of the task's result.
    """
    shutil.rmtree(folder, ignore_errors=True)
    scanned, plan = folder / "scanned", folder / "plan"
    for each in (scanned, plan):
        each.mkdir(parents=True)
    names = [Queue(f"topic-{number}", 0) for number in range(queues)]
    for split in range(splits):
        _stage_runs(scanned / f"{split:06d}", names, split)
    staged = tuple(f"{split:06d}" for split in range(splits))
    task = PlanTask(
        str(scanned), staged, str(plan), None, 6_000_000, MOST_ENTRIES, False, False, 0,
        frozenset(), False, in_pieces=True,
    )  # fmt: skip
    calls = memory = 0
    try:
        begun = time.process_time()
        if counts:
            calls, memory = counted(lambda: plan_queues(task))
        else:
            plan_queues(task)
        seconds = time.process_time() - begun
        written = sum(file.stat().st_size for file in plan.iterdir())
        received = 0 if counts else len(pickle.dumps(plan_queues(task)))
    finally:
        shutil.rmtree(folder)
    return Cost(splits, seconds, calls, memory, written, received)


def _stage_runs(path: Path, names: list[Queue], split: int) -> None:
    """Write a staged file without entries. It states for each queue which queue offsets the split adds."""
    runs = new_runs(len(names))
    # All splits state the same total number of entries, for any number of queues.
    entries = _PLANNED_ENTRIES // len(names)
    runs["entries"] = entries
    runs["first"] = runs["slack"] = runs["ahead"] = entries * split
    runs["highest"] = entries * (split + 1) - 1
    empty = np.zeros(0, MESSAGE_DTYPE), np.zeros(0, np.int32), np.zeros(0, MULTI_DTYPE)
    with FileWriter(path) as file:
        writer = BatchFileWriter(file)
        writer.append(DispatchBatch(*empty, names))
        writer.finish({}, runs)


def _job_of(function: Any) -> WriteJob:
    """Return the WriteJob that is an argument of a task's partial function."""
    while not isinstance(function, WriteJob):
        function = function.args[-1] if isinstance(function, partial) else function.function
    return function


def driver_cost(
    folder: Path, size: Size, *, counts: bool = False, split_size: int | None = None
) -> Cost:
    """Return the cost for the driver of a rebuild of this size.

    With `counts`, function calls and memory are measured. This slows the driver, so the time is then meaningless.
    """
    store, output = folder / "store", folder / "output"
    log = store / COMMIT_LOG_FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    log.mkdir(parents=True)
    for number in range(size.files):
        with (log / offset_file_name(number << 30)).open("wb") as file:
            file.truncate(1 << 30)
    runner = _Simulated(size)
    config = StoreConfig(index_items=size.index_items)
    rebuild = partial(
        rebuild_store, runner, store, config=config, output=output, split_size=split_size
    )
    calls = memory = 0
    try:
        begun = time.process_time()
        if counts:
            calls, memory = counted(rebuild)
        else:
            rebuild()
        seconds = time.process_time() - begun - runner.seconds
    finally:
        shutil.rmtree(folder)
    return Cost(runner.tasks, seconds, calls, memory, runner.sent, runner.received)


def counted(function: Callable[[], object]) -> tuple[int, int]:
    """Run a function. Return the number of all function calls, direct and indirect, and the peak of allocated bytes."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    tracemalloc.start()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return calls, most


STEPS = (1, 2, 4, 8)
GROWING: dict[str, Callable[[int], Size]] = {
    "files of the log": lambda step: Size(1250 * step, 1000, 20_000_000),
    "queues": lambda step: Size(1250, 2500 * step, 20_000_000),
    "IndexFiles": lambda step: Size(1250, 1000, 20_000_000 // step),
}
"""For each dimension, the size of the store at a step. Step 8 has 10 TB, 20,000 queues, or 8 times the IndexFiles."""


def slope(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the exponent p with which costs grow as size**p: the slope of a line through the logarithms of both."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


_PLANNED_ENTRIES = 1 << 16
PLANNED: dict[str, Callable[[int], tuple[int, int]]] = {
    "splits": lambda step: (500 * step, 1000),
    "queues": lambda step: (100, 1250 * step),
}
"""Two series of growing plans. The last step has 4,000 splits of 1,000 queues, or 100 splits of 10,000 queues."""


def _measure_plans(folder: Path) -> Iterator[Figure]:
    for what, size_of in PLANNED.items():
        costs = []
        for step in STEPS:
            splits, queues = size_of(step)
            cost = plan_cost(folder / "planned", splits, queues)
            memory = plan_cost(folder / "planned", splits, queues, counts=True).memory
            costs.append((cost.seconds, memory, cost.sent))
            group = f"task that plans queues, {splits:,} splits, {queues:,} queues"
            yield Figure(group, "processor time", cost.seconds, "s")
            yield Figure(group, "memory", memory / (1 << 20), "MiB")
        names = ("time", "memory", "bytes of the plan")
        for name, each in zip(names, zip(*costs, strict=True), strict=True):
            power = slope(STEPS, each)
            group = f"task that plans queues, {what}"
            yield Figure(group, f"power by which {name} grows", power, "", most=1.1)


def measure(folder: Path) -> Iterator[Figure]:
    """Measure the driver and the task that plans queues, for stores of increasing size."""
    yield from _measure_plans(folder)
    for what, size_of in GROWING.items():
        costs = []
        for step in STEPS:
            size = size_of(step)
            cost = driver_cost(folder / "simulated", size)
            memory = driver_cost(folder / "simulated", size, counts=True).memory
            costs.append((cost.seconds, memory, cost.sent + cost.received))
            group = f"driver of a simulated rebuild, {what} x {step}"
            yield Figure(
                group,
                f"{cost.tasks:,} tasks, time per task",
                cost.seconds / cost.tasks * 1e3,
                "ms",
                most=1,
            )
            yield Figure(group, "memory per task", memory / cost.tasks / 1024, "KiB", most=2)
            yield Figure(group, "pickled bytes per task", costs[-1][2] / cost.tasks, "bytes")
        for name, each in zip(
            ("time", "memory", "pickled bytes"), zip(*costs, strict=True), strict=True
        ):
            yield Figure(
                f"driver of a simulated rebuild, {what}",
                f"power by which {name} grows",
                slope(STEPS, each),
                "",
                most=1.1,
            )
