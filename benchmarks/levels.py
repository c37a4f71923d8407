"""Compare each shipped kernel with the same kernel compiled for exactly this processor.

A rebuild, a check, the reading of a table and a put run once, and the longest call of each kernel is recorded with its
arguments. This call is then repeated in several processes, which alternately use the shipped kernels and the kernels
for this processor, so that noise affects both.
"""

from __future__ import annotations

import copy
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.generate import MESSAGE_BYTES, write_store
from benchmarks.own_process import in_own_process
from benchmarks.result import Figure
from reput import open_store, to_arrow
from reput.base.config import StoreConfig
from reput.base.tasks import SerialRunner
from reput.engine.check.run import check_store
from reput.engine.rebuild.driver import rebuild_store
from reput.kernels import compile_cache, kernel_cache

_GROUP = "shipped kernels, processor time relative to native ones"
_MESSAGES = 120_000
_RUNS, _TURNS, _LEAST_S = 15, 3, 200e-6
_CONFIG = StoreConfig(queue_entries=30_000, hash_slots=50_000, index_items=200_000)


def measure(folder: Path) -> Iterator[Figure]:
    """Measure with temporary files in `folder`, and delete them."""
    if compile_cache.shipped() is None:
        print(
            "benchmarks: no shipped kernels: run python packaging/ship_kernels.py", file=sys.stderr
        )
        return
    with tempfile.TemporaryDirectory() as native:
        environment = {"shipped": {}, "native": {"NUMBA_CACHE_DIR": native}}
        best: dict[str, dict[str, float]] = {"shipped": {}, "native": {}}
        for _ in range(_TURNS):
            for form, times in best.items():
                measured = in_own_process(
                    "benchmarks.levels", form, folder / "levels", **environment[form]
                )
                for name, seconds in measured.items():
                    times[name] = min(seconds, times.get(name, seconds))
    for name, seconds in sorted(best["native"].items()):
        if seconds >= _LEAST_S and name in best["shipped"]:
            yield Figure(_GROUP, name, best["shipped"][name] / seconds, "times", most=1.1)


def main(form: str, folder: str) -> None:
    """Repeat the longest call of each kernel in this process. Print the shortest times as JSON."""
    if form == "native":
        for module in (compile_cache, kernel_cache):
            vars(module)["shipped"] = lambda: None
    recorded = _record(Path(folder))
    print(
        json.dumps({name: _least_s(kernel, given) for name, (_, kernel, given) in recorded.items()})
    )


def _work(folder: Path) -> None:
    """Call each kernel that common operations use, on a new store in `folder`. Delete the store."""
    store, put = folder / "read", folder / "put"
    try:
        write_store(store, _MESSAGES * MESSAGE_BYTES, 1 << 26)
        rebuild_store(SerialRunner(), store, config=_CONFIG)
        for finding in check_store(store, config=_CONFIG):
            raise RuntimeError(f"the check is broken: {finding}")
        with to_arrow(store) as batches:
            rows = sum(batch.num_rows for batch in batches)
        if rows != _MESSAGES:
            raise RuntimeError(f"the table is broken: it has {rows} rows")
        with open_store(put, mode="rw", config=_CONFIG) as owned:
            keys = [f"order-{number}" for number in range(50_000)]
            count = len(keys)
            owned.put_columns(
                {"topic": ["orders"] * count, "body": [b"b" * 300] * count, "keys": keys}
            )
            owned.wait_dispatched()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _record(folder: Path) -> dict[str, tuple[float, Any, tuple[Any, ...]]]:
    """Return the longest call of each kernel: the seconds, the function and a copy of the arguments."""
    longest: dict[str, tuple[float, Any, tuple[Any, ...]]] = {}
    replaced = []

    def recording(name: str, kernel: Any) -> Any:
        def call(*arguments: Any) -> Any:
            before = copy.deepcopy(arguments)
            begun = time.thread_time()
            result = kernel(*arguments)
            seconds = time.thread_time() - begun
            if seconds > longest.get(name, (0.0,))[0]:
                longest[name] = seconds, kernel, before
            return result

        return call

    _work(folder)  # A first run imports all modules that have kernels, and loads the kernels.
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("reput."):
            for name, value in list(vars(module).items()):
                if isinstance(getattr(value, "_cache", None), kernel_cache.KernelCache):
                    home = value.py_func.__module__.rpartition(".")[2]
                    replaced.append((module, name, value))
                    setattr(module, name, recording(f"{home}.{value.py_func.__name__}", value))
    try:
        _work(folder)
    finally:
        for module, name, value in replaced:
            setattr(module, name, value)
    return longest


def _least_s(kernel: Any, arguments: tuple[Any, ...]) -> float:
    times = []
    for _ in range(_RUNS):
        given = copy.deepcopy(arguments)
        begun = time.thread_time()
        kernel(*given)
        times.append(time.thread_time() - begun)
    return min(times)


if __name__ == "__main__":
    main(*sys.argv[1:])
