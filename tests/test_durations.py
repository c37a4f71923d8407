"""Which tests are long is a matter of measurement."""

from __future__ import annotations

from pathlib import Path

from tests.durations import KEPT_S, LONG_S, choose, costs


def _case(name: str, cost_s: float, shared_s: float = 0.0) -> str:
    values = {"node": name, "processor_s": cost_s, "shared_s": shared_s}
    properties = "".join(
        f'<property name="{key}" value="{value}"/>' for key, value in values.items()
    )
    return f"<testcase><properties>{properties}</properties></testcase>"


def _report(path: Path, *cases: str) -> Path:
    path.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    return path


def test_a_file_s_fixtures_are_divided_among_its_tests(tmp_path: Path) -> None:
    report = _report(
        tmp_path / "a.xml", _case("a.py::x", 1, 8), _case("a.py::y", 2), _case("b.py::x", 3)
    )
    assert costs([report]) == {"a.py::x": 5, "a.py::y": 6, "b.py::x": 3}


def test_the_least_of_all_runs_counts(tmp_path: Path) -> None:
    first = _report(tmp_path / "a.xml", _case("a.py::x", 9), _case("a.py::y", 2))
    second = _report(tmp_path / "b.xml", _case("a.py::x", 1), _case("a.py::y", 3))
    assert costs([first, second]) == {"a.py::x": 1, "a.py::y": 2}


def test_a_file_keeps_its_cheapest_test() -> None:
    long_s = 2 * LONG_S
    of_each = {"a.py::x": long_s, "a.py::y": long_s + 1, "b.py::x": long_s, "b.py::y": 0.0}
    assert choose(of_each) == ["a.py::y", "b.py::x"]
    assert choose({"a.py::x": KEPT_S + 1}) == ["a.py::x"]
