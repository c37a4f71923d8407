"""Measure the time to prove IndexFiles, and the additional time of a query from the shell if they are not proven."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.generate import order_key, topic_of
from benchmarks.result import Figure, best_of
from reput import open_store
from reput.engine.compare.proof import prove

_SHELL_RUNS = 7


def measure(store: Path, index: Path, messages: int) -> Iterator[Figure]:
    """Measure on the log of `store` and the rebuilt indexes in `index`."""
    with open_store(store, index=index) as opened:
        file = opened.index.current()[0]
        log = opened.commit_log
        known = prove(file, log)
        yield Figure("proof", "entries of the file", known.items / 1e6, "million")
        # With the earlier proof `known`, the log is not read again: only slots, entries and links are checked.
        seconds = best_of(3, lambda: prove(file, log, known))
        yield Figure("proof", "slots and entries of one IndexFile, warm", seconds, "s", most=0.7)
        yield Figure("proof", "… million entries/s", known.items / seconds / 1e6, "million/s")
        yield Figure("proof", "… and the log, warm", best_of(3, lambda: prove(file, log)), "s")
    yield from _shell(store, index, messages)


def _shell(store: Path, index: Path, messages: int) -> Iterator[Figure]:
    """Measure the command `reput query` for one key: without proofs, with stored spot checks, and with proofs."""
    cache = index.with_name("proofs")
    first, later, proven = [], [], []
    try:
        for _ in range(_SHELL_RUNS):
            shutil.rmtree(cache, ignore_errors=True)
            first.append(_query(store, index, messages, cache))
            later.append(_query(store, index, messages, cache))
        _run("prove", store, index, cache)
        proven += [_query(store, index, messages, cache) for _ in range(_SHELL_RUNS)]
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    base = statistics.median(proven)
    yield Figure("proof", "query from the shell, files proven", base, "s")
    for name, times in (("first spot checks", first), ("spot checks remembered", later)):
        more = (statistics.median(times) - base) * 1e3
        yield Figure("proof", f"… more with {name}", more, "ms", most=100 if times is first else 15)


def _query(store: Path, index: Path, messages: int, cache: Path) -> float:
    number = messages // 3
    key = ("--topic", topic_of(number), "--key", order_key(number))
    begun = time.perf_counter()
    _run("query", store, index, cache, *key)
    return time.perf_counter() - begun


def _run(command: str, store: Path, index: Path, cache: Path, *arguments: str) -> None:
    subprocess.run(
        [Path(sys.executable).with_name("reput"), command, store, "--index", index, *arguments],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        check=True,
        capture_output=True,
    )
