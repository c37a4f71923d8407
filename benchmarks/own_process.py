"""Measuring in a process of its own: a Spark, a JVM and a memory that nothing else has used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def in_own_process(module: str, *arguments: object, **environment: str) -> dict[str, Any]:
    """What `python -m MODULE ARGUMENTS` prints in its last line, as JSON. Raises CalledProcessError."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    printed = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | environment
    ).stdout
    result: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return result
