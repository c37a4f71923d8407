"""Define runners, which execute the tasks of a rebuild, a look-up or an export."""

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
"""A function that is called with the weight of the finished tasks, and the weight of all tasks."""
Progress = Callable[[str, int, int], None]
"""A function that is called with the phase of an operation, the units done and the total."""


_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
# Sum of all pauses between the attempts of one task, in seconds. The sum equals the time-out of one request for data
# (`reput.io.deadlines`).
_PAUSES_S = 30.0


def retried(function: Callable[[Task], Result], task: Task) -> Result:
    """Call a function for a task. After a transient error, pause and call it again.

    Pauses double up to five seconds. After pauses of half a minute in total, the error is raised. Each pause is
    shortened at random, so that tasks that failed together do not resume together. The task must be safe to run twice.

    Raises the errors of the function. Permanent errors are raised immediately.
    """
    pause, budget = _FIRST_PAUSE_S, _PAUSES_S
    while True:
        try:
            return function(task)
        except Exception as error:
            if budget <= 0 or not is_transient(error):
                raise
        time.sleep(min(pause, budget) * random.uniform(0.5, 1))
        pause, budget = min(2 * pause, _LONGEST_PAUSE_S), budget - pause


def silent(phase: str, done: int, total: int) -> None:
    """Ignore progress."""


class Runner(Protocol):
    """Runs a picklable function over tasks. The order is undefined, and a task may run more than once."""

    @property
    def parallelism(self) -> int:
        """Return the number of tasks that run at the same time."""

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        weights: Sequence[int],
        progress: TaskProgress,
    ) -> list[Result]:
        """Run tasks, and return their results in the order of the tasks.

        `weights` are the tasks' shares of the work, for `progress`. A task is repeated after a transient error
        (`retried`). Raises the error of a task that fails.
        """


class WrappedRunner:
    """A base class of runners that wrap each function, and pass the wrapped function to another runner."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @property
    def parallelism(self) -> int:
        """See Runner."""
        return self._runner.parallelism

    def wrapped(self, function: Callable[[Task], Result]) -> Callable[[Task], Result]:
        """Return the function to run instead of `function`. The result must be picklable."""
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
    """Runs several tasks at a time in threads of this process, for tasks that mostly wait for remote storage.

    It does not repeat tasks, because each request to remote storage is already repeated (`reput.io.deadlines`).
    """

    parallelism = 16

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        weights: Sequence[int],
        progress: TaskProgress,
    ) -> list[Result]:
        """See Runner. If a task fails, the error is raised after all running tasks have ended."""
        done, total = 0, sum(weights)
        results = []
        with ThreadPoolExecutor(self.parallelism) as pool:
            begun = [pool.submit(function, task) for task in tasks]
            try:
                for future, weight in zip(begun, weights, strict=True):
                    results.append(future.result())
                    done += weight
                    progress(done, total)
            # Drop the waiting tasks. Otherwise the end of the `with` block would wait until they have run.
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return results


def no_progress(done: int, total: int) -> None:
    """Ignore the progress of tasks."""


SERIAL = SerialRunner()


class _Retrying(WrappedRunner):
    """Repeats tasks after transient errors, for local files.

    Requests to object storage are repeated until their time-out anyway, but operations of a file system are not.
    """

    def wrapped(self, function: Callable[[Task], Result]) -> Callable[[Task], Result]:
        return partial(retried, function)


_MANY = 64
"""From this number on, files or stores are opened in parallel: each can take milliseconds on a network file system."""


def waiting(is_remote: bool, count: int = 1) -> Runner:
    """Return a runner for opening `count` files or stores: threads for remote or many files, else a serial runner."""
    if is_remote:
        return ThreadRunner()
    return _Retrying(ThreadRunner()) if count >= _MANY else SERIAL
