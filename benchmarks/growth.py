"""Measure how the time of jobs grows with the log: run them on increasing parts of one log, on one and two cores."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks import many_stores, simulated
from benchmarks.generate import MESSAGE_BYTES, order_key, topic_of
from benchmarks.lookup import mixed_keys
from benchmarks.own_process import in_own_process
from benchmarks.result import Figure, best_of
from benchmarks.table import HEADER, sink
from reput.core.log.scan import ScanBuffers
from reput.engine.rebuild.growing import find_log_end
from reput.engine.tables.log_paths import find_logs
from reput.format.file_names import COMMIT_LOG_FOLDER

_FILES = (1, 10, 40)  # Numbers of log files of 1 GiB each. The whole log is also measured.
_CORES = (1, 2)
_KEYS = 100_000
_SHELL_RUNS = 5


def measure(folder: Path, store: Path) -> Iterator[Figure]:
    """Measure on stores in `folder` that contain the first files of the log of `store`."""
    files = sorted((store / COMMIT_LOG_FOLDER).iterdir())
    work = (folder / "growth").absolute()
    for count in sorted({*(count for count in _FILES if count < len(files)), len(files)}):
        shutil.rmtree(work, ignore_errors=True)
        (work / COMMIT_LOG_FOLDER).mkdir(parents=True)
        for file in files[:count]:
            (work / COMMIT_LOG_FOLDER / file.name).hardlink_to(file)
        try:
            yield from _of_one(work)
        finally:
            shutil.rmtree(work)
    yield from simulated.measure(folder)
    yield from many_stores.measure(folder)


def _of_one(store: Path) -> Iterator[Figure]:
    log_bytes = find_log_end(find_logs([str(store)])[0], ScanBuffers())
    messages = log_bytes // MESSAGE_BYTES
    keys = store / "keys.parquet"
    pq.write_table(mixed_keys(messages, _KEYS), keys)
    group = f"log of {log_bytes / 1e9:.1f} GB, {messages / 1e6:.1f} million messages"
    for cores in _CORES:
        seconds = in_own_process("benchmarks.growth", store, cores, keys)
        for job, taken in seconds.items():
            yield Figure(group, f"{job}, local[{cores}]", float(taken), "s")
    number = messages // 3
    question = ("query", store, "--topic", topic_of(number), "--key", order_key(number))
    yield Figure(
        group, "reput query, whole process", best_of(_SHELL_RUNS, lambda: _reput(*question)), "s"
    )
    quick = ("check", store, "--quick")
    yield Figure(group, "reput check --quick", best_of(_SHELL_RUNS, lambda: _reput(*quick)), "s")


def _reput(*arguments: object) -> None:
    command = Path(sys.executable).with_name("reput")
    subprocess.run([command, *map(str, arguments)], check=True, capture_output=True)


def _run(store: str, cores: str, keys: str) -> dict[str, float]:
    from reput.base.config import StoreConfig
    from reput.engine.check.run import check_store
    from reput.engine.check.run import warm_up as warm_up_check
    from reput.engine.lookup.warm_up import warm_up_look_up as warm_up_lookup
    from reput.engine.rebuild.warm_up import warm_up
    from reput.spark import rebuild, register
    from reput.spark.bulk_lookup import lookup
    from reput.spark.runner import prepared_runner
    from reput.spark.session import create_session

    for folder in ("consumequeue", "index"):
        shutil.rmtree(Path(store, folder), ignore_errors=True)
    spark = create_session(f"local[{cores}]", "reput benchmark")
    register(spark)
    warm_up()
    warm_up_lookup()
    runner = prepared_runner(spark, warm_up_check)

    def look_up() -> None:
        answer = lookup(spark, store, spark.read.parquet(keys))
        answer.write.format("noop").mode("overwrite").save()

    jobs: dict[str, Callable[[], object]] = {
        "rebuild": lambda: rebuild(spark, Path(store), config=StoreConfig()),
        "full check": lambda: list(check_store(Path(store), runner=runner)),
        "table, header columns": lambda: sink(spark, store, schema=HEADER),
        f"look-up of {_KEYS:,} keys": look_up,
    }
    seconds = {}
    for name, job in jobs.items():
        begun = time.perf_counter()
        job()
        seconds[name] = time.perf_counter() - begun
    spark.stop()
    return seconds


if __name__ == "__main__":
    print(json.dumps(_run(*sys.argv[1:])))
