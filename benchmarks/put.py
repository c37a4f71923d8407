"""Measure puts into a store: each kind of put until the end of dispatch, group commit, memory after millions of puts.

`python -m benchmarks.put FOLDER MESSAGES` puts this number of small messages, then prints its anonymous memory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from operator import itemgetter
from pathlib import Path

import pyarrow as pa

from benchmarks.result import Figure
from reput import Message, open_store
from reput.engine.writer.writable_store import WritableStore

_GROUP = "put, 1 KB bodies, unique key and one business key, dispatched"
_BODY_BYTES = 1024
_QUEUES = 8
_RUNS = 5
_MANY, _SINGLE = 1 << 18, 1 << 16
_COLUMNS = 1 << 13
_SAMPLE = 1 << 6
_LEAST_MANY, _LEAST_SINGLE, _MOST_LAG_MS = 500_000, 120_000, 50
_THREADS, _PUTS_OF_A_THREAD, _LEAST_PER_SYNC = 16, 200, 8
_FEW_PUTS, _MANY_PUTS, _MOST_GROWTH_MB = 1_000_000, 10_000_000, 64

_Puts = Callable[[WritableStore], Iterator[tuple[int, int]]]
"""A function that puts messages, and regularly yields the queue id and the queue offset of the last message."""


def measure(folder: Path) -> Iterator[Figure]:
    """Measure on stores in `folder`, and delete them."""
    store = folder / "put"
    try:
        yield from _put(store)
        shutil.rmtree(store)
        yield from _close(store)
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
    columns = _columns(made[:_COLUMNS])

    def put_many(messages: list[Message]) -> _Puts:
        def puts(store: WritableStore) -> Iterator[tuple[int, int]]:
            for at in range(0, _MANY, _COLUMNS):
                some = messages[at : at + _COLUMNS]
                yield some[-1].queue_id, store.put_many(some)[-1].queue_offset

        return puts

    def put_columns(store: WritableStore) -> Iterator[tuple[int, int]]:
        for _ in range(_MANY // _COLUMNS):
            yield made[_COLUMNS - 1].queue_id, int(store.put_columns(columns).queue_offset[-1])

    def put_single(store: WritableStore) -> Iterator[tuple[int, int]]:
        put = store.put
        for at in range(0, _SINGLE, _SAMPLE):
            for message in made[at : at + _SAMPLE]:
                result = put(message)
            yield message.queue_id, result.queue_offset

    for name, put, count, least in (
        ("put_many", put_many(made), _MANY, _LEAST_MANY),
        ("put_many, unique keys given", put_many(given), _MANY, _LEAST_MANY),
        ("put_columns", put_columns, _MANY, None),
        ("put, one by one", put_single, _SINGLE, _LEAST_SINGLE),
    ):
        seconds, lag_s = _best(folder, put)
        yield Figure(_GROUP, name, count / seconds, "messages/s", least=least)
        yield Figure(_GROUP, "    most lag of dispatch", lag_s * 1e3, "ms", most=_MOST_LAG_MS)


def _close(folder: Path) -> Iterator[Figure]:
    """Measure the time to close a store whose messages have all been dispatched and flushed.

    Closing proves the IndexFile that is not full yet, and syncs.
    """
    store = open_store(folder, mode="rw")
    store.put_many(_messages(_MANY))
    store.flush()
    store.wait_dispatched()
    begun = time.perf_counter()
    store.close()
    seconds = time.perf_counter() - begun
    yield Figure(_GROUP, f"close after {_MANY:,} messages, proof included", seconds, "s")


def _columns(messages: list[Message]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "topic": pa.array([message.topic for message in messages]),
            "body": pa.array([message.body for message in messages]),
            "queue_id": pa.array([message.queue_id for message in messages]),
            "keys": pa.array([(message.keys or [""])[0] for message in messages]),
        }
    )


def _messages(count: int) -> list[Message]:
    bodies = os.urandom(count + _BODY_BYTES)
    return [
        Message("TopicTest", bodies[at : at + _BODY_BYTES], [f"order-{at}"], queue_id=at % _QUEUES)
        for at in range(count)
    ]


def _best(folder: Path, puts: _Puts) -> tuple[float, float]:
    """Return the seconds of the fastest run until the end of dispatch, and the greatest lag of dispatch in this run.

    Each run replaces the store of the previous run. So it uses memory that the system has just freed, and need not map
    new memory. The first run does not count.
    """
    runs = []
    for _ in range(_RUNS + 1):
        shutil.rmtree(folder, ignore_errors=True)
        with open_store(folder, mode="rw") as store:
            store.put_many([Message("Other", bytes(_BODY_BYTES), ["warm"])] * _COLUMNS)
            store.wait_dispatched()
            runs.append(_run(store, puts))
    return min(runs[1:])


def _run(store: WritableStore, puts: _Puts) -> tuple[float, float]:
    arrivals: list[tuple[int, int, float]] = []
    store.subscribe(
        lambda topic, queue_id, end: arrivals.append((queue_id, end, time.perf_counter()))
    )
    begun = time.perf_counter()
    put = [(*last, time.perf_counter()) for last in puts(store)]
    store.wait_dispatched()
    return time.perf_counter() - begun, _most_lag(put, arrivals)


def _most_lag(put: list[tuple[int, int, float]], arrivals: list[tuple[int, int, float]]) -> float:
    """Return the longest time (seconds) from the return of a put until its message had a queue entry.

    A row of `put` has a queue id, a queue offset, and the time at which the put returned. A row of `arrivals` has a
    queue id, the end of the queue, and the time at which this end was reported.
    """
    most = 0.0
    for queue in range(_QUEUES):
        ends = [(end, when) for queue_id, end, when in arrivals if queue_id == queue]
        for queue_id, offset, when in put:
            if queue_id == queue:
                arrived = ends[bisect_right(ends, offset, key=itemgetter(0))][1]
                most = max(most, arrived - when)
    return most


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
    """Return the anonymous memory (bytes) after `count` puts.

    Memory of mapped files does not count, because the system can free it at any time.
    """
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
