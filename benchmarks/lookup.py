"""Measure the look-up of a million keys on local[2]. Half of the keys are in the log.

The measured time ends when the answer has been written to a sink that drops it. The keys are passed as the path of a
Parquet file, which the driver stages. For comparison, they are also passed as a DataFrame that reads this file.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.generate import topic_of, unique_key
from benchmarks.memory import MemoryWatch
from benchmarks.own_process import in_own_process
from benchmarks.result import Figure
from reput.engine.lookup.key_parts import stage_parts

_GROUP = "look-up of 1,000,000 keys on local[2]"
_KEYS = 1_000_000


def measure(store: Path, index: Path, messages: int, runs: int) -> Iterator[Figure]:
    """Look up keys in the log of `store` with the rebuilt indexes in `index`. The fastest run counts."""
    keys = index.parent / "keys.parquet"
    pq.write_table(mixed_keys(messages, _KEYS), keys)
    results = [in_own_process("benchmarks.lookup", store, index, keys) for _ in range(runs)]
    frames = [in_own_process("benchmarks.lookup", store, index, keys, "frame") for _ in range(runs)]
    staged_s = min(_staged_s(keys, index.parent / "staged-keys") for _ in range(runs))
    keys.unlink()
    yield Figure(_GROUP, "Parquet to sorted hashes, without Spark, processor time", staged_s, "s")
    best = min(results, key=lambda result: float(result["total_s"]))
    yield Figure(_GROUP, "session up to the last row of the answer", best["total_s"], "s", most=5)
    yield Figure(_GROUP, "of which the look-up itself", best["look_up_s"], "s")
    frame_s = min(float(result["total_s"]) for result in frames)
    yield Figure(_GROUP, "the same, keys in a DataFrame", frame_s, "s")
    yield Figure(_GROUP, "messages found", best["found"] / 1e6, "million")
    worker = max(result["worker_bytes"] for result in results) / 1e9
    yield Figure(_GROUP, "most memory of a Python worker", worker, "GB", most=1.5)
    driver = max(result["driver_bytes"] for result in results) / 1e9
    yield Figure(_GROUP, "memory of the driver's Python", driver, "GB")


def _staged_s(keys: Path, folder: Path) -> float:
    """Return the processor time (seconds) to stage the keys of a Parquet file in this process."""
    folder.mkdir()
    try:
        begun = time.process_time()
        parts = list(stage_parts(pq.ParquetFile(keys).iter_batches(), folder / "keys"))
        seconds = time.process_time() - begun
        assert sum(part.keys for part in parts) == _KEYS
        return seconds
    finally:
        shutil.rmtree(folder)


def mixed_keys(messages: int, count: int) -> pa.Table:
    """Return unique keys in random order. Half of them belong to messages anywhere in the log, half to no message."""
    random = np.random.default_rng(1)
    present = random.choice(messages, count // 2, replace=False)
    absent = messages + np.arange(count - count // 2)
    numbers = random.permutation(np.concatenate((present, absent))).tolist()
    columns = {
        "topic": [topic_of(number) for number in numbers],
        "key": [unique_key(number) for number in numbers],
    }
    return pa.table(columns)


def _look_up(store: str, index: str, keys: str, form: str = "path") -> dict[str, Any]:
    from reput.engine.lookup.warm_up import warm_up
    from reput.spark.bulk_lookup import lookup
    from reput.spark.session import create_session

    spark = create_session("local[2]", "reput benchmark")
    warm_up()
    with MemoryWatch() as memory:
        begun = time.perf_counter()
        given = keys if form == "path" else spark.read.parquet(keys)
        answer = lookup(spark, store, given, index=index)
        look_up_s = time.perf_counter() - begun
        answer.write.format("noop").mode("overwrite").save()
        total_s = time.perf_counter() - begun
    found = answer.where("physical_offset is not null").count()
    spark.stop()
    return {
        "total_s": total_s,
        "look_up_s": look_up_s,
        "found": found,
        "worker_bytes": memory.workers,
        "driver_bytes": memory.driver,
    }


if __name__ == "__main__":
    print(json.dumps(_look_up(*sys.argv[1:])))
