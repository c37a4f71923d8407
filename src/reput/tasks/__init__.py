"""Who runs the tasks of a rebuild, a look-up or an export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")
TaskProgress = Callable[[int, int], None]
"""Called with the weight that is done and that of all tasks."""
Progress = Callable[[str, int, int], None]
"""Called with the phase of an operation, units done and units in all."""


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

        Raises what a task raised.
        """


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
            results.append(function(task))
            done += weight
            progress(done, total)
        return results
