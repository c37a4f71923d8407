"""Many scenes: a fixed sample, and thousands in two processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from zlib import crc32

from tests.truth import paths_api, paths_cli, paths_served  # noqa: F401  (they register their paths)
from tests.truth.answers import ReadingPath
from tests.truth.harness import Harness, Result

SAMPLE = range(1, 41)
"""The seeds of the scenes of which `make test` asks some paths."""
_ONE_IN = 7
_AT_ONCE = 20


def is_sampled(seed: int, path: ReadingPath) -> bool:
    """Return whether the sample has this path in the scene of this seed."""
    return crc32(f"{seed} {path}".encode()) % _ONE_IN == 0


def run_many(folder: Path, seeds: Sequence[int], processes: int | None = None) -> Result:
    """Run the scenes of these seeds in processes, with all paths."""
    parts = [seeds[at : at + _AT_ONCE] for at in range(0, len(seeds), _AT_ONCE)]
    every = Result()
    count = processes or min(os.cpu_count() or 1, 4)
    with ProcessPoolExecutor(count, get_context("spawn")) as pool:
        for result in pool.map(partial(_run, folder), parts):
            every.add(result)
    return every


def _run(folder: Path, seeds: Sequence[int]) -> Result:
    own = folder / f"seeds-{seeds[0]}"
    own.mkdir()
    harness, every = Harness(own), Result()
    for seed in seeds:
        every.add(harness.run(seed))
    return every
