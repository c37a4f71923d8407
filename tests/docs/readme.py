"""Examples of pages: the commands that a reader types, and the output that the page shows."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import CHECKOUT

README = CHECKOUT / "README.md"
TOUR = CHECKOUT / "docs" / "tour.md"
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "--- end of example {} with {}"
_TIMEOUT_S = 800
# Parts of outputs that differ from run to run and from machine to machine.
_VARYING = (
    (re.compile(r"^Compiling kernels for this processor, once\.\n", re.MULTILINE), ""),
    (re.compile(r"\b\d[\d,]*\.\d s\b"), "N s"),
    (re.compile(r"[\d,.]+ ([KMG]i)?B/s"), "N B/s"),
    (re.compile(r"\([\d,]+/s\)"), "(N/s)"),
    (re.compile(r"[\d,]+ bytes message by message"), "N bytes message by message"),
    (re.compile(r"(?<= )/\S*?(?=build/)"), ""),
)


@dataclass(frozen=True, slots=True)
class Example:
    """One command after `$ `, and the lines that follow it."""

    command: str
    output: str


def console_examples(text: str) -> list[Example]:
    """Every command of every console block, in order."""
    found = []
    for block in _CONSOLE.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Example(command, output))
    return found


def python_examples(text: str) -> list[str]:
    """Every Python block, in order."""
    return _PYTHON.findall(text)


@contextmanager
def checkout_on_disk() -> Iterator[Path]:
    """Provide a folder where relative paths of pages lead where they lead in a checkout.

    The folder is on a disk, because proofs of IndexFiles are not saved for files in memory (`reput.io.stamps`).
    """
    place = "/var/tmp" if os.path.isdir("/var/tmp") else None
    with tempfile.TemporaryDirectory(prefix="reput-pages-", dir=place) as created:
        yield _linked(Path(created))


def _linked(folder: Path) -> Path:
    (folder / "tests").symlink_to(CHECKOUT / "tests")
    (folder / ".venv").symlink_to(Path(sys.executable).parents[1])
    return folder


def run_in_shell(commands: list[str], folder: Path) -> list[str]:
    """Return the output of each command of one shell session. Raises if a command does not exit with 0."""
    lines = []
    for number, command in enumerate(commands):
        lines += [command, f'echo "{_MARK.format(number, "$?")}"']
    ended = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=folder,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_TIMEOUT_S,
        check=True,
    )
    outputs, rest = [], ended.stdout.decode()
    for number, command in enumerate(commands):
        output, mark, rest = rest.partition(_MARK.format(number, 0) + "\n")
        if not mark:
            raise RuntimeError(f"{command}: {output}")
        outputs.append(output)
    return outputs


def without_varying(output: str) -> str:
    """Replace the parts of an output that vary."""
    for pattern, replacement in _VARYING:
        output = pattern.sub(replacement, output)
    return output
