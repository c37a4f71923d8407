"""`reput rebuild` of the benchmark store on local[2], as often as asked, with a new session each time."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.memory import MemoryWatch
from benchmarks.own_process import in_own_process
from benchmarks.result import Figure

_GROUP = "rebuild on local[2]"


def measure(store: Path, output: Path, runs: int) -> Iterator[Figure]:
    """Rebuild `store` into `output`, which holds the indexes afterwards. The best run counts."""
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


def _rebuild(store: Path, output: Path) -> dict[str, Any]:
    from reput.config import StoreConfig
    from reput.rebuild.warm_up import warm_up
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
        **report.as_json(),
        "session_s": session_s,
        "worker_bytes": memory.workers,
        "driver_bytes": memory.driver,
    }


if __name__ == "__main__":
    print(json.dumps(_rebuild(Path(sys.argv[1]), Path(sys.argv[2]))))
