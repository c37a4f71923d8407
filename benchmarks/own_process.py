"""Measure in a process of its own, with a Spark, a JVM and memory that nothing else has used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def in_own_process(module: str, *arguments: object, **environment: str) -> dict[str, Any]:
    """Run `python -m MODULE ARGUMENTS`. Return its last line, which is JSON. Raise CalledProcessError if it fails."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    printed = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | environment
    ).stdout
    result: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return result
