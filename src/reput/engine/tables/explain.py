"""Describe what a plan reads, and estimate how long this takes.

The estimate is measured: a sample of the planned ranges, a few MiB, is read on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from reput.base import counted
from reput.engine.tables.plan import ReadPlan, cost_of
from reput.engine.tables.read import ReadTask

_SAMPLE_BYTES = 8 << 20


def plan_lines(plan: ReadPlan, whole_bytes: int) -> Iterator[str]:
    """Yield lines: the bytes to read, how they are found, why others are skipped, and ranges that are missing.

    `whole_bytes` are the bytes of all log files.
    """
    yield f"to read: {plan.log_bytes:,} of {counted(whole_bytes, 'byte')} of log"
    found = [task.part for task in plan.tasks if task.part.found is not None]
    queued = [task.part for task in plan.tasks if task.part.by_queue]
    scanned = [
        task.part for task in plan.tasks if task.part.found is None and not task.part.by_queue
    ]
    if found:
        count = sum(len(part.found) for part in found if part.found is not None)
        size = sum(part.log_bytes for part in found)
        yield f"  {counted(count, 'message')} of {counted(size, 'byte')} that IndexFiles name"
    if queued:
        size = sum(part.log_bytes for part in queued)
        most = counted(size, "byte")
        yield f"  at most {most}, of which the ConsumeQueues name the messages to read"
    if scanned:
        size = sum(part.log_bytes for part in scanned)
        yield f"  {counted(size, 'byte')} to scan, in {counted(len(scanned), 'range')}"
    yield from plan.notes
    for missing in plan.missing:
        yield str(missing.lost)


def estimated_seconds(plan: ReadPlan, read: Callable[[Sequence[ReadTask]], object]) -> float:
    """Return the processor time, in seconds, that `read` takes for all tasks of a plan, measured with a sample.

    Raises the errors of `read`.
    """
    total = sum(cost_of(task.part) for task in plan.tasks)
    tasks = list(_sample(plan.tasks))
    if not tasks:
        return 0.0
    begun = time.process_time()
    read(tasks)
    return (time.process_time() - begun) * total / sum(cost_of(task.part) for task in tasks)


def _sample(tasks: Sequence[ReadTask]) -> Iterator[ReadTask]:
    """Yield the first tasks, up to `_SAMPLE_BYTES`. The last one is cut."""
    left = _SAMPLE_BYTES
    for task in tasks:
        part = task.part
        if part.found is None and part.stop - part.start > left:
            part = replace(part, stop=part.start + left)
        yield replace(task, part=part)
        left -= cost_of(part)
        if left <= 0:
            return
