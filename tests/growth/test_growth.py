"""The cost of every public operation grows in proportion to each size of a store, by counts."""

from __future__ import annotations

from pathlib import Path

import pytest

import reput
from reput.cli.table import COMMANDS
from reput.wings.serve.remoting.requests import RequestCode
from tests.growth.counts import MOST
from tests.growth.measure import growth, pairs
from tests.growth.operations import DIMENSIONS, ELSEWHERE, EXCEPTIONS, OPERATIONS
from tests.truth import surface

_SAMPLE = {("tail", "IndexFiles"), ("quick check", "log files"), ("dataset of a key", "IndexFiles")}
"""Cheap pairs, which run on every change. `make growth` runs all."""


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("operation", "dimension"),
    [
        pytest.param(*pair, marks=() if pair in _SAMPLE else pytest.mark.slow, id=" / ".join(pair))
        for pair in pairs()
    ],
)
def test_a_cost_grows_in_proportion(operation: str, dimension: str, tmp_path: Path) -> None:
    scale = 4 if (operation, dimension) in _SAMPLE else 1
    found = growth(operation, dimension, tmp_path / "store", scale)
    assert found.worst <= MOST, found


def _named() -> set[str]:
    return {name for operation in OPERATIONS.values() for name in operation.names}


def test_every_public_operation_is_measured_or_has_a_reason() -> None:
    commands = set(COMMANDS)
    reading = {name for name, place in surface.REQUESTS.items() if isinstance(place, tuple)}
    assert reading <= {code.name for code in RequestCode}
    for names in (set(reput.__all__), commands, reading):
        assert names <= _named() | ELSEWHERE.keys(), "add to tests/growth/operations.py"
    assert not _named() & ELSEWHERE.keys()


def test_every_dimension_is_used() -> None:
    assert {dimension for _, dimension in pairs()} == DIMENSIONS.keys()
    assert EXCEPTIONS.keys() <= set(pairs())
