"""Which of a test's many cases are for `make test-slow` only."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_from(first: int, cases: Iterable[Any]) -> list[Any]:
    """Parameters of a test, those from number `first` on marked slow."""
    return [
        case if number < first else pytest.param(case, marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]
