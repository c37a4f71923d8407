"""Measure the time to find one message by key, with the command line and in a Python process."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.generate import order_key, topic_of, unique_key
from benchmarks.result import Figure
from reput import open_store

_SHELL_RUNS = 15
_LOOK_UPS = 3_000


def measure(store: Path, index: Path, messages: int) -> Iterator[Figure]:
    """Measure on the log of `store` and the rebuilt indexes in `index`."""
    yield from _shell(store, index, messages)
    yield from _in_process(store, index, messages)


def _shell(store: Path, index: Path, messages: int) -> Iterator[Figure]:
    reput = Path(sys.executable).with_name("reput")
    number = messages // 3
    times = []
    for _ in range(_SHELL_RUNS):
        begun = time.perf_counter()
        subprocess.run(
            [
                reput,
                "query",
                store,
                "--index",
                index,
                "--topic",
                topic_of(number),
                "--key",
                order_key(number),
            ],
            check=True,
            capture_output=True,
        )
        times.append(time.perf_counter() - begun)
    yield Figure(
        "query", "from the shell, whole process, median", statistics.median(times), "s", most=0.35
    )
    yield Figure("query", "from the shell, whole process, best", min(times), "s")


def _in_process(store: Path, index: Path, messages: int) -> Iterator[Figure]:
    chosen = random.Random(1).sample(range(messages), _LOOK_UPS)
    wanted = [(topic_of(number), unique_key(number)) for number in chosen]
    with open_store(store, index=index) as opened:
        yield Figure(
            "query",
            "warm look-up, index only",
            _median_us(opened.index.offsets, wanted),
            "µs/key",
            most=30,
        )
        yield Figure(
            "query",
            "warm look-up with the message",
            _median_us(opened.query, wanted),
            "µs/key",
            most=100,
        )


def _median_us(look_up: Callable[[str, str], object], wanted: list[tuple[str, str]]) -> float:
    """Return the median time of a call (µs), after a first pass that has read every needed page."""
    for topic, key in wanted:
        look_up(topic, key)
    times = []
    for topic, key in wanted:
        begun = time.perf_counter_ns()
        look_up(topic, key)
        times.append(time.perf_counter_ns() - begun)
    return statistics.median(times) / 1e3
