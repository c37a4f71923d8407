"""The tour of docs/writable-store.md is correct: its Python, then its commands, in one folder."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import CHECKOUT
from tests.docs.readme import checkout_on_disk, console_examples, run_in_shell, without_varying

TEXT = (CHECKOUT / "docs" / "writable-store.md").read_text(encoding="utf-8")
_STEP = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "--- end of a step"
# Times and process ids.
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\.\d{3}Z?")
_SPACE = re.compile(r"(?<=  space         ).*")  # the free space of the file system varies
_UNIQUE_KEY = re.compile(r"(?<=unique key       )[0-9A-F]{32}")


def masked(output: str) -> str:
    output = _SPACE.sub("SIZE", output)
    return _UNIQUE_KEY.sub("KEY", _TIME.sub("TIME", without_varying(output)))


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Run the page's Python examples in a folder. Their output is in the file `printed`."""
    steps = [f"{code}print({_MARK!r})\n" for code, _ in _STEP.findall(TEXT)]
    with checkout_on_disk() as folder:
        ended = subprocess.run(
            [sys.executable, "-c", "".join(steps)],
            cwd=folder,
            capture_output=True,
            timeout=600,
            check=False,
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        )
        assert (ended.returncode, ended.stderr.decode()) == (0, "")
        (folder / "printed").write_bytes(ended.stdout)
        yield folder


def test_each_step_prints_what_the_page_shows(folder: Path) -> None:
    printed = (folder / "printed").read_text(encoding="utf-8").split(_MARK + "\n")
    assert printed[:-1] == [shown for _, shown in _STEP.findall(TEXT)]
    assert len(printed) - 1 == TEXT.count("```python") >= 4


@pytest.mark.slow
def test_each_command_prints_what_the_page_shows(folder: Path) -> None:
    examples = console_examples(TEXT)
    path = f'export PATH="{Path(sys.executable).parent}:$PATH"'
    outputs = run_in_shell([path, *(example.command for example in examples)], folder)[1:]
    for example, output in zip(examples, outputs, strict=True):
        assert masked(output) == masked(example.output), example.command
    commands = {
        word for example in examples for word in re.findall(r"reput (\w+)", example.command)
    }
    assert {"put", "tail", "query"} <= commands
