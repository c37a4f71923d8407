"""Share threads for slow answers fairly: the client with the least usage is next."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

_HALF_LIFE_S = 10.0
_FIRST_S, _LIGHT_S, _LOOK_S = 1.0, 0.9, 0.5
# Share of a job's waiting time that is added to its client's usage. The rest is not added, because jobs of other
# clients have often caused the wait.
_WAITED = 0.1
_UNUSED = -math.inf


class Usage:
    """A client's usage of threads: the processor time of its jobs, plus a tenth of the time for which they only waited.

    Only the time in which a job occupies a thread counts, for example while it waits for a disk. Usage halves every 10
    seconds.

    Attributes:
        rank: Logarithm (base 2) of the usage, plus the number of half-lives from a fixed time until now. While no usage
            is added, the usage falls but the rank stays the same. At any time, a higher rank means more usage.
    """

    __slots__ = ("rank",)

    def __init__(self) -> None:
        self.rank = _UNUSED

    def add(self, used_s: float, now: float) -> None:
        """Add the times of a job that has just ended."""
        used_s += 2.0 ** (self.rank - now / _HALF_LIFE_S)
        if used_s > 0:
            self.rank = math.log2(used_s) + now / _HALF_LIFE_S


class Job(NamedTuple):
    """Work that waits for a thread."""

    work: Callable[[], Any]
    done: Callable[[Any], object]


class User(Usage):
    """A client of the server, whose jobs run in the threads of a `FairThreads`.

    Attributes:
        begin: Called before each job. If it returns False, the client's jobs wait until `FairThreads.wake` is called.
        waiting: Jobs that no thread has begun.
        running: Number of jobs in threads.
        is_absent: Whether the client has left. Results of its jobs are then ignored.
    """

    __slots__ = ("begin", "is_absent", "is_queued", "running", "waiting")

    def __init__(self, begin: Callable[[], bool] = lambda: True) -> None:
        super().__init__()
        self.begin = begin
        self.waiting: deque[Job] = deque()
        self.running, self.is_queued, self.is_absent = 0, False, False

    def leave(self) -> None:
        """Drop the client's waiting jobs. Running jobs finish."""
        self.is_absent = True
        self.waiting.clear()


class FairThreads:
    """Runs jobs of clients in threads. Call it only in the event loop's thread. Jobs must not raise errors.

    While other clients wait, each client has at most one running job. If only one thread is free, it is kept for
    clients that have used threads little or have waited for some time, so that they need not wait for slow answers.
    """

    def __init__(self, threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._running, self._clock = threads, 0, clock
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="reput-serve")
        self._queue: list[tuple[float, int, User]] = []
        self._busy: set[User] = set()
        self._numbers, self._total = count(), Usage()
        self._timer: asyncio.TimerHandle | None = None

    def submit(self, user: User, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        """Run `work` in a thread, then call `done` with its result in the event loop's thread."""
        if user.rank == _UNUSED:
            user.rank = self._usual_rank()
        user.waiting.append(Job(work, done))
        self.wake(user)

    def wake(self, user: User) -> None:
        """Check again whether a client's jobs can begin."""
        self._enqueue(user)
        self._start()

    def shutdown(self) -> None:
        """Begin no more jobs."""
        self._queue.clear()
        self._most = 0
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _usual_rank(self) -> float:
        """Return the rank of a new client: the average usage of recently active clients, even if they have left.

        The client with the lowest rank is served first. A new client gets at least the rank of one second of usage.
        Otherwise, clients that open hundreds of connections, or one per request, would be served before a client that
        keeps its connection and requests little.
        """
        average = self._total.rank - math.log2(max(len(self._queue) + len(self._busy), 1))
        return max(average, math.log2(_FIRST_S) + self._clock() / _HALF_LIFE_S)

    def _enqueue(self, user: User) -> None:
        if user.waiting and not user.running and not user.is_queued:
            user.is_queued = True
            heappush(self._queue, (user.rank, next(self._numbers), user))

    def _start(self) -> None:
        while self._running < self._most and (user := self._next()) is not None:
            job = user.waiting.popleft()
            self._running += 1
            user.running += 1
            self._busy.add(user)
            self._pool.submit(self._run, asyncio.get_running_loop(), user, job)

    def _next(self) -> User | None:
        is_last = self._running == self._most - 1 > 0
        # The last free thread is reserved for clients whose rank is at most `light`: clients that have used threads
        # little. Any client may use the other threads.
        light = math.inf
        if is_last and len(self._busy) == self._running:
            light = math.log2(_LIGHT_S) + self._clock() / _HALF_LIFE_S
        while self._queue:
            if self._queue[0][0] > light:
                self._look_again()
                return None
            rank, _, user = heappop(self._queue)
            user.is_queued = False
            # The client's usage, and so its rank, has changed since it was queued. Queue the client at its new place.
            if rank != user.rank:
                self._enqueue(user)
            # If `begin` returns False, the client (a `User`) stays out of the queue until `FairThreads.wake` is called.
            elif user.waiting and not user.running and user.begin():
                return user
        # Clients without a running job come first. At this point, none of them is left in the queue. So a client with a
        # running job may begin another one, unless only one thread is free: the last free thread is kept for clients
        # without a running job.
        if not is_last:
            for user in sorted(
                self._busy, key=lambda candidate: (candidate.running, candidate.rank)
            ):
                if user.waiting and user.begin():
                    return user
        return None

    def _look_again(self) -> None:
        """Look for a job again after a short time.

        Called when only one thread is free, and the next waiting client has used threads too much to get this thread.
        Usage decreases with time, so the client can get the thread later.
        """
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._retry)

    def _retry(self) -> None:
        self._timer = None
        self._start()

    def _run(self, loop: asyncio.AbstractEventLoop, user: User, job: Job) -> None:
        begun, begun_at_work = self._clock(), time.thread_time()
        outcome = job.work()
        used_s = time.thread_time() - begun_at_work
        used_s += _WAITED * max(self._clock() - begun - used_s, 0.0)
        with suppress(RuntimeError):  # The event loop has ended, so nobody waits for the result.
            loop.call_soon_threadsafe(self._finish, user, job.done, outcome, used_s)

    def _finish(
        self, user: User, done: Callable[[Any], object], outcome: Any, used_s: float
    ) -> None:
        self._running -= 1
        user.running -= 1
        if not user.running:
            self._busy.discard(user)
        now = self._clock()
        user.add(used_s, now)
        self._total.add(used_s, now)
        try:
            if not user.is_absent:
                done(outcome)
        finally:
            self.wake(user)
