"""Many scenes: a fixed sample, and thousands in two processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from tempfile import mkdtemp
from zlib import crc32

# These register their paths.
from tests.truth import paths_api, paths_cli, paths_pages, paths_served, paths_spark  # noqa: F401
from tests.truth.answers import ReadingPath
from tests.truth.harness import Harness, Result

SAMPLE = range(1, 31)
"""The seeds of the scenes of which `make test` asks some paths."""
_ONE_IN = 6


def is_sampled(seed: int, path: ReadingPath) -> bool:
    """Return whether the sample has this path in the scene of this seed."""
    return crc32(f"{seed} {path}".encode()) % _ONE_IN == 0


def run_many(
    folder: Path,
    seeds: Sequence[int],
    processes: int | None = None,
    show: Callable[[Result], None] = lambda result: None,
) -> Result:
    """Run the scenes of these seeds in processes, with all paths. `show` gets the result of each scene."""
    every = Result()
    count = processes or min(os.cpu_count() or 1, 4)
    with ProcessPoolExecutor(count, get_context("spawn"), _begin, (folder,)) as pool:
        for future in as_completed([pool.submit(_run, seed) for seed in seeds]):
            result = future.result()
            show(result)
            every.add(result)
    return every


_harnesses: list[Harness] = []
"""The harness of a process. Its stores are built once."""


def _begin(folder: Path) -> None:
    _harnesses.append(Harness(Path(mkdtemp(dir=folder))))


def _run(seed: int) -> Result:
    return _harnesses[0].run(seed)
