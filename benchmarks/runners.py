"""Find the size of a log from which each runner is the fastest, for rebuild, look-up, check and export.

The runners are serial, processes and Spark. Each run is a new process, and its time includes the start of the runner,
as it does for a user.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.generate import write_store
from benchmarks.own_process import in_own_process
from benchmarks.result import Figure

_SIZES_MIB = (16, 64, 256, 1024)
_RUNNERS = ("serial", "processes", "spark")
_OPERATIONS = ("rebuild", "look_up", "check", "export")
_KEYS = 100_000
_MIB = 1 << 20


def measure(folder: Path, runs: int, sizes_mib: tuple[int, ...] = _SIZES_MIB) -> Iterator[Figure]:
    """Measure all sizes of logs. The fastest of `runs` runs counts."""
    taken: dict[tuple[str, str, int], float] = {}
    place = folder / "runners"
    try:
        for size in sizes_mib:
            store = place / f"store-{size}"
            write_store(store, size * _MIB)
            in_own_process("benchmarks.runners", "rebuild", store, store, "processes")
            for operation in _OPERATIONS:
                for _ in range(runs):
                    # Alternate between the runners, so that a busy machine affects all of them.
                    for runner in _RUNNERS:
                        output = place / "output"
                        shutil.rmtree(output, ignore_errors=True)
                        output.mkdir(parents=True)
                        run = in_own_process("benchmarks.runners", operation, store, output, runner)
                        name = operation, runner, size
                        taken[name] = min(taken.get(name, run["total_s"]), run["total_s"])
                        said = f"{operation}, {size} MiB, {runner}: {run['total_s']:.2f} s"
                        print(f"benchmarks: {said}", file=sys.stderr)
            shutil.rmtree(store)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    for operation in _OPERATIONS:
        yield from _of(operation, taken, sizes_mib)


def _of(
    operation: str, taken: dict[tuple[str, str, int], float], sizes: tuple[int, ...]
) -> Iterator[Figure]:
    group = f"runners, {operation}"
    for size in sizes:
        for runner in _RUNNERS:
            yield Figure(group, f"{size:,} MiB, {runner}", taken[operation, runner, size], "s")
    for slow, fast in (("serial", "processes"), ("serial", "spark"), ("processes", "spark")):
        first = next((s for s in sizes if taken[operation, fast, s] < taken[operation, slow, s]), 0)
        where = f"{fast} before {slow} from" if first else f"{fast} never before {slow}, up to"
        yield Figure(group, where, float(first or sizes[-1]), "MiB")


def _run(operation: str, store: str, output: str, runner: str) -> dict[str, Any]:
    import reput

    begun = time.perf_counter()
    if operation == "rebuild":
        reput.rebuild(store, output=output, runner=runner)
    elif operation == "check":
        reput.check(store, runner=runner)
    elif operation == "export":
        reput.export(store, Path(output, "table"), runner=runner)
    else:
        from benchmarks.lookup import mixed_keys

        keys = mixed_keys(
            sum(f.stat().st_size for f in Path(store, "commitlog").iterdir()) // 400, _KEYS
        )
        begun = time.perf_counter()
        for _ in reput.look_up(store, keys, runner=runner):
            pass
    return {"total_s": time.perf_counter() - begun}


if __name__ == "__main__":
    print(json.dumps(_run(*sys.argv[1:])))
