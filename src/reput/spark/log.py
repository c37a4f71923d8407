"""Print reports of readers to stderr of the driver or executor."""

from __future__ import annotations

import sys


def log(line: str) -> None:
    print(f"reput: {line}", file=sys.stderr, flush=True)
