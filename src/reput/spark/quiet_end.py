"""Workers whose session ends while they wait for work: pyspark's print a traceback, over a Unix domain socket."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable

Worker = Callable[[socket.socket, bool], int]
"""`pyspark.daemon.worker`: does one task in a process of its own, and returns its exit code."""


class Quiet:
    """A worker that reports the end of its connection, and no more."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def __call__(self, sock: socket.socket, authenticated: bool) -> int:
        try:
            return int(self._worker(sock, authenticated))
        except BrokenPipeError:
            return 1


def end_quietly() -> None:
    """In a worker of pyspark's own daemon, end as quietly as workers of ours.

    Spark plans a table in such processes, even if its settings name another daemon.
    """
    program = sys.modules["__main__"]
    is_daemon = getattr(getattr(program, "__spec__", None), "name", "") == "pyspark.daemon"
    if is_daemon and not isinstance(program.worker, Quiet):
        program.worker = Quiet(program.worker)  # type: ignore[attr-defined]
