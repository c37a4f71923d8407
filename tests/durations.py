"""Measures what each test costs, and lists the tests that `make test` leaves to `make test-long`.

A test's cost is the processor time of its process and of all processes below it, so that other programs on the machine
do not change the list. Fixtures of a module or of the session are not a part of it: the first test that needs one would
pay for all others. A module's fixtures are divided among the tests of the file.

`python -m tests.durations REPORT.xml...` writes `tests/long.txt` from the JUnit reports of runs (`make durations`).
Listed tests that no report measures stay.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

import pytest

LONG = Path(__file__).with_name("long.txt")
LONG_S = 1.0
"""Tests that cost more are long."""
KEPT_S = 5.0
"""The cheapest test of a file whose tests are all long stays in `make test` if it costs less."""

_NODE, _COST, _SHARED = "node", "processor_s", "shared_s"
_TICKS_S = os.sysconf("SC_CLK_TCK")


def long_tests() -> list[str]:
    return LONG.read_text(encoding="utf-8").splitlines()


def mark_long(items: Iterable[pytest.Item]) -> None:
    """Mark the listed tests; names that are not there are ignored, as in runs of some files only."""
    names = frozenset(long_tests())
    for item in items:
        if item.nodeid in names:
            item.add_marker(pytest.mark.long)


def processor_s(pid: int | None = None) -> float:
    """Return the processor time of a process, or of this one, and of all processes below it, ended or not."""
    return sum(_process_s(str(pid or os.getpid())))


def _process_s(pid: str) -> Iterator[float]:
    process = Path("/proc", pid)
    try:
        # After the name, which may contain spaces: utime, stime, cutime and cstime are fields 14 to 17.
        fields = process.joinpath("stat").read_text(errors="replace").rpartition(")")[2].split()
        yield sum(map(int, fields[11:15])) / _TICKS_S
        children = [each.read_text() for each in process.glob("task/*/children")]
    except OSError:  # it has ended; its parent counts it
        return
    for child in " ".join(children).split():
        yield from _process_s(child)


class Meter:
    """Writes the cost of each test into the JUnit report (Linux)."""

    def __init__(self) -> None:
        self._begin_s = self._shared_s = self._module_s = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._begin_s, self._shared_s, self._module_s = processor_s(), 0.0, 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
        begin_s = 0.0 if fixturedef.scope == "function" else processor_s()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                own_s = processor_s() - begin_s
                self._shared_s += own_s
                self._module_s += own_s if fixturedef.scope == "module" else 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        try:
            return (yield)
        finally:
            cost_s = processor_s() - self._begin_s - self._shared_s
            item.user_properties += [
                (_NODE, item.nodeid),
                (_COST, f"{cost_s:.2f}"),
                (_SHARED, f"{self._module_s:.2f}"),
            ]


def costs(reports: Iterable[Path]) -> dict[str, float]:
    """Return the seconds of each test: the least of all reports, because a first test may also load or compile."""
    least: dict[str, float] = {}
    for report in reports:
        for name, cost_s in _costs_of(report).items():
            least[name] = min(cost_s, least.get(name, cost_s))
    return least


def _costs_of(report: Path) -> dict[str, float]:
    own_s: dict[str, float] = {}
    shared_s: defaultdict[str, float] = defaultdict(float)
    tests: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        values = {each.get("name", ""): each.get("value", "") for each in case.iter("property")}
        if _NODE in values:
            name = values[_NODE]
            own_s[name] = float(values[_COST])
            shared_s[file_of(name)] += float(values[_SHARED])
            tests[file_of(name)] += 1
    return {
        name: cost_s + shared_s[file_of(name)] / tests[file_of(name)]
        for name, cost_s in own_s.items()
    }


def file_of(name: str) -> str:
    return name.partition("::")[0]


def choose(costs_s: Mapping[str, float]) -> list[str]:
    """Return the tests that are long: all above LONG_S, but not the cheapest of a file that would have none left."""
    long = [name for name, cost_s in costs_s.items() if cost_s > LONG_S]
    remaining = {file_of(name) for name in costs_s.keys() - set(long)}
    cheapest = {
        min(group, key=lambda name: costs_s[name])
        for path, group in groupby(sorted(long), key=file_of)
        if path not in remaining
    }
    return sorted(name for name in long if name not in cheapest or costs_s[name] > KEPT_S)


def main() -> None:
    costs_s = costs(map(Path, sys.argv[1:]))
    if not costs_s:
        sys.exit("usage: python -m tests.durations REPORT.xml..., reports of `make durations`")
    long = sorted({*choose(costs_s), *(set(long_tests()) - costs_s.keys())})
    LONG.write_text("".join(f"{name}\n" for name in long), encoding="utf-8")
    remaining_s = sum(costs_s[name] for name in costs_s.keys() - set(long))
    print(f"{len(long)} tests are long; the others take {remaining_s:.0f} s, as far as measured")


if __name__ == "__main__":
    main()
