"""Running the command line: in this process, or as a process of its own."""

import io
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from reput.cli.main import main

SIZES = (
    "--log-file-size", "64KiB", "--queue-entries", 50, "--hash-slots", 64, "--index-items", 300,
)  # fmt: skip
"""Options for a store that a test creates. Files of the default sizes would take 1.4 GB."""

REPUT = Path(sys.executable).with_name("reput")
_TIMEOUT_S = 600
COMPILING = re.compile(r"^Compiling kernels for this processor, once\.\n", re.MULTILINE)
"""The line that the first command on a machine prints to stderr."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str
    raw: bytes

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def reput(*args: object) -> Ran:
    """Run `reput ARGS` in this process; stdout and stderr are not terminals."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(arg) for arg in args])
        out.flush()
        err.flush()
    raw, complaints = _bytes(out), _bytes(err)
    return Ran(code, raw.decode("utf-8", "replace"), without_compiling(complaints), raw)


def reput_process(*args: object, env: Mapping[str, str] | None = None) -> Ran:
    """Run `reput ARGS` from the shell."""
    ended = subprocess.run(
        [REPUT, *map(str, args)],
        capture_output=True,
        timeout=_TIMEOUT_S,
        env={**os.environ, **(env or {})},
        check=False,
    )
    out, err = ended.stdout.decode("utf-8", "replace"), without_compiling(ended.stderr)
    return Ran(ended.returncode, out, err, ended.stdout)


def one_line(ran: Ran) -> str:
    """Return the single line on stderr; fail for no line, several lines, or a traceback."""
    lines = ran.err.splitlines()
    assert len(lines) == 1, ran.err
    assert lines[0].startswith("reput: ")
    assert "unexpected" not in lines[0]
    return lines[0]


def without_compiling(stderr: bytes) -> str:
    """Return a command's stderr without the line that reports the compilation of kernels."""
    return COMPILING.sub("", stderr.decode())


def _bytes(stream: io.TextIOWrapper) -> bytes:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue()
