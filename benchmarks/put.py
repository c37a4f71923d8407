"""A living store: puts in every form, dispatched; group commit; memory over millions of puts.

`python -m benchmarks.put FOLDER MESSAGES` puts that many small messages and prints the anonymous memory it has then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path

import pyarrow as pa

from benchmarks.result import Figure
from reput import Message, open_store
from reput.query.living_store import LivingStore

_GROUP = "put, 1 KB bodies, unique key and one business key, dispatched"
_BODY_BYTES = 1024
_QUEUES = 8
_RUNS = 5
_MANY, _SINGLE = 1 << 18, 1 << 16
_COLUMNS = 1 << 13
_LEAST_MANY, _LEAST_SINGLE, _MOST_LAG_MS = 500_000, 120_000, 50
_THREADS, _PUTS_OF_A_THREAD, _LEAST_PER_SYNC = 16, 200, 8
_FEW_PUTS, _MANY_PUTS, _MOST_GROWTH_MB = 1_000_000, 10_000_000, 64


def measure(folder: Path) -> Iterator[Figure]:
    """Nothing of it stays in `folder`."""
    store = folder / "put"
    try:
        yield from _put(store)
        shutil.rmtree(store)
        yield from _group_commit(store)
        shutil.rmtree(store)
        yield from _memory(store)
    finally:
        shutil.rmtree(store, ignore_errors=True)


def _put(folder: Path) -> Iterator[Figure]:
    made = _messages(_MANY)
    given = _messages(_MANY)
    for number, message in enumerate(given):
        message.properties = {"UNIQ_KEY": f"{number:032X}"}
    columns = pa.record_batch(
        {
            "topic": pa.array([message.topic for message in made[:_COLUMNS]]),
            "body": pa.array([message.body for message in made[:_COLUMNS]]),
            "queue_id": pa.array([message.queue_id for message in made[:_COLUMNS]]),
            "keys": pa.array([message.keys[0] for message in made[:_COLUMNS]]),
        }
    )

    def put_columns(store: LivingStore) -> None:
        for _ in range(_MANY // _COLUMNS):
            store.put_columns(columns)

    def put_single(store: LivingStore) -> None:
        for message in made[:_SINGLE]:
            store.put(message)

    for name, put, count, least in (
        ("put_many", lambda store: store.put_many(made), _MANY, _LEAST_MANY),
        ("put_many, unique keys given", lambda store: store.put_many(given), _MANY, _LEAST_MANY),
        ("put_columns", put_columns, _MANY, None),
        ("put, one by one", put_single, _SINGLE, _LEAST_SINGLE),
    ):
        seconds, lag_s = _best(folder, put)
        yield Figure(_GROUP, name, count / seconds, "messages/s", least=least)
        yield Figure(_GROUP, "    most lag of dispatch", lag_s * 1e3, "ms", most=_MOST_LAG_MS)


def _messages(count: int) -> list[Message]:
    bodies = os.urandom(count + _BODY_BYTES)
    return [
        Message("TopicTest", bodies[at : at + _BODY_BYTES], [f"order-{at}"], queue_id=at % _QUEUES)
        for at in range(count)
    ]


def _best(folder: Path, put: Callable[[LivingStore], object]) -> tuple[float, float]:
    """Seconds of the fastest run until all is dispatched, and the most that dispatch lagged behind in it.

    Each run has a new store, where the one before was: memory that the system has just taken back.
    """
    runs = []
    for _ in range(_RUNS + 1):
        shutil.rmtree(folder, ignore_errors=True)
        with open_store(folder, mode="rw") as store:
            store.put_many([Message("TopicTest", bytes(_BODY_BYTES), ["warm"])] * _QUEUES)
            store.wait_dispatched()
            with _LagWatch(store) as watch:
                begun = time.perf_counter()
                put(store)
                store.wait_dispatched()
                seconds = time.perf_counter() - begun
        runs.append((seconds, watch.most_s))
    return min(runs[1:])


class _LagWatch:
    """Context manager: how long it takes at most until what was put is dispatched."""

    def __init__(self, store: LivingStore) -> None:
        self.most_s = 0.0
        self._store, self._stop = store, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _LagWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.is_set():
            end, begun = self._store.end_offset(), time.perf_counter()
            while not self._store.wait_dispatched(end, timeout_s=0):
                time.sleep(0.001)
            self.most_s = max(self.most_s, time.perf_counter() - begun)
            time.sleep(0.001)


def _group_commit(folder: Path) -> Iterator[Figure]:
    messages = _messages(_PUTS_OF_A_THREAD)
    with open_store(folder, mode="rw", flush="sync") as store:
        syncs = store.syncs

        def put() -> None:
            for message in messages:
                store.put(message)

        threads = [threading.Thread(target=put) for _ in range(_THREADS)]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds, count = time.perf_counter() - begun, _THREADS * _PUTS_OF_A_THREAD
        group = f"put with synchronous flush, {_THREADS} threads"
        yield Figure(
            group,
            "messages per fdatasync",
            count / (store.syncs - syncs),
            "",
            least=_LEAST_PER_SYNC,
        )
        yield Figure(group, "put", count / seconds, "messages/s")


def _memory(folder: Path) -> Iterator[Figure]:
    few, many = (_memory_after(folder, count) for count in (_FEW_PUTS, _MANY_PUTS))
    group = "memory of a process that puts"
    yield Figure(group, f"after {_FEW_PUTS:,} puts", few / 1e6, "MB")
    yield Figure(
        group, f"more after {_MANY_PUTS:,}", (many - few) / 1e6, "MB", most=_MOST_GROWTH_MB
    )


def _memory_after(folder: Path, count: int) -> int:
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "benchmarks.put", str(folder), str(count)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _put_small(folder: Path, count: int) -> int:
    """Anonymous memory, in bytes, after so many puts: that of mapped files is the system's to take back."""
    message = [Message("TopicTest", b"x", [f"k{number}"], queue_id=number) for number in range(64)]
    with open_store(folder, mode="rw") as store:
        left = cycle(message)
        for _ in range(count // _COLUMNS):
            store.put_many(islice(left, _COLUMNS))
        store.wait_dispatched()
        lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


if __name__ == "__main__":
    print(_put_small(Path(sys.argv[1]), int(sys.argv[2])))
