"""The README and the tour show what a reader gets."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.readme import (
    README,
    TOUR,
    checkout_on_disk,
    console_examples,
    python_examples,
    run_in_shell,
    without_varying,
)

TEXT = TOUR.read_text(encoding="utf-8")
PYTHON = [*python_examples(TEXT), *python_examples(README.read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def tour() -> Iterator[tuple[Path, list[str]]]:
    """The folder in which the tour ended, and what each of its commands printed."""
    with checkout_on_disk() as folder:
        outputs = run_in_shell([example.command for example in console_examples(TEXT)], folder)
        yield folder / "build" / "orders", outputs


def test_the_tour_uses_every_command() -> None:
    commands = {example.command.split()[1] for example in console_examples(TEXT)}
    assert {"query", "show", "inspect", "rebuild", "lookup", "export", "put", "tail"} <= commands


@pytest.mark.slow
def test_each_command_of_the_tour_prints_what_the_page_shows(tour: tuple[Path, list[str]]) -> None:
    for example, output in zip(console_examples(TEXT), tour[1], strict=True):
        assert without_varying(output) == without_varying(example.output), example.command


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "printed"),
    [
        (0, "1,852,629.16\n"),
        (
            1,
            "1791794106637 cancelled {order: order-100377, reason: payment declined}\n"
            "1791794037665 created ",
        ),
        (2, "order-200000 {total: 12}\n"),
        (3, "┌────────────┬──────────────┬───────────┐\n│    tags    │ count_star() │ sum(size) │"),
        (4, "shape: (5, 2)\n"),
        (5, "+----------+-----+\n|      tags|count|\n+----------+-----+\n|authorised| 4730|\n"),
        (6, "19622 messages, 15 IndexFiles, 0 damaged places\nTrue\n"),
        (7, "1791794106637 {order: order-100377, reason: payment declined}\n1791794037665 "),
    ],
    ids=["lake", "reading", "owning", "duckdb", "polars", "table", "rebuild", "readme"],
)
def test_the_python_examples_run(tour: tuple[Path, list[str]], number: int, printed: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PYTHON[number]],
        cwd=tour[0],
        capture_output=True,
        timeout=600,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert (ended.returncode, ended.stderr.decode()) == (0, "")
    assert ended.stdout.decode().replace('"', "").startswith(printed)


def test_every_python_example_is_run() -> None:
    assert len(PYTHON) == 8


@pytest.mark.slow
def test_the_minute_of_the_readme_prints_what_it_shows(tmp_path: Path) -> None:
    examples = console_examples(README.read_text(encoding="utf-8"))
    assert len(examples) == 6
    bin_folder = Path(sys.executable).parent
    outputs = run_in_shell(
        [f'export PATH="{bin_folder}:$PATH"', *(example.command for example in examples)], tmp_path
    )
    for example, output in zip(examples, outputs[1:], strict=True):
        assert at_any_time(output) == at_any_time(example.output), example.command


def at_any_time(output: str) -> str:
    """Replace the times at which messages were stored and an IndexFile was created, as in its name."""
    moment = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", "TIME", without_varying(output))
    return re.sub(r"^\d{17} ", "FILE ", moment, flags=re.MULTILINE)


def test_links_and_pictures_lead_somewhere() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert len(targets) > 8
    assert [target for target in targets if not (README.parent / target).exists()] == []
