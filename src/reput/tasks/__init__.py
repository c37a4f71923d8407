"""Who runs the tasks of a rebuild, a look-up or an export."""

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
"""Called with the weight that is done and that of all tasks."""
Progress = Callable[[str, int, int], None]
"""Called with the phase of an operation, units done and units in all."""


_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_PAUSES_S = 30.0  # in all: as long as one request for data may take (`reput.files.deadlines`)


def retried(function: Callable[[Task], Result], task: Task) -> Result:
    """Return what the function returns for a task, which it does again after a transient error.

    The pauses double up to five seconds, and end half a minute after the first. Each is shortened at random, so that
    tasks which failed together do not come back together. The task must be safe to run twice.

    Raises what the function raises: at once if the error is permanent.
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
        """Tasks that run at the same time."""

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        weights: Sequence[int],
        progress: TaskProgress,
    ) -> list[Result]:
        """Results in the order of the tasks; `weights` say how much of the work each is.

        A task is repeated after a transient error (`retried`). Raises what a task raised.
        """


class WrappedRunner:
    """A Runner on top of another, which changes each function before it is run."""

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
    """One task after the other in this process."""

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
    """Tasks that wait for remote storage more than they work, several at a time in this process.

    None is repeated: each of their requests is, until its time-out (`reput.files.deadlines`).
    """

    parallelism = 16

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        weights: Sequence[int],
        progress: TaskProgress,
    ) -> list[Result]:
        """See Runner. Raises the error of the first task that has one, when none runs any more."""
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
    """Threads that repeat a task after a transient error: file systems of this machine have no time-outs of reput's."""

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
"""So many files or stores are opened at the same time: each may take milliseconds on a network's file system."""


def waiting(is_remote: bool, count: int = 1) -> Runner:
    """Return what opens `count` files or stores in the driver: remote ones, and many, at the same time."""
    if is_remote:
        return ThreadRunner()
    return _RetryingThreads() if count >= _MANY else SERIAL
