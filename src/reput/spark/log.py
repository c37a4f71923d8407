"""Print notes for users, for example about damage in a log, to stderr of the driver or executor."""

from __future__ import annotations

import sys


def log(line: str) -> None:
    print(f"reput: {line}", file=sys.stderr, flush=True)
