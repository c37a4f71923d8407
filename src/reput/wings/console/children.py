"""Run searches by content in child processes: in all messages, or in the new messages of the live page.

A search by content decodes every message that it reads. In a thread of the server it would hold up all requests, health
checks included, because only one thread of a process runs Python at a time. So each such search runs in a child process
(`reput.wings.console.child`), which has limits: their number, memory, and time. A child that finished its search is
kept for the next one. A child is killed if its search is stopped: by the user, because the client left, at the time
limit, or because the server stops. A child ends by itself when the server ends.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from threading import BoundedSemaphore, Lock, Thread
from typing import TYPE_CHECKING, Any

from reput.base import Finding, one_line
from reput.core import ReaderOptions
from reput.engine.messages import TailFilter
from reput.engine.writer import SharedStore
from reput.errors import WorkerLostError
from reput.wings.console.arguments import SearchForm
from reput.wings.console.mounts import Until
from reput.wings.console.users import CURRENT, ConsoleUser
from reput.wings.serve import HTTP

if TYPE_CHECKING:
    from reput.wings.console.content import Content

_PAUSE_S = 0.1
"""Time after which a waiting search looks whether it was stopped."""
_MOST_CHARACTERS = 200
"""Longest reason for which a search has no child."""
# Arrow's default allocator reserves more memory than it uses, and the limit of a child counts reserved memory.
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system"}


@dataclass(frozen=True, slots=True)
class SearchJob:
    """A search for a child.

    Attributes:
        path, settings: The store, and how it was opened.
        form: The conditions.
        share_bytes: The byte budget of the answer.
        user: The user of the request.
        search_s: Seconds after which the search ends.
    """

    path: str
    settings: ReaderOptions
    form: SearchForm
    share_bytes: int
    user: ConsoleUser
    search_s: float

    @classmethod
    def of(cls, store: SharedStore, form: SearchForm, share_bytes: int, until: Until) -> SearchJob:
        user, seconds = CURRENT.get(), until.left_s
        return cls(store.path, store.settings, form, share_bytes, user, seconds)


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A request of the live page for a child, which answers in one step with `NewRows`.

    Attributes:
        stores: The name and path of each store, and how it was opened.
        predicate, content: The conditions.
        cursors: By store, the physical offset at which to continue.
        user: The user of the request.
    """

    stores: tuple[tuple[str, str, ReaderOptions], ...]
    predicate: TailFilter
    content: Content
    cursors: dict[str, int]
    user: ConsoleUser


Job = SearchJob | LiveJob


@dataclass(frozen=True, slots=True)
class ChildStep:
    """A message from a child.

    Attributes:
        value: A step of the search, or the error that ended it.
        problems: All reasons so far why messages may be missing; None if there is no new one.
        is_last: Whether the child is ready for another search.
    """

    value: Any
    problems: tuple[Finding, ...] | None = None
    is_last: bool = False


class _Child:
    """A child process, and the connection to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            # A child has a session of its own, because Ctrl-C in a terminal must reach only the server, which then ends
            # its children.
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", f"{__package__}.child", str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                start_new_session=True, env={**os.environ, **_ENVIRONMENT},
            )  # fmt: skip
        self.connection = Connection(ours.detach())

    def answers(self) -> bool:
        """Return whether a child that waited is still there. One that answers will wait again for a while."""
        with suppress(EOFError, OSError):
            self.connection.send(None)
            self.connection.recv()
            return True
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.connection.close()
        self.kill()


class _Search:
    """A search that waits for a child, or runs in one.

    Attributes:
        job: The search for the child.
        steps: Its steps that are not read yet.
        is_cancelled: Whether nobody waits for it.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.steps: SimpleQueue[ChildStep] = SimpleQueue()
        self._guard = Lock()
        self._child: _Child | None = None
        self.is_cancelled = False

    def begin(self, child: _Child) -> bool:
        """Set the child. Return False if the search was cancelled."""
        with self._guard:
            self._child = None if self.is_cancelled else child
            return not self.is_cancelled

    def end(self) -> None:
        """Release the child, which has finished."""
        with self._guard:
            self._child = None

    def cancel(self) -> None:
        with self._guard:
            self.is_cancelled = True
            if self._child is not None:
                self._child.kill()


class Children:
    """The child processes of this process, at most `most` at a time."""

    def __init__(self, most: int = HTTP.search_threads) -> None:
        self._most, self._slots = most, BoundedSemaphore(most)
        self._guard = Lock()
        self._idle: list[_Child] = []

    def steps(self, job: Job) -> Generator[ChildStep | None, None, None]:
        """Yield the steps of a search, and None after each pause without a step. Closing the generator kills the child.

        A thread waits for a child and receives the steps, so that clients who read slowly do not occupy children. The
        byte budget of the answer limits the steps.
        """
        search = _Search(job)
        Thread(target=self._run, args=(search,), name="search", daemon=True).start()
        try:
            while True:
                try:
                    step = search.steps.get(timeout=_PAUSE_S)
                except Empty:
                    yield None
                    continue
                yield step
                if step.is_last:
                    return
        finally:
            search.cancel()

    def _run(self, search: _Search) -> None:
        with self._slots:
            child = None
            try:
                while True:
                    if search.is_cancelled:
                        return
                    child, waited = self._child()
                    # From here on `cancel` kills the child: one that does not answer holds up nobody for ever.
                    if search.begin(child) and (not waited or child.answers()):
                        break
                    child.end()
                child.connection.send(search.job)
                while not (step := child.connection.recv()).is_last:
                    search.steps.put(step)
            # The child was killed: by `cancel`, or by the system because it lacked memory. Or none could be started. Or
            # a job or a step cannot be pickled, which raises any kind of error.
            except Exception as error:
                if child is not None:
                    child.end()
                reason = f": {error.strerror}" if isinstance(error, OSError) else ""
                if not isinstance(error, (EOFError, OSError)):
                    reason = f": {type(error).__name__}: {one_line(str(error), _MOST_CHARACTERS)}"
                lost = WorkerLostError(f"the process of this search ended before its end{reason}")
                search.steps.put(ChildStep(lost, is_last=True))
                return
            search.end()
            self._keep(child)
            search.steps.put(step)

    def _child(self) -> tuple[_Child, bool]:
        """Return a child, and whether it waited. Raises OSError if none can be started."""
        with self._guard:
            if self._idle:
                return self._idle.pop(), True
        return _Child(), False

    def _keep(self, child: _Child) -> None:
        with self._guard:
            if child.process.poll() is None and len(self._idle) < self._most:
                self._idle.append(child)
                return
        child.end()

    def close(self) -> None:
        """End the children that wait for a search."""
        with self._guard:
            idle, self._idle = self._idle, []
        for child in idle:
            child.end()


CHILDREN = Children()
