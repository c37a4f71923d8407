"""Properties try the same examples on every machine, or the examples of a seed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.slow import set_examples

_ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _same_settings(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    set_examples(request.config.getoption("--hypothesis-seed"))


def _drawn() -> list[tuple[int, str]]:
    seen = []

    @given(st.integers(), st.text())
    @settings(max_examples=200)
    def remember(number: int, text: str) -> None:
        seen.append((number, text))

    remember()
    return seen


def test_examples_do_not_depend_on_imported_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    set_examples(None)
    before = _drawn()
    module = ModuleType("local")
    module.__file__ = str(_ROOT / "examples" / "demo.py")
    monkeypatch.setitem(sys.modules, "local", module)
    assert _drawn() == before


def test_nothing_is_stored_and_no_clock_decides() -> None:
    set_examples(None)
    assert settings.default is not None
    assert settings.default.derandomize
    assert settings.default.database is None
    assert settings.default.deadline is None


def test_a_seed_selects_other_examples() -> None:
    set_examples("1")
    assert settings.default is not None
    assert not settings.default.derandomize
    assert settings.default.database is None
    assert settings.default.print_blob
