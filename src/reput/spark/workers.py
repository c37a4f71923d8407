"""Choose the Python of a local session's workers.

Spark starts `python3`, or the value of PYSPARK_PYTHON at the start of the session. In a notebook whose environment is
not activated, `python3` is a Python without reput.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from pyspark import SparkContext

from reput.errors import SparkJobError

_LOOK = """
import importlib.util, sys
sys.exit(any(importlib.util.find_spec(name) is None for name in ("reput", "numba", "numpy", "pyarrow")))
"""
_CHOICES = ("spark.pyspark.python", "spark.pyspark.driver.python")
_TIMEOUT_S = 60


def use_this_python(sc: SparkContext) -> None:
    """Make later jobs of a local session use this Python if the workers' Python does not find reput.

    A Python that the user chose is kept. Raises SparkJobError, which names the setting, if the workers find no reput.
    """
    theirs = str(sc.pythonExec)
    if shutil.which(theirs) == sys.executable or finds_reput(theirs):
        return
    chosen = "PYSPARK_PYTHON" in os.environ or any(sc.getConf().get(name) for name in _CHOICES)
    if not chosen and finds_reput(sys.executable):
        sc.pythonExec = sys.executable
        return
    raise SparkJobError(
        f"Spark's workers run {theirs}, which lacks reput or its dependencies: install it there, or set "
        f"PYSPARK_PYTHON={sys.executable or 'PYTHON'} (and PYTHONPATH, if reput is not installed) "
        "before the session starts"
    )


def finds_reput(python: str) -> bool:
    """Return whether a Python on this machine finds reput and the other packages that tasks need."""
    try:
        ended = subprocess.run(
            [python, "-c", _LOOK], stdin=subprocess.DEVNULL, capture_output=True,
            timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return False
    return ended.returncode == 0
