"""Spark's Python workers: choose the Python of local sessions, end workers quietly, and collect less garbage.

Spark starts `python3`, or the value of PYSPARK_PYTHON at the start of the session. In a notebook whose environment is
not activated, `python3` is a Python without reput.

Workers that are connected by Unix sockets and idle when their session ends would print a traceback of BrokenPipeError.

After each task, pyspark's daemon collects garbage among all objects of the worker. Nearly all of them belong to modules
(numba, pyarrow, pyspark) and live as long as the process. Each collection costs 40 to 80 ms of processor time. So these
objects are excluded from collections.
"""

from __future__ import annotations

import gc
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from reput.errors import SparkJobError

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOOK = """
import importlib.util, sys
sys.exit(any(importlib.util.find_spec(name) is None for name in ("reput", "numba", "numpy", "pyarrow")))
"""
_CHOICES = ("spark.pyspark.python", "spark.pyspark.driver.python")
_TIMEOUT_S = 60

Worker = Callable[[socket.socket, bool], int]
"""Type of `pyspark.daemon.worker`. It runs a worker in a forked process and returns the exit code."""

_modules = 0
"""Number of imported modules when objects were last excluded from garbage collection."""


def use_this_python(sc: SparkContext) -> None:
    """Make later jobs of a local session use this Python if the workers' Python does not find reput.

    A Python that the user chose is kept. Raises SparkJobError, which names the setting, if the workers find no reput.
    """
    theirs = str(sc.pythonExec)
    if shutil.which(theirs) == sys.executable or finds_reput(theirs):
        return
    is_explicit = "PYSPARK_PYTHON" in os.environ or any(sc.getConf().get(name) for name in _CHOICES)
    if not is_explicit and finds_reput(sys.executable):
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


class Quiet:
    """A worker that ends without a traceback when its connection is closed."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def __call__(self, sock: socket.socket, authenticated: bool) -> int:
        try:
            return int(self._worker(sock, authenticated))
        except BrokenPipeError:
            return 1


def end_quietly() -> None:
    """Make workers of pyspark's daemon end without a traceback, as workers of reput's daemon do.

    To plan the read of a Python data source, Spark uses a worker of pyspark's daemon, even if Spark's settings name
    another daemon.
    """
    program = sys.modules["__main__"]
    is_daemon = getattr(getattr(program, "__spec__", None), "name", "") == "pyspark.daemon"
    if is_daemon and not isinstance(program.worker, Quiet):
        program.worker = Quiet(program.worker)  # type: ignore[attr-defined]


def set_modules_aside() -> None:
    """Exclude all present objects from garbage collection, if modules were imported since the last call.

    Call this at the beginning of a task, before it has data: excluded objects that become cyclic garbage are not freed.
    """
    global _modules
    if len(sys.modules) > _modules:
        gc.freeze()
        _modules = len(sys.modules)
