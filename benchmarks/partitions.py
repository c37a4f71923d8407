"""Measure the processor time of an additional partition on local[2]: compare the same work in 16 and 128 partitions.

A rebuild runs plain Spark tasks, and a look-up runs tasks of DataFrames. The tasks of both are empty here. The tasks
of the table read the queue ids of one small log.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.generate import write_store
from benchmarks.memory import ancestors
from benchmarks.own_process import in_own_process
from benchmarks.result import Figure
from benchmarks.table import sink

_GROUP = "one more partition on local[2], processor time"
_FEW, _MANY = 16, 128
_ROUNDS = 5  # The fastest round counts, because Java loads and compiles classes in the first ones.
_LOG_BYTES = 64 << 20
_NAMES = {"rebuild": "rebuild", "lookup": "look-up", "table": "table"}
_MOST_MS = {"rebuild": 20, "lookup": 20, "table": 60}


def measure(folder: Path) -> Iterator[Figure]:
    store = folder / "partitions"
    shutil.rmtree(store, ignore_errors=True)
    try:
        write_store(store, _LOG_BYTES, 1 << 30)
        result = in_own_process("benchmarks.partitions", store)
    finally:
        shutil.rmtree(store)
    for job, name in _NAMES.items():
        yield Figure(_GROUP, name, result[job], "ms", most=_MOST_MS[job])


def _run(store: str) -> dict[str, float]:
    from reput.engine.rebuild.warm_up import warm_up
    from reput.spark import register
    from reput.spark.runner import FrameRunner, prepared_runner
    from reput.spark.session import create_session

    spark = create_session("local[2]", "reput benchmark")
    register(spark)
    runners = {"rebuild": prepared_runner(spark, warm_up), "lookup": FrameRunner(spark)}

    def run_empty(job: str, count: int) -> None:
        runner: Any = runners[job]
        runner.partitions_per_slot = count / runner.parallelism
        runner.run(abs, range(count), [1] * count, lambda done, total: None)

    def run_table(count: int) -> None:
        sink(spark, store, schema="queue_id int", options={"splitBytes": str(_LOG_BYTES // count)})

    jobs: dict[str, Callable[[int], None]] = {job: partial(run_empty, job) for job in runners}
    jobs["table"] = run_table
    costs = {job: _cost_ms(run) for job, run in jobs.items()}
    spark.stop()
    return costs


def _cost_ms(run: Callable[[int], None]) -> float:
    """Return the processor time (ms) of an additional partition.

    For each number of partitions, the fastest of some rounds counts.
    """
    spent: dict[int, float] = {}
    for _ in range(_ROUNDS):
        for count in (_FEW, _MANY):
            before = _core_s()
            run(count)
            taken = _core_s() - before
            spent[count] = min(taken, spent.get(count, taken))
    return 1000 * (spent[_MANY] - spent[_FEW]) / (_MANY - _FEW)


def _core_s() -> float:
    """Return the processor time (seconds) of this process and of the running processes that it started."""
    own = os.getpid()
    parents, spent = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        parents[pid] = int(fields[1])
        spent[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return sum(seconds for pid, seconds in spent.items() if own in ancestors(pid, parents))


if __name__ == "__main__":
    print(json.dumps(_run(sys.argv[1])))
