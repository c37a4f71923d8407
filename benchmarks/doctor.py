"""Measure commands that examine a store: check, quick check, stats, report and trace."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.generate import MESSAGE_BYTES, order_key
from benchmarks.own_process import in_own_process
from benchmarks.result import Figure, best_of
from reput.core.log.scan import FileScan, ScanBuffers
from reput.core.log.sources import StoreLog
from reput.core.log.verdict import ScanMode
from reput.engine.stores import open_store
from reput.format.file_names import COMMIT_LOG_FOLDER

_CHECK_OF_REBUILD, _STATS_OF_SCAN = 1.5, 1.3
_TRACES = 5


def measure(folder: Path, store: Path, runs: int) -> Iterator[Figure]:
    """Measure on a copy of `store` whose indexes are rebuilt. The log files are hard links."""
    whole = (folder / "doctor").absolute()
    shutil.rmtree(whole, ignore_errors=True)
    (whole / COMMIT_LOG_FOLDER).mkdir(parents=True)
    for file in (store / COMMIT_LOG_FOLDER).iterdir():
        (whole / COMMIT_LOG_FOLDER / file.name).hardlink_to(file)
    try:
        yield from _on_spark(whole, runs)
        yield from _one_process(folder, whole, runs)
    finally:
        shutil.rmtree(whole)


def _on_spark(store: Path, runs: int) -> Iterator[Figure]:
    seconds = in_own_process("benchmarks.doctor", store, runs)
    rebuilt, checked = seconds["rebuild"], seconds["check"]
    yield Figure("doctor", "rebuild, local[2]", rebuilt, "s")
    yield Figure("doctor", "full check, local[2]", checked, "s")
    yield Figure(
        "doctor", "full check, of the rebuild", checked / rebuilt, "x", most=_CHECK_OF_REBUILD
    )


def _one_process(folder: Path, store: Path, runs: int) -> Iterator[Figure]:
    quick = best_of(runs, lambda: _reput("check", store, "--quick"))
    yield Figure("doctor", "check --quick, whole process", quick, "s", most=1)
    scanned = best_of(runs, lambda: _scan(store))
    measured = best_of(runs, lambda: _figures(store))
    yield Figure("doctor", "scan kernel over the log, one process", scanned, "s")
    yield Figure("doctor", "stats, of the scan", measured / scanned, "x", most=_STATS_OF_SCAN)
    runner = ("--runner", "processes")
    checked = best_of(1, lambda: _reput("check", store, *runner))
    page = folder / "report.html"
    reported = best_of(1, lambda: _reput("report", store, "--output", page, *runner))
    yield Figure("doctor", "report, more than the check", reported - checked, "s", most=10)
    with open_store(store) as opened:
        key = order_key(opened.end_offset() // MESSAGE_BYTES // 3 // 3)
    traced = best_of(_TRACES, lambda: _reput("trace", store, "--key", key))
    yield Figure("doctor", "trace of one key, whole process", traced, "s", most=0.5)


def _reput(*arguments: object) -> None:
    command = Path(sys.executable).with_name("reput")
    subprocess.run([command, *map(str, arguments)], check=True, capture_output=True)


def _scan(store: Path) -> None:
    buffers = ScanBuffers()
    for file in StoreLog(store).list().files:
        for _ in FileScan(file, file.start, file.end, ScanMode.SALVAGE, buffers=buffers).batches():
            pass


def _figures(store: Path) -> None:
    from reput.wings.inspect.stats import measure_store

    with open_store(store) as opened:
        measure_store(opened)


def _run(store: Path, runs: int) -> dict[str, float]:
    from reput.base.config import StoreConfig
    from reput.engine.check.run import check_store, warm_up
    from reput.spark import rebuild
    from reput.spark.runner import prepared_runner
    from reput.spark.session import create_session

    spark = create_session("local[2]", "reput benchmark")
    runner = prepared_runner(spark, warm_up)
    seconds: dict[str, float] = {}
    for _ in range(runs):
        begun = time.perf_counter()
        rebuild(spark, store, config=StoreConfig())
        rebuilt = time.perf_counter()
        assert list(check_store(store, runner=runner)) == []
        checked = time.perf_counter()
        for name, taken in (("rebuild", rebuilt - begun), ("check", checked - rebuilt)):
            seconds[name] = min(taken, seconds.get(name, taken))
    spark.stop()
    return seconds


if __name__ == "__main__":
    print(json.dumps(_run(Path(sys.argv[1]), int(sys.argv[2]))))
