"""A process that forks the workers of `reput serve`, and replaces workers that end.

It is forked before threads, an event loop and open stores exist: a later fork of the first process would inherit
them in an unusable state.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time

from reput.remoting.workers import channel

_LOOK_S, _PAUSE_S, _PATIENCE_S = 0.2, 1.0, 30.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Nursery:
    """The process that forks workers, seen from the first process."""

    def __init__(self, first: socket.socket, process: int) -> None:
        self._first, self._process = first, process
        first.setblocking(False)

    def fileno(self) -> int:
        """Return a descriptor, readable after a worker was forked."""
        return self._first.fileno()

    def take(self) -> list[socket.socket]:
        """Return the channels to workers that were forked since the last call."""
        found: list[socket.socket] = []
        with contextlib.suppress(OSError):
            while True:
                data, descriptors, _, _ = socket.recv_fds(self._first, 1, 1)
                found += [socket.socket(fileno=each) for each in descriptors]
                if not data:
                    break
        return found

    def wait(self, count: int) -> list[socket.socket]:
        """Return the channels to the first `count` workers, or to fewer if they take too long."""
        found: list[socket.socket] = []
        end = time.monotonic() + _PATIENCE_S
        while len(found) < count and time.monotonic() < end:
            select.select([self._first], [], [], _LOOK_S)
            found += self.take()
        return found

    def end(self) -> None:
        """End the nursery and all workers, and wait until they have ended."""
        self._first.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._process, 0)


def start(count: int) -> Nursery | socket.socket:
    """Start `count` workers: return the nursery in this process, and in each worker its socket to this process."""
    first, own = channel()
    parent, process = os.getpid(), os.fork()
    if process:
        own.close()
        return Nursery(first, process)
    first.close()
    return _keep(own, parent, count)


def _keep(first: socket.socket, parent: int, count: int) -> socket.socket:
    """Fork workers while the first process lives. Returns only in a worker."""
    is_ending = False

    def end(number: int, frame: object) -> None:
        nonlocal is_ending
        is_ending = True

    for number in _SIGNALS:
        signal.signal(number, end)
    workers: set[int] = set()
    while True:
        while len(workers) < count and not is_ending:
            near, far = channel()
            worker = os.fork()
            if worker == 0:
                for number in _SIGNALS:
                    signal.signal(number, signal.SIG_DFL)
                near.close()
                first.close()
                return far
            far.close()
            workers.add(worker)
            with near, contextlib.suppress(OSError):
                socket.send_fds(first, [b"w"], [near.fileno()])
        ready, _, _ = select.select([first], [], [], _LOOK_S)
        if ready or os.getppid() != parent:
            _end(workers)
            os._exit(0)
        before = len(workers)
        workers = {each for each in workers if not _has_ended(each)}
        if len(workers) < before:
            time.sleep(
                _PAUSE_S
            )  # A worker that fails at its start must not be forked in a busy loop.


def _has_ended(worker: int) -> bool:
    return os.waitpid(worker, os.WNOHANG)[0] == worker


def _end(workers: set[int]) -> None:
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGTERM)
    for worker in workers:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(worker, 0)
