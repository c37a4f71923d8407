"""Measure the work of the driver in a look-up and in an export of many stores, without the work of the tasks."""

from __future__ import annotations

import shutil
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import reput
from benchmarks.generate import order_key, topic_of, write_store
from benchmarks.result import Figure
from benchmarks.simulated import STEPS, Cost, CountingRunner, counted, slope
from reput.engine.lookup.arrow import find
from reput.engine.lookup.keys import Keys
from reput.wings.lakes.driver import export_sources
from reput.wings.lakes.planning import open_stores
from reput.wings.lakes.request import ExportRequest
from reput.wings.lakes.tables.opening import open_table

_LOG_BYTES = 4000
_FILE_BYTES = 1 << 12
_CONFIG = reput.StoreConfig(queue_entries=100, hash_slots=100, index_items=400)
STORES = 125
"""The number of stores at step 1. Step 8 has eight times as many."""


class Untimed(CountingRunner):
    """A Runner that runs tasks one after the other, and does not count their time and calls."""

    def __init__(self) -> None:
        super().__init__()
        # Peak memory of the driver, measured until the start of the last tasks.
        self.memory = 0

    def run(
        self,
        function: Callable[[Any], Any],
        tasks: Sequence[Any],
        weights: Sequence[int],
        progress: Callable[[int, int], None],
    ) -> list[Any]:
        """See Runner."""
        counting = sys.getprofile()
        sys.setprofile(None)
        self.memory = max(self.memory, tracemalloc.get_traced_memory()[1])
        results = self.counted(function, tasks, function)
        if tracemalloc.is_tracing():
            tracemalloc.reset_peak()
        sys.setprofile(counting)
        return results


def _look_up(stores: Sequence[str], runner: Untimed, folder: Path) -> None:
    keys = Keys.of([(topic_of(0), order_key(0))])
    with find(stores, keys, runner, staging=folder) as found:
        assert found.answer.counts().messages == len(stores)


def _export(stores: Sequence[str], runner: Untimed, folder: Path) -> None:
    sources, table = open_stores(stores), open_table(str(folder / "lake"), "parquet")
    report = export_sources(sources, table, ExportRequest(), lambda size: runner)
    assert len(report.stores) == len(stores)


JOBS: dict[str, Callable[[Sequence[str], Untimed, Path], None]] = {
    "look-up": _look_up,
    "export": _export,
}


def stores_cost(folder: Path, count: int, job: str, *, counts: bool = False) -> Cost:
    """Return the driver's cost of a job over `count` small stores with indexes; see `driver_cost`."""
    shutil.rmtree(folder, ignore_errors=True)
    first, work = folder / "store-0", folder / "work"
    work.mkdir(parents=True)
    try:
        write_store(first, _LOG_BYTES, _FILE_BYTES)
        reput.rebuild(first, config=_CONFIG, runner="serial")
        stores = [str(first)]
        for number in range(1, count):
            stores.append(str(shutil.copytree(first, folder / f"store-{number}")))
        # Tasks run in this process, and allocate buffers that later tasks reuse. Such buffers are not memory of the
        # driver, so run the job once before the measurement.
        JOBS[job](stores[:1], Untimed(), folder / "before")
        runner = Untimed()
        run = partial(JOBS[job], stores, runner, work)
        calls = memory = 0
        begun = time.process_time()
        if counts:
            calls, memory = counted(run)
            memory = max(memory, runner.memory)
        else:
            run()
        seconds = time.process_time() - begun - runner.seconds
    finally:
        shutil.rmtree(folder)
    return Cost(runner.tasks, seconds, calls, memory, runner.sent, runner.received)


def measure(folder: Path) -> Iterator[Figure]:
    """Measure the driver's cost of each job for growing numbers of stores."""
    for job in JOBS:
        costs = []
        for step in STEPS:
            cost = stores_cost(folder / "stores", STORES * step, job)
            memory = stores_cost(folder / "stores", STORES * step, job, counts=True).memory
            costs.append((cost.seconds, memory, cost.sent + cost.received))
            group = f"driver of {job}, {STORES * step:,} stores"
            time_ms = cost.seconds / cost.tasks * 1e3
            yield Figure(group, f"{cost.tasks:,} tasks, time per task", time_ms, "ms", most=1)
            yield Figure(group, "memory per task", memory / cost.tasks / 1024, "KiB")
            yield Figure(group, "pickled bytes per task", costs[-1][2] / cost.tasks, "bytes")
        names = ("time", "memory", "pickled bytes")
        for name, each in zip(names, zip(*costs, strict=True), strict=True):
            power = slope(STEPS, each)
            yield Figure(
                f"driver of {job}, stores", f"power by which {name} grows", power, "", most=1.1
            )
