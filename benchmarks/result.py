"""Define the results of measurements, print them, and save them."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. Its goal is a lower limit `least` or an upper limit `most`; it may have no goal.

    Attributes:
        group: The heading under which it is printed, such as "machine" or "query".
        name: What was measured.
        value, unit: The number and its unit.
    """

    group: str
    name: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None

    @property
    def reached(self) -> bool | None:
        if self.least is not None:
            return self.value >= self.least
        return None if self.most is None else self.value <= self.most

    @property
    def wanted(self) -> str:
        if self.least is not None:
            return f">= {self.least:g}"
        return "" if self.most is None else f"<= {self.most:g}"


def best_of(
    runs: int, work: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the seconds of the fastest run by this clock: other programs can only slow a run down."""
    times = []
    for _ in range(runs):
        begun = clock()
        work()
        times.append(clock() - begun)
    return min(times)


def show(figures: list[Figure]) -> None:
    table = Table(title="reput on this machine", title_justify="left")
    for column, justify in (
        ("", "left"),
        ("measured", "right"),
        ("unit", "left"),
        ("wanted", "right"),
        ("", "left"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    group = ""
    for figure in figures:
        if figure.group != group:
            group = figure.group
            table.add_section()
            table.add_row(f"[bold]{group}")
        mark = {True: "[green]yes", False: "[red]no", None: ""}[figure.reached]
        table.add_row(f"  {figure.name}", f"{figure.value:,.2f}", figure.unit, figure.wanted, mark)
    Console(width=100).print(table)


def save(figures: list[Figure]) -> Path:
    """Write the figures as JSON to a file in benchmarks/results. Return its path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "latest.json"
    machine = {"python": platform.python_version(), "system": platform.platform(), "cpu": _cpu()}
    facts = {
        "machine": machine,
        "figures": [{**asdict(figure), "reached": figure.reached} for figure in figures],
    }
    path.write_text(json.dumps(facts, indent=2) + "\n")
    return path


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.processor()
