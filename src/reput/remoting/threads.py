"""Threads for slow answers, shared fairly: the client that has used them least is next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from typing import Any

_HALF_LIFE_S = 10.0


class Usage:
    """The time for which one client has kept threads busy; it halves every 10 seconds."""

    __slots__ = ("_at", "_used_s")

    def __init__(self) -> None:
        self._used_s, self._at = 0.0, 0.0

    def now(self, added_s: float = 0.0) -> float:
        """Its seconds, after some were added."""
        now = time.monotonic()
        self._used_s *= 0.5 ** ((now - self._at) / _HALF_LIFE_S)
        self._used_s += added_s
        self._at = now
        return self._used_s


class Job:
    """Work that waits for a thread, or is in one."""

    __slots__ = ("done", "usage", "work")

    def __init__(
        self, usage: Usage, work: Callable[[], Any], done: Callable[[Any], object]
    ) -> None:
        self.usage = usage
        self.work: Callable[[], Any] | None = work
        self.done: Callable[[Any], object] | None = done

    def cancel(self) -> None:
        """Drop it with all that it holds. Work in a thread comes to its end, and its outcome is ignored."""
        self.work = self.done = None


class FairThreads:
    """The threads. For the event loop's thread, but for the work itself, which raises nothing."""

    def __init__(self, threads: int) -> None:
        self._most, self._running = threads, 0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="reput-serve")
        self._waiting: list[tuple[float, int, Job]] = []
        self._numbers = count()

    def submit(self, usage: Usage, work: Callable[[], Any], done: Callable[[Any], object]) -> Job:
        """Run `work` in a thread; `done` is called with its outcome in this one."""
        job = Job(usage, work, done)
        heappush(self._waiting, (usage.now(), next(self._numbers), job))
        self._start()
        return job

    def shutdown(self) -> None:
        """Begin nothing more."""
        self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        while self._waiting and self._running < self._most:
            job = heappop(self._waiting)[2]
            if job.work is not None:
                self._running += 1
                self._pool.submit(self._run, asyncio.get_running_loop(), job, job.work)

    def _run(self, loop: asyncio.AbstractEventLoop, job: Job, work: Callable[[], Any]) -> None:
        begun = time.monotonic()
        outcome = work()
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(self._finish, job, outcome, time.monotonic() - begun)

    def _finish(self, job: Job, outcome: Any, elapsed_s: float) -> None:
        self._running -= 1
        job.usage.now(elapsed_s)
        self._start()
        if job.done is not None:
            job.done(outcome)
