"""Measure `reput rebuild` of the benchmark store on local[2], several times, each with a new Spark session.

Rebuilds without Spark are also measured: in one process, and in two processes at the same time, each with its own whole
rebuild. The rate of the two processes shows what two cores can reach. local[2] loses time by waiting and by passing
data between processes, so its rate is lower.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.memory import MemoryWatch
from benchmarks.own_process import in_own_process
from benchmarks.result import Figure

_GROUP = "rebuild on local[2]"


def measure(store: Path, output: Path, runs: int) -> Iterator[Figure]:
    """Rebuild `store` into `output`, and keep the indexes there. The fastest run counts."""
    results = []
    for _ in range(runs):
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir()
        results.append(in_own_process("benchmarks.rebuild", store, output))
    best = min(results, key=lambda result: float(result["total_s"]))
    messages, seconds = best["messages"] / 1e6, best["total_s"]
    yield Figure(_GROUP, "messages", messages, "million")
    yield Figure(_GROUP, "first task to commit", messages / seconds, "million messages/s", least=4)
    yield Figure(
        _GROUP, "first task to commit, keys", best["keys"] / 1e6 / seconds, "million keys/s"
    )
    for phase in ("scan", "write", "commit", "total"):
        yield Figure(_GROUP, phase, best[f"{phase}_s"], "s")
    yield Figure(_GROUP, "start of Spark, kernels loaded", best["session_s"], "s")
    yield Figure(_GROUP, "bytes written", best["bytes_written"] / 1e9, "GB")
    worker = max(result["worker_bytes"] for result in results) / 1e9
    yield Figure(_GROUP, "most memory of a Python worker", worker, "GB", most=1.5)
    driver = max(result["driver_bytes"] for result in results) / 1e9
    yield Figure(_GROUP, "memory of the driver's Python", driver, "GB")
    yield from _serial(store, output.parent, runs, messages / seconds)


def _serial(store: Path, folder: Path, runs: int, on_spark: float) -> Iterator[Figure]:
    """Measure rebuilds without Spark. `on_spark` is the rate of local[2], in million messages/s."""
    alone = min(_rates(store, folder, 1)[1] for _ in range(runs))
    pair = max(_rates(store, folder, 2)[0] for _ in range(runs))
    yield Figure(
        _GROUP, "one process without Spark, processor time", 1e9 * alone, "ns a message", most=360
    )
    yield Figure(_GROUP, "two such processes at once", pair, "million messages/s")
    yield Figure(_GROUP, "local[2], of two such processes", 100 * on_spark / pair, "%", least=88)


def _rates(store: Path, folder: Path, processes: int) -> tuple[float, float]:
    """Run this number of rebuilds at the same time.

    Return the total rate in million messages/s, and the lowest processor time (seconds per message) of a rebuild.
    """
    outputs = [folder / f"serial-{number}" for number in range(processes)]
    try:
        for output in outputs:
            output.mkdir()
        with ThreadPoolExecutor(processes) as pool:
            rebuild = partial(in_own_process, "benchmarks.rebuild", store)
            results = list(pool.map(lambda output: rebuild(output, "serial"), outputs))
    finally:
        for output in outputs:
            shutil.rmtree(output, ignore_errors=True)
    rates = [float(result["messages"]) / float(result["total_s"]) for result in results]
    return sum(rates) / 1e6, min(float(run["core_s"]) / run["messages"] for run in results)


def _rebuild_serially(store: Path, output: Path) -> dict[str, Any]:
    from reput.base.config import StoreConfig
    from reput.base.tasks import SerialRunner
    from reput.engine.rebuild.driver import rebuild_store
    from reput.engine.rebuild.warm_up import warm_up

    warm_up()
    begun = time.process_time()
    report = rebuild_store(SerialRunner(), store, config=StoreConfig(), output=output)
    return {**report.as_dict(), "core_s": time.process_time() - begun}


def _rebuild(store: Path, output: Path) -> dict[str, Any]:
    from reput.base.config import StoreConfig
    from reput.engine.rebuild.warm_up import warm_up
    from reput.spark import rebuild
    from reput.spark.session import create_session

    begun = time.perf_counter()
    spark = create_session("local[2]", "reput benchmark")
    warm_up()
    session_s = time.perf_counter() - begun
    with MemoryWatch() as memory:
        report = rebuild(spark, store, config=StoreConfig(), output=output)
    spark.stop()
    return {
        **report.as_dict(),
        "session_s": session_s,
        "worker_bytes": memory.workers,
        "driver_bytes": memory.driver,
    }


if __name__ == "__main__":
    run = _rebuild_serially if "serial" in sys.argv else _rebuild
    print(json.dumps(run(Path(sys.argv[1]), Path(sys.argv[2]))))
