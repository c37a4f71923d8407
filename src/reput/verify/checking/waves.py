"""Which tasks of a check run together, by what they read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

# Tasks whose findings are reported together: so many per worker, and more of small ones, which cost less than a job.
_WAVE_TASKS, _WAVE_BYTES, _WAVE_MOST_TASKS = 4, 1 << 30, 256


def waves(weights: Sequence[int], parallelism: int) -> Iterator[slice]:
    """Which tasks are run together, so that findings come soon and each run is worth its start.

    Args:
        weights: Of the tasks, bytes.
        parallelism: How many run at the same time; one after the other, each is a wave.
    """
    if parallelism == 1:
        yield from (slice(number, number + 1) for number in range(len(weights)))
        return
    first = load = 0
    for number, weight in enumerate(weights, 1):
        load += weight
        count = number - first
        is_full = count >= _WAVE_TASKS * parallelism and load >= _WAVE_BYTES
        if is_full or count == _WAVE_MOST_TASKS or number == len(weights):
            yield slice(first, number)
            first, load = number, 0


def bytes_of(path: str) -> int:
    """Size of a file; 0 where it expired."""
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def bytes_below(folder: str) -> int:
    """Of a folder's files; of one that expired, none."""
    try:
        with os.scandir(folder) as entries:
            return sum(bytes_of(entry.path) for entry in entries)
    except FileNotFoundError:
        return 0
