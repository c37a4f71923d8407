"""Which tests, and which of a test's many cases, run only in `make test-slow`, and the examples of properties.

`make test` is for every change, so it takes minutes: of a test with many cases it runs a few that are spread over all
of them, and of each property few examples. `make test-slow` runs all the others, and `make test-sample` some of them.
Tests of `make test` that measurement finds expensive are in `tests/durations.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

IS_THOROUGH = os.environ.get("REPUT_TESTS") == "thorough"
"""Whether properties are tried on many examples; `make test-slow` sets it."""

_QUICK_ROOMS = ("docs", "format", "golden", "io", "kernels", "oracle")
# Folders whose tests that are not slow run in seconds, without Spark and without a process per test.
_FAST_ROOMS = ("format", "io", "kernels", "queues")
_TESTS = Path(__file__).parent
_EXAMPLES, _MORE = 10, 20
SAMPLED = 40
"""One of so many slow cases is in a sample, which `make test-sample` runs."""


def examples(count: int = _EXAMPLES) -> int:
    """Return the number of examples of a property: `count`, or twenty times as many in thorough runs."""
    return count * _MORE if IS_THOROUGH else count


def set_examples(seed: str | None) -> None:
    """Give properties the same examples on every machine, or with a seed of pytest the examples of this seed.

    The parent profile is named, because Hypothesis loads another one by itself where `CI` is set. Nothing is stored,
    and no limit of time decides. Constants of imported modules are not used as examples, because it depends on the
    tests before which modules are imported.
    """
    settings.register_profile(
        "reput",
        settings.get_profile("default"),
        deadline=None,
        max_examples=examples(),
        derandomize=seed is None,
        database=None,
        print_blob=True,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.function_scoped_fixture),
    )
    settings.load_profile("reput")
    providers.is_local_module_file = lambda path: False  # type: ignore[assignment,attr-defined]


def slow_from(first: int, cases: Iterable[Any]) -> list[Any]:
    """Return the parameters of a test, with those from number `first` on marked slow."""
    return [
        case
        if number < first
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]


def thin_out(items: list[pytest.Item]) -> None:
    """Mark slow all but the first and the last of each test's cases, and all but one if each is a Spark job.

    Tests marked `every_case` keep all cases, and so do rooms whose cases take milliseconds.
    """
    for _, group in groupby(items, key=lambda item: item.nodeid.split("[")[0]):
        cases = [item for item in group if item.get_closest_marker("slow") is None]
        if not cases or _keeps_all(cases[0]):
            continue
        last = len(cases) - 1
        kept = {0} if _room(cases[0]) == "spark" else {0, last}
        for number, item in enumerate(cases):
            if number not in kept:
                item.add_marker(pytest.mark.slow)


def mark_sample(items: Iterable[pytest.Item], seed: str) -> None:
    """Mark one of SAMPLED of the slow cases of tests that have many; the seed decides which.

    Tests of one case and tests with their own limit of time may take an hour, so they are not in a sample.
    """
    for item in items:
        is_slow, is_limited = (item.get_closest_marker(name) for name in ("slow", "timeout"))
        is_case = is_slow is not None and is_limited is None and item.nodeid.endswith("]")
        if is_case and crc32(f"{seed} {item.nodeid}".encode()) % SAMPLED == 0:
            item.add_marker(pytest.mark.sampled)


def mark_fast(items: Iterable[pytest.Item]) -> None:
    """Mark the tests that `make check` runs."""
    for item in items:
        if _room(item) in ("", *_FAST_ROOMS):
            item.add_marker(pytest.mark.fast)


def _room(item: pytest.Item) -> str:
    """Return the folder of a test; "" for tests directly in tests/, which check names, words and packaging."""
    room, *below = item.path.relative_to(_TESTS).parts
    return room if below else ""


def _keeps_all(item: pytest.Item) -> bool:
    is_quick = _room(item) in ("", *_QUICK_ROOMS)
    return is_quick or item.get_closest_marker("every_case") is not None
