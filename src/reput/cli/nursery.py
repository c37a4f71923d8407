"""Run the nursery: a process that forks the workers of `reput serve`, and replaces workers that end.

The main process, which accepts connections, forks the nursery before it has threads, an event loop or open stores: a
forked child would inherit them in an unusable state. The nursery never has any of these, so it can fork a replacement
at any time.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time

from reput.wings.serve.remoting.workers import channel

# The nursery checks every _LOOK_S seconds whether a worker has ended. It replaces the worker _PAUSE_S seconds after the
# check. The main process waits at most _PATIENCE_S seconds for the first workers.
_LOOK_S, _PAUSE_S, _PATIENCE_S = 0.2, 1.0, 30.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Nursery:
    """Controls the nursery, the process that forks workers. The main process of `reput serve` has this object."""

    def __init__(self, first: socket.socket, process: int) -> None:
        self._first, self._process = first, process
        first.setblocking(False)

    def fileno(self) -> int:
        """Return a file descriptor that becomes readable when a worker was forked."""
        return self._first.fileno()

    def take(self) -> list[socket.socket]:
        """Return a connected socket for each worker that was forked since the last call. Does not block."""
        found: list[socket.socket] = []
        with contextlib.suppress(OSError):
            while True:
                data, descriptors, _, _ = socket.recv_fds(self._first, 1, 1)
                found += [socket.socket(fileno=each) for each in descriptors]
                if not data:
                    break
        return found

    def wait(self, count: int) -> list[socket.socket]:
        """Wait for the first `count` workers, and return a connected socket for each. After 30 s, return fewer."""
        found: list[socket.socket] = []
        end = time.monotonic() + _PATIENCE_S
        while len(found) < count and time.monotonic() < end:
            select.select([self._first], [], [], _LOOK_S)
            found += self.take()
        return found

    def end(self) -> None:
        """End the nursery and all workers, and wait until they have ended."""
        # The nursery sees the closed socket, ends its workers, and exits.
        self._first.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._process, 0)


def start(count: int) -> Nursery | socket.socket:
    """Start `count` workers. Like fork(), this function returns in several processes.

    Returns:
        In this process the nursery; in each worker the worker's socket to this process.
    """
    first, own = channel()
    parent, process = os.getpid(), os.fork()
    if process:
        own.close()
        return Nursery(first, process)
    first.close()
    return _keep(own, parent, count)


def _keep(first: socket.socket, parent: int, count: int) -> socket.socket:
    """Run the nursery: fork `count` workers, and replace ended workers, until the main process (`parent`) ends.

    Then the nursery exits. The function returns only in workers. The result is the socket that connects the worker with
    the main process. `first` is the socket that connects the nursery with the main process.
    """
    is_ending = False

    def end(number: int, frame: object) -> None:
        nonlocal is_ending
        # Stop replacing workers, and do nothing else. The main process gets the same signal, and then closes the
        # socket.
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
                    # Drop the nursery's handler: it would swallow signals until the event loop sets its own.
                    signal.signal(number, signal.SIG_DFL)
                near.close()
                first.close()
                return far
            far.close()
            workers.add(worker)
            # Pass the socket itself to the main process (SCM_RIGHTS). If the main process has ended, sending fails, and
            # the check below ends the nursery.
            with near, contextlib.suppress(OSError):
                socket.send_fds(first, [b"w"], [near.fileno()])
        ready, _, _ = select.select([first], [], [], _LOOK_S)
        # End if the main process has closed the socket or has ended. The main process never writes to the socket, so
        # the socket becomes readable only when it is closed. When the main process has ended, the nursery has another
        # parent.
        if ready or os.getppid() != parent:
            _end(workers)
            os._exit(0)
        before = len(workers)
        workers = {each for each in workers if not _has_ended(each)}
        # A worker that fails at its start must not be forked again in a busy loop.
        if len(workers) < before:
            time.sleep(_PAUSE_S)


def _has_ended(worker: int) -> bool:
    return os.waitpid(worker, os.WNOHANG)[0] == worker


def _end(workers: set[int]) -> None:
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGTERM)
    for worker in workers:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(worker, 0)
