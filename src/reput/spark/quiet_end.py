"""Let idle workers of pyspark end without a traceback when their session ends.

Without this module, workers that are connected by Unix sockets print a traceback of BrokenPipeError.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable

Worker = Callable[[socket.socket, bool], int]
"""Type of `pyspark.daemon.worker`. It runs a worker in a forked process and returns the exit code."""


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
