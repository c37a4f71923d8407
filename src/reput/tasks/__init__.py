"""Runners, which execute the tasks of a rebuild, a look-up or an export."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

from reput.errors import is_transient

Task = TypeVar("Task")
Result = TypeVar("Result")
TaskProgress = Callable[[int, int], None]
"""Called with the weight of the finished tasks and the weight of all tasks."""
Progress = Callable[[str, int, int], None]
"""Called with the phase of an operation, units done and units in all."""


_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
# Sum of all pauses: as long as one request for data may take (`reput.files.deadlines`).
_PAUSES_S = 30.0


def retried(function: Callable[[Task], Result], task: Task) -> Result:
    """Call a function for a task, and repeat the call after transient errors.

    The pauses between calls double up to five seconds; after half a minute, the error is raised. Each pause is
    shortened at random, so that tasks that failed together do not resume together. The task must be safe to run twice.

    Raises the errors of the function, permanent ones at once.
    """
    pause, left = _FIRST_PAUSE_S, _PAUSES_S
    while True:
        try:
            return function(task)
        except Exception as error:
            if left <= 0 or not is_transient(error):
                raise
        time.sleep(min(pause, left) * random.uniform(0.5, 1))
        pause, left = min(2 * pause, _LONGEST_PAUSE_S), left - pause


def silent(phase: str, done: int, total: int) -> None:
    """Report no progress."""


class Runner(Protocol):
    """Runs a picklable function over tasks, in any order, each perhaps more than once."""

    @property
    def parallelism(self) -> int:
        """Number of tasks that run at the same time."""

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        weights: Sequence[int],
        progress: TaskProgress,
    ) -> list[Result]:
        """Run tasks and return their results in the order of the tasks; `weights` are their shares of the work.

        A task is repeated after a transient error (`retried`). Raises the error of a task.
        """


class WrappedRunner:
    """A Runner that changes each function and passes it to another runner."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @property
    def parallelism(self) -> int:
        """See Runner."""
        return self._runner.parallelism

    def wrapped(self, function: Callable[[Task], Result]) -> Callable[[Task], Result]:
        """Return the function that runs instead; it must be picklable."""
        raise NotImplementedError

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        weights: Sequence[int],
        progress: TaskProgress,
    ) -> list[Result]:
        """See Runner."""
        return self._runner.run(self.wrapped(function), tasks, weights, progress)


class SerialRunner:
    """Runs one task after the other in this process."""

    parallelism = 1

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        weights: Sequence[int],
        progress: TaskProgress,
    ) -> list[Result]:
        results, done, total = [], 0, sum(weights)
        for task, weight in zip(tasks, weights, strict=True):
            results.append(retried(function, task))
            done += weight
            progress(done, total)
        return results


class ThreadRunner:
    """Runs several tasks at a time in this process, for tasks that mostly wait for remote storage.

    It does not repeat tasks, because each request is repeated until its time-out (`reput.files.deadlines`).
    """

    parallelism = 16

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        weights: Sequence[int],
        progress: TaskProgress,
    ) -> list[Result]:
        """See Runner. After the last task has ended, raises the error of the first task that failed."""
        done, total = 0, sum(weights)
        results = []
        with ThreadPoolExecutor(self.parallelism) as pool:
            begun = [pool.submit(function, task) for task in tasks]
            try:
                for future, weight in zip(begun, weights, strict=True):
                    results.append(future.result())
                    done += weight
                    progress(done, total)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return results


def no_progress(done: int, total: int) -> None:
    """Report no progress of tasks."""


SERIAL = SerialRunner()


class _RetryingThreads(ThreadRunner):
    """A ThreadRunner that repeats tasks after transient errors, because local file systems have no time-outs."""

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        weights: Sequence[int],
        progress: TaskProgress,
    ) -> list[Result]:
        """See Runner."""
        return super().run(partial(retried, function), tasks, weights, progress)


_MANY = 64
"""From this number on, files or stores are opened in parallel: each may take milliseconds on a network file system."""


def waiting(is_remote: bool, count: int = 1) -> Runner:
    """Return the runner with which a driver opens `count` files or stores: in parallel if they are remote or many."""
    if is_remote:
        return ThreadRunner()
    return _RetryingThreads() if count >= _MANY else SERIAL
