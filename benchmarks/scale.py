"""Measure the jobs in 1, 2, 4 and 8 partitions, on a standalone cluster of two workers with one core each.

The work is always the same. Two cores run two partitions at a time, so the additional time with 4 and 8 partitions is
the cost of the partitions. Spark counts the bytes of shuffles and the bytes of results for the driver.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.generate import MESSAGE_BYTES
from benchmarks.lookup import mixed_keys
from benchmarks.own_process import in_own_process
from benchmarks.result import Figure
from benchmarks.table import HEADER, sink
from reput.base.config import StoreConfig
from reput.core.log.scan import ScanBuffers
from reput.engine.rebuild.growing import find_log_end
from reput.engine.tables.log_paths import find_logs
from reput.format.file_names import COMMIT_LOG_FOLDER

_PARTITIONS = (1, 2, 4, 8)
_CORES = 2
# The number of splits of the log, of IndexFiles, and of files of keys, so that all partitions get equally many.
_MOST = max(_PARTITIONS)
_KEYS = 200_000
# In the first two rounds, the JVMs still compile their code. For each job, the fastest round counts.
_ROUNDS = 3
_JOBS = {
    "all": "table, all columns",
    "header": "table, header columns",
    "rebuild": "rebuild",
    "lookup": f"look-up of {_KEYS:,} keys",
    "export": "export to Parquet",
}


def measure(folder: Path, store: Path) -> Iterator[Figure]:
    """Measure on a store in `folder` that contains the first file of the log of `store`."""
    # The folder `tests` is only in a checkout, so import it late.
    from tests.spark.standalone import StandaloneCluster

    work = (folder / "scale").absolute()
    shutil.rmtree(work, ignore_errors=True)
    log_bytes, messages = _part_of(store, work / "store")
    _write_keys(work / "keys", messages)
    cluster = StandaloneCluster(work, workers=_CORES)
    try:
        result = in_own_process("benchmarks.scale", cluster.url, work, log_bytes)
    finally:
        cluster.stop()
        shutil.rmtree(work)
    for job, name in _JOBS.items():
        yield from _figures(
            f"{name}, {log_bytes / 1e9:.2f} GB, standalone, 2 x 1 core", result[job]
        )


def _part_of(store: Path, part: Path) -> tuple[int, int]:
    """Create a store with only the first log file. Return the bytes of its log, and the number of its messages."""
    first = min((store / COMMIT_LOG_FOLDER).iterdir())
    (part / COMMIT_LOG_FOLDER).mkdir(parents=True)
    (part / COMMIT_LOG_FOLDER / first.name).symlink_to(first.resolve())
    log_bytes = find_log_end(find_logs([str(part)])[0], ScanBuffers())
    return log_bytes, log_bytes // MESSAGE_BYTES


def _write_keys(folder: Path, messages: int) -> None:
    folder.mkdir()
    keys, rows = mixed_keys(messages, _KEYS), -(-_KEYS // _MOST)
    for number in range(_MOST):
        pq.write_table(keys.slice(number * rows, rows), folder / f"{number}.parquet")


def _figures(group: str, result: dict[str, Any]) -> Iterator[Figure]:
    seconds = {count: float(result["seconds"][str(count)]) for count in _PARTITIONS}
    for count in _PARTITIONS:
        yield Figure(group, f"{count} partition{'s' * (count > 1)}", seconds[count], "s")
    few, many = result["counted"][str(_CORES)], result["counted"][str(_MOST)]
    more_s = (seconds[_MOST] - seconds[_CORES]) * _CORES
    more_ms = 1000 * more_s / (many["tasks"] - few["tasks"])
    yield Figure(group, f"tasks for {_CORES} partitions, in all phases", few["tasks"], "")
    yield Figure(group, f"tasks for {_MOST} partitions, in all phases", many["tasks"], "")
    yield Figure(group, "processor time of each task more", more_ms, "ms")
    yield Figure(group, "written to shuffles", many["shuffle_bytes"], "bytes", most=0)
    yield Figure(group, "results to the driver", many["result_bytes"] / 1e3, "KB")


def _run(master: str, work: str, log_bytes: int) -> dict[str, Any]:
    from reput.spark import register
    from reput.spark.runner import SparkRunner
    from reput.spark.session import create_session

    conf = {
        "spark.ui.enabled": "true",  # Spark's counters are read from its web server.
        "spark.ui.port": "0",
        # With such a high cost, Spark does not put several files into one partition: each file of keys is a partition.
        "spark.sql.files.openCostInBytes": str(1 << 30),
    }
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = create_session(master, "reput benchmark", conf)
    register(spark)
    jobs = _jobs(spark, Path(work), log_bytes)
    seconds: dict[str, dict[int, float]] = {job: {} for job in jobs}
    for number in range(_ROUNDS):
        for job, run in jobs.items():
            for count in _PARTITIONS:
                SparkRunner.partitions_per_slot = count / _CORES
                taken = _timed(spark, f"{job}-{count}-{number}", partial(run, count))
                print(f"{job}, {count} partitions: {taken:.2f} s", file=sys.stderr)
                seconds[job][count] = min(taken, seconds[job].get(count, taken))
    counted = _counts(spark)
    spark.stop()
    return {
        job: {
            "seconds": seconds[job],
            "counted": {count: counted[f"{job}-{count}-{_ROUNDS - 1}"] for count in _PARTITIONS},
        }
        for job in jobs
    }


def _jobs(spark: SparkSession, work: Path, log_bytes: int) -> dict[str, Callable[[int], None]]:
    """Return for each job a function that runs it in a given number of partitions.

    The look-up uses the indexes of the rebuild, so the rebuild must run first.
    """
    from reput.spark import export, rebuild
    from reput.spark.bulk_lookup import lookup

    store, split = str(work / "store"), -(-log_bytes // _MOST)
    items = 2 * (log_bytes // MESSAGE_BYTES) // _MOST + 2
    config = StoreConfig(hash_slots=items // 4, index_items=items)

    def run_table(schema: str | None, count: int) -> None:
        sink(spark, store, schema=schema, options={"splitBytes": str(-(-log_bytes // count))})

    def run_rebuild(count: int) -> None:
        output = work / "rebuilt"
        rebuild(spark, store, config=config, output=output, split_size=split)

    def run_lookup(count: int) -> None:
        keys = spark.read.parquet(str(work / "keys")).coalesce(count)
        index, staging = work / "rebuilt", work / "staging"
        answer = lookup(spark, store, keys, index=index, config=config, staging=staging)
        answer.write.format("noop").mode("overwrite").save()

    def run_export(count: int) -> None:
        output = work / "exported"
        shutil.rmtree(output, ignore_errors=True)
        export(spark, store, output, split_size=split)

    return {
        "all": partial(run_table, None),
        "header": partial(run_table, HEADER),
        "rebuild": run_rebuild,
        "lookup": run_lookup,
        "export": run_export,
    }


def _timed(spark: SparkSession, tag: str, run: Callable[[], None]) -> float:
    spark.sparkContext.addJobTag(tag)
    begun = time.perf_counter()
    try:
        run()
    finally:
        spark.sparkContext.removeJobTag(tag)
    return time.perf_counter() - begun


def _counts(spark: SparkSession) -> dict[str, dict[str, int]]:
    """Return by job tag: number of tasks, bytes written to shuffles, and bytes of results sent to the driver."""
    time.sleep(2)  # Spark updates its counters with a delay.
    stages = {stage["stageId"]: stage for stage in _rest(spark, "stages")}
    counted: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for job in _rest(spark, "jobs"):
        for stage in (stages[number] for number in job["stageIds"]):
            for tag in job["jobTags"]:
                counted[tag]["tasks"] += stage["numCompleteTasks"]
                counted[tag]["shuffle_bytes"] += stage["shuffleWriteBytes"]
                counted[tag]["result_bytes"] += stage["resultSize"]
    return counted


def _rest(spark: SparkSession, what: str) -> list[dict[str, Any]]:
    context = spark.sparkContext
    url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/{what}"
    with urllib.request.urlopen(url, timeout=20) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found


if __name__ == "__main__":
    print(json.dumps(_run(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
