"""One measured number."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured.

    Attributes:
        group: machine, scan, rebuild, query, lookup
        name: in words
        value, unit: the number
    """

    group: str
    name: str
    value: float
    unit: str

    def as_json(self) -> dict[str, str | float]:
        return {"group": self.group, "name": self.name, "value": self.value, "unit": self.unit}


def best_of(runs: int, work: Callable[[], object]) -> float:
    """Seconds of the fastest of some runs: what the machine can do when others leave it alone."""
    times = []
    for _ in range(runs):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)
