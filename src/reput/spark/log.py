"""Reports of a reader about its work: on stderr of the driver, or of the executor."""

from __future__ import annotations

import sys


def log(line: str) -> None:
    print(f"reput: {line}", file=sys.stderr, flush=True)
