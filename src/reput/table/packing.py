"""Ranges of a plan packed into tasks: none too small to be worth one, none too large for one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from reput.table.read import LogRange

_LEAST_BYTES = 16 << 20
_TASKS = 8
_RANGE_BYTES = 64 << 10
_RECORD_BYTES = 8 << 10


class HasPart(Protocol):
    @property
    def part(self) -> LogRange: ...


Task = TypeVar("Task", bound=HasPart)


def pack(tasks: Sequence[Task], split_bytes: int, least_tasks: int = 1) -> list[tuple[Task, ...]]:
    """Neighbours together.

    Args:
        tasks: Ranges in order, none much larger than `split_bytes`.
        split_bytes: Of the log, that a task reads at most, unless one range is larger.
        least_tasks: There are as many where the ranges are; 8 and more where they come to 16 MiB each.
    """
    total = sum(cost_of(task.part) for task in tasks)
    share = -(-total // least_tasks) if least_tasks > 1 else max(total // _TASKS, _LEAST_BYTES)
    return list(_packed(tasks, min(split_bytes, share)))


def _packed(tasks: Sequence[Task], most_bytes: int) -> Iterator[tuple[Task, ...]]:
    waiting: list[Task] = []
    size = 0
    for task in tasks:
        own = cost_of(task.part)
        if waiting and size + own > most_bytes:
            yield tuple(waiting)
            waiting, size = [], 0
        waiting.append(task)
        size += own
    if waiting:
        yield tuple(waiting)


def bytes_of(part: LogRange) -> int:
    """Of the log, that reading a range takes."""
    return part.stop - part.start if part.found is None else int(part.found.size.sum())


def cost_of(part: LogRange) -> int:
    """The same with what opening a file and reading records here and there costs, as if it were bytes."""
    reads = 0 if part.found is None else len(part.found) * _RECORD_BYTES
    return bytes_of(part) + reads + _RANGE_BYTES
