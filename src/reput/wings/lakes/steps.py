"""Commit exports in steps, so that at most one step is lost if the driver dies."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from reput.base import parse_size
from reput.engine.tables import LogRange, ReadTask
from reput.errors import UsageError
from reput.wings.lakes.task import TaskResult

_DURATION = re.compile(r"(\d{1,9}) *(s|sec|min|m|h)")
_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}
# If a step has a time limit, the time is checked each time that the runner has run this many tasks per slot.
_TASKS_PER_SLOT = 4


@dataclass(frozen=True, slots=True)
class CommitEvery:
    """How often an export commits. An export works in steps, and each step ends with a commit.

    Attributes:
        log_bytes: Bytes of the CommitLog after which a step ends; None for no limit.
        seconds: Elapsed time after which a step ends; None for no limit.
    """

    log_bytes: int | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, given: str | int | None) -> CommitEvery:
        """Parse `10GB`, `10min` or a number of bytes. None means a single step. Raises UsageError."""
        if given is None:
            return cls()
        text = str(given).strip()
        match = _DURATION.fullmatch(text)
        try:
            limit = (
                cls(None, int(match[1]) * _SECONDS[match[2]]) if match else cls(parse_size(text))
            )
        except ValueError:
            limit = cls()
        if not (limit.log_bytes or limit.seconds):
            raise UsageError(
                f"commit_every {text}: must be an amount of log such as 10GB, or a time such as 10min",
                arguments=["commit_every"],
            )
        return limit


class ExportStep:
    """The tasks of one commit, and their results."""

    def __init__(self, every: CommitEvery, parallelism: int) -> None:
        self._every, self._at_once = every, max(parallelism, 1) * _TASKS_PER_SLOT
        self._begun, self._bytes = time.monotonic(), 0
        self.tasks: list[ReadTask] = []
        self.results: list[TaskResult] = []

    def next_tasks(self, waiting: Sequence[ReadTask]) -> Sequence[ReadTask]:
        """Return the tasks to run next.

        If the step has a maximum size, return enough tasks to reach the size. If it has a time limit, return a few
        tasks, so that the time is checked between them. Otherwise, return all tasks.
        """
        if self._every.log_bytes is not None:
            rest = self._every.log_bytes - self._bytes
            for count, task in enumerate(waiting, 1):
                rest -= weight_of(task)
                if rest <= 0:
                    return waiting[:count]
        return waiting if self._every.seconds is None else waiting[: self._at_once]

    def take(self, tasks: Sequence[ReadTask], results: Sequence[TaskResult]) -> None:
        """Add finished tasks and their results."""
        self.tasks += tasks
        self.results += results
        self._bytes += sum(map(weight_of, tasks))

    def is_due(self) -> bool:
        """Return whether the step has reached its size or its time."""
        every = self._every
        if every.log_bytes is not None and self._bytes >= every.log_bytes:
            return True
        return every.seconds is not None and time.monotonic() - self._begun >= every.seconds

    def end_before(self, waiting: Sequence[ReadTask]) -> int | None:
        """Return the offset at which this step can end and the next step begin; None if this step cannot end here.

        A step cannot end in damaged bytes, or between records that were found through an index.
        """
        last, after = self.tasks[-1].part, waiting[0].part
        if last.store != after.store or last.file != after.file:
            # A record never continues in the next file, so a step can end at the end of a file.
            return after.file.start if last.store == after.store else last.stop
        ended = self.results[-1]
        walks = all(not part.by_queue and part.found is None for part in (last, after))
        is_whole = ended.start < last.stop <= ended.end and last.stop == after.start
        return ended.end if walks and is_whole and not _leaves(ended, after) else None


def weight_of(task: ReadTask) -> int:
    """Return the number of log bytes that a task reads."""
    return max(task.part.stop - task.part.start, 1)


def grouped(
    tasks: Sequence[ReadTask], most_bytes: int, least_bytes: int
) -> list[tuple[ReadTask, ...]]:
    """Group consecutive tasks that write their rows together: at most `most_bytes` of log, or one task.

    A task counts with at least `least_bytes`.
    """
    groups: list[tuple[ReadTask, ...]] = []
    waiting: list[ReadTask] = []
    size = 0
    for task in tasks:
        weight = max(weight_of(task), least_bytes)
        if waiting and size + weight > most_bytes:
            groups.append(tuple(waiting))
            waiting, size = [], 0
        waiting.append(task)
        size += weight
    return [*groups, tuple(waiting)] if waiting else groups


def are_in_order(tasks: Sequence[ReadTask]) -> bool:
    """Return whether the tasks of each store are consecutive and in order of offset."""
    stores: list[str] = []
    before: LogRange | None = None
    for task in tasks:
        part = task.part
        if before is None or part.store != before.store:
            stores.append(part.store)
        elif part.start < before.stop:
            return False
        before = part
    return len(stores) == len(set(stores))


def _leaves(ended: TaskResult, after: LogRange) -> bool:
    """Return whether the last record of a task covers the whole range of the next task."""
    return ended.end >= after.stop
