"""Which task writes which entries of a RocksDB: key ranges that follow each other, of about the same number of entries.

Tables whose key ranges do not overlap go into the last level of the database as they are, so nothing is written twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from reput.format.consume_queue import ENTRY_BYTES
from reput.format.java_string import encode_utf8
from reput.log.dispatch_batch import Queue
from reput.pipeline.old_database import (
    OldNumbers,
    beginning_again,
    plan_old_numbers,
    write_old_numbers,
)
from reput.pipeline.old_queues import LogPart
from reput.pipeline.queue_plan import RunTable, SplitRuns, write_plan

MOST_ENTRIES = 8 << 20  # of a task, which sorts them in memory
_FIRST, _LAST = 0, (1 << 64) - 1


class KeyedRange(NamedTuple):
    """Entries of a queue whose queue offsets, as unsigned numbers, are in [first, last]: keys sort so."""

    queue: Queue
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class RocksTask:
    """One table: ranges in the order of their keys."""

    number: int
    ranges: tuple[KeyedRange, ...]
    weight: int


@dataclass(frozen=True, slots=True)
class RocksPlanTask:
    """What is to be planned.

    scanned, staged  the folder of staged files, and their names in the order of the log
    plan             the folder for what tasks read
    share            entries of a task
    log              what of it can be read
    replaced         consumequeue/ of the store that is rebuilt in place, else None
    """

    scanned: str
    staged: tuple[str, ...]
    plan: str
    share: int
    log: LogPart
    replaced: str | None


class _Run(NamedTuple):
    """Entries of a queue in the whole log, and between which queue offsets they are."""

    queue: Queue
    entries: int
    first: int
    highest: int


def rocksdb_layout(task: RocksPlanTask) -> list[RocksTask]:
    """Tasks for all queues of a log. Safe to run twice. Raises StoreAccessError."""
    write_plan(task.plan, task.staged, [], [], [])
    share, tasks, weight = max(min(task.share, MOST_ENTRIES), 1), list[RocksTask](), 0
    ranges: list[KeyedRange] = []
    for run in sorted(_runs(task), key=lambda run: _key_order(run.queue)):
        for part, count in _parts(run, share):
            if ranges and weight + count > share:
                tasks.append(_task(len(tasks), ranges, weight))
                ranges, weight = [], 0
            ranges.append(part)
            weight += count
    if ranges:
        tasks.append(_task(len(tasks), ranges, weight))
    return tasks


def _task(number: int, ranges: list[KeyedRange], entries: int) -> RocksTask:
    return RocksTask(number, tuple(ranges), ENTRY_BYTES * (entries + 1))


def _runs(task: RocksPlanTask) -> list[_Run]:
    runs, table = SplitRuns(task.scanned, task.staged), RunTable()
    entries, first, highest = (np.empty(0, np.int64) for _ in range(3))
    for numbers, of_split in runs:
        table.grow(runs.queues)
        table.take(numbers, of_split)
        new = len(runs.queues) - len(entries)
        entries = np.append(entries, np.zeros(new, np.int64))
        first = np.append(first, np.full(new, np.iinfo(np.int64).max))
        highest = np.append(highest, np.full(new, np.iinfo(np.int64).min))
        entries[numbers] += of_split["entries"]
        first[numbers] = np.minimum(first[numbers], of_split["first"])
        highest[numbers] = np.maximum(highest[numbers], of_split["highest"])
    columns = (column.tolist() for column in (entries, first, highest))
    found = [_Run(queue, *run) for queue, *run in zip(runs.queues, *columns, strict=True)]
    return found + _of_lost_messages(task, runs.queues, table)


def _of_lost_messages(task: RocksPlanTask, queues: Sequence[Queue], table: RunTable) -> list[_Run]:
    """Write what the old entries say; return the queues of which only entries of lost messages are left."""
    old: dict[Queue, OldNumbers] = {}
    if task.replaced is not None:
        asked, staged = None, [Path(task.scanned, name) for name in task.staged]
        if not (task.log.lost or task.log.misplaced):
            odd = np.flatnonzero(table.irregular | table.late).tolist()
            asked = beginning_again(staged) | {queues[number] for number in odd}
        old = plan_old_numbers(task.replaced, staged, asked, task.log)
    write_old_numbers(task.plan, old)
    known = set(queues)
    return [
        _Run(queue, len(one.kept_at), int(one.kept_at[0]), int(one.kept_at[-1]))
        for queue, one in old.items()
        if queue not in known and len(one.kept_at)
    ]


def _key_order(queue: Queue) -> tuple[int, bytes, int]:
    name = encode_utf8(queue.topic)
    return len(name), name, queue.queue_id % (1 << 32)


def _parts(run: _Run, share: int) -> Iterator[tuple[KeyedRange, int]]:
    """Ranges of one queue, and about how many entries each has."""
    count = -(-run.entries // share)
    first, stop = max(run.first, 0), max(run.highest + 1, 1)
    begin = _FIRST
    for number in range(1, count):
        cut = first + (stop - first) * number // count
        if cut > begin:
            yield KeyedRange(run.queue, begin, cut - 1), run.entries // count
            begin = cut
    yield KeyedRange(run.queue, begin, _LAST), run.entries // count
