"""Measure in a new process, so that no earlier measurement has used its Spark, its JVM and its memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def in_own_process(module: str, *arguments: object, **environment: str) -> dict[str, Any]:
    """Run `python -m MODULE ARGUMENTS`. Return the JSON in its last line of output.

    Raise CalledProcessError if it fails.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    printed = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | environment
    ).stdout
    result: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return result
