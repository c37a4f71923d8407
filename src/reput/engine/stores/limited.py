"""Run tasks with a limit of time for each: a store on a dead mount must not keep the answers of the others waiting.

A task that hangs in a call of the system cannot be stopped. So its thread is left behind, as a daemon that does not
keep the process alive, and another thread takes its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import TypeVar

Result = TypeVar("Result")
_left_behind: list[Thread] = []


def is_left_behind() -> bool:
    """Return whether a task that took too long still runs, so that the end of the interpreter may wait for it."""
    return any(thread.is_alive() for thread in _left_behind)


def limited(
    tasks: Sequence[Callable[[], Result]],
    at_once: int,
    limit_s: float,
    clock: Callable[[], float] = monotonic,
) -> Iterator[tuple[int, Result | None]]:
    """Run tasks in threads, and yield (index of the task, result) as soon as a result is known.

    A task that is not ready after `limit_s` seconds yields None, and its result is dropped. Raises the first error of
    a task.

    Args:
        tasks: The tasks.
        at_once: The number of tasks that run at the same time, without those that were given up.
        limit_s: Seconds that each task may take.
        clock: Returns the time in seconds.
    """
    ready: SimpleQueue[tuple[int, Result | None, BaseException | None]] = SimpleQueue()

    def run(place: int) -> None:
        try:
            ready.put((place, tasks[place](), None))
        except BaseException as error:  # The thread that collects the results raises it.
            ready.put((place, None, error))

    waiting, started = deque(range(len(tasks))), dict[int, float]()
    threads: dict[int, Thread] = {}
    while waiting or started:
        while waiting and len(started) < at_once:
            place = waiting.popleft()
            started[place] = clock()
            name = f"reput-store-{place}"
            threads[place] = Thread(target=run, args=(place,), name=name, daemon=True)
            threads[place].start()
        try:
            left_s = min(started.values()) + limit_s - clock()
            place, result, error = ready.get(timeout=max(left_s, 0))
        except Empty:
            late = [place for place, since in started.items() if clock() - since >= limit_s]
            for place in late:
                del started[place]
                _left_behind.append(threads[place])
                yield place, None
            continue
        if started.pop(place, None) is None:
            continue  # It was given up.
        if error is not None:
            raise error
        yield place, result


def within(limit_s: float | None, task: Callable[[], Result], otherwise: Result) -> Result:
    """Return the result of a task, or `otherwise` if it takes longer than the limit."""
    if limit_s is None:
        return task()
    ((_, result),) = limited([task], 1, limit_s)
    return otherwise if result is None else result
