"""Measure the waiting times of a notebook's user: for the first count on a new machine, and for a frequent key."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.own_process import in_own_process
from benchmarks.result import Figure

_GROUP = "in a notebook, local[2]"
_MESSAGES, _HITS = 600_000, 100_000
_KEY = "hot"


def measure(folder: Path) -> Iterator[Figure]:
    """Measure on a store of 600,000 messages, in which every sixth message has the same key. Delete the store."""
    store = folder / "notebook-store"
    _write(store)
    try:
        with tempfile.TemporaryDirectory(dir=folder) as empty:
            for columns in ("store", "all"):
                shutil.rmtree(empty)
                none = {"NUMBA_CACHE_DIR": empty, "XDG_CACHE_HOME": empty}
                first = in_own_process(__name__, store, columns, **none)
                what = "all columns" if columns == "all" else "one column"
                name = f"first count of {what}, kernels not compiled yet"
                yield Figure(_GROUP, name, first["count_s"], "s", most=15)
        warm = in_own_process(__name__, store, "store")
        yield Figure(_GROUP, "the same, compiled before", warm["count_s"], "s")
        hot = in_own_process(__name__, store, "key")
        yield Figure(_GROUP, f"key with {_HITS:,} hits: tasks", hot["tasks"], "tasks", most=8)
        yield Figure(_GROUP, f"key with {_HITS:,} hits", hot["key_s"], "s")
        yield Figure(_GROUP, "the same, of a scan", hot["key_s"] / hot["scan_s"], "x", most=1)
    finally:
        shutil.rmtree(store)


def _write(store: Path) -> None:
    import reput

    with reput.open_store(store, mode="rw") as opened:
        for start in range(0, _MESSAGES, 60_000):
            numbers = range(start, start + 60_000)
            opened.put_columns(
                {
                    "topic": ["orders"] * len(numbers),
                    "body": [b"body of message %012d" % number for number in numbers],
                    "keys": [[_KEY if number % 6 == 0 else f"k{number}"] for number in numbers],
                }
            )
        opened.wait_dispatched()


def _count(store: str, columns: str) -> dict[str, float]:
    """Return the seconds from the start of the session until the result of its first count."""
    begun = time.perf_counter()
    from reput.spark import register
    from reput.spark.session import create_session

    spark = create_session("local[2]", "reput benchmark")
    register(spark)
    reader = spark.read.format("rocketmq")
    reader = reader if columns == "all" else reader.option("columns", columns)
    counted = reader.load(store).count()
    assert counted == _MESSAGES, counted
    return {"count_s": time.perf_counter() - begun}


def _find_key(store: str) -> dict[str, float]:
    from reput.spark import register
    from reput.spark.session import create_session

    spark = create_session("local[2]", "reput benchmark")
    register(spark)

    def seconds(use_indexes: str) -> tuple[float, int]:
        reader = spark.read.format("rocketmq").options(key=_KEY, useIndexes=use_indexes)
        begun = time.perf_counter()
        frame = reader.option("columns", "physical_offset, tags").load(store)
        found = frame.count()
        assert found == _HITS, found
        return time.perf_counter() - begun, frame.rdd.getNumPartitions()

    seconds("true")  # In this first run, the JVM compiles its code.
    rounds = [(seconds("true"), seconds("false")) for _ in range(5)]
    with_index, without = map(min, zip(*rounds, strict=True))
    return {"key_s": with_index[0], "tasks": with_index[1], "scan_s": without[0]}


if __name__ == "__main__":
    os.environ.setdefault("REPUT_SPARK_LOG_LEVEL", "off")
    given, what = sys.argv[1:]
    print(json.dumps(_find_key(given) if what == "key" else _count(given, what)))
