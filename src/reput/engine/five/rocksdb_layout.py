"""Plan which task writes which entries of a RocksDB database.

Each task writes one table, which has the entries of one or more adjacent key ranges. All tables have about the same
number of entries. The keys of different tables do not overlap, so the tables go directly into the last level of the
database, and compaction never rewrites them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from reput.core import Queue
from reput.engine import rebuild
from reput.engine.five.old_database import beginning_again, plan_old_numbers
from reput.engine.writer import LogPart
from reput.format.consume_queue import ENTRY_BYTES
from reput.format.java_string import encode_utf8

MOST_ENTRIES = 8 << 20  # A task sorts this many entries in memory.
_FIRST, _LAST = 0, (1 << 64) - 1


class KeyedRange(NamedTuple):
    """The entries of one queue whose queue offsets, read as unsigned integers, are in [first, last].

    The queue offsets are read as unsigned because RocksDB compares keys as unsigned bytes.
    """

    queue: Queue
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class RocksPlanTask:
    """The input of the planning task.

    scanned          the folder of the staged files
    staged           names of the staged files, in log order
    plan             the folder for the files of the plan
    share            entries per task
    log              the begin, end and unreadable ranges of the log
    replaced         the database of the store if it is rebuilt in place, else None
    topics           topics whose queues are written; None for all
    """

    scanned: str
    staged: tuple[str, ...]
    plan: str
    share: int
    log: LogPart
    replaced: str | None
    topics: frozenset[str] | None = None


def ranges_of(plan: rebuild.QueuePlan, number: int) -> list[KeyedRange]:
    """Return the ranges of keys that table `number` of the plan contains, in key order."""
    pairs = zip(plan.pack(number), plan.ranges[number], strict=True)
    return [KeyedRange(queue, *bounds) for queue, bounds in pairs]


class _Run(NamedTuple):
    """How many entries the whole log yields for one queue, and the lowest and highest queue offset of these entries."""

    queue: Queue
    entries: int
    first: int
    highest: int


def rocksdb_layout(task: RocksPlanTask) -> rebuild.QueueLayout:
    """Write the files of the plan; return one task per table. Safe to run twice. Raises StoreAccessError."""
    share, layout = max(min(task.share, MOST_ENTRIES), 1), rebuild.QueueLayout()
    runs, entries_of = _runs(task)
    tables: list[list[KeyedRange]] = []
    weights: list[int] = []
    for run in sorted(runs, key=lambda run: _key_order(run.queue)):
        for part, count in _parts(run, share):
            if not tables or weights[-1] + count > share:
                tables.append([])
                weights.append(0)
            tables[-1].append(part)
            weights[-1] += count
    for number, entries in enumerate(weights):
        weight = ENTRY_BYTES * (entries + 1)
        layout.tasks.append(rebuild.QueueTask(number, "form", 0, len(task.staged), weight))
    queues = {run.queue: number for number, run in enumerate(runs)}
    layout.divides = rebuild.divide_tasks(len(tables), entries_of, share)
    plan = rebuild.QueuePlan(
        task.staged, list(queues),
        packs=[[queues[part.queue] for part in table] for table in tables],
        ranges=[[(part.first, part.last) for part in table] for table in tables],
    )  # fmt: skip
    rebuild.write_plan(task.plan, plan.divided_by(range(len(tables)), layout.divides))
    return layout


def _runs(task: RocksPlanTask) -> tuple[list[_Run], list[int]]:
    """Return a `_Run` for each queue, and the number of entries in each staged file."""
    runs, table = rebuild.SplitRuns(task.scanned, task.staged), rebuild.RunTable()
    entries_of: list[int] = []
    entries, first, highest = (np.empty(0, np.int64) for _ in range(3))
    for numbers, of_split in runs:
        table.grow(runs.queues)
        table.take(numbers, of_split)
        new = len(runs.queues) - len(entries)
        entries = np.append(entries, np.zeros(new, np.int64))
        first = np.append(first, np.full(new, np.iinfo(np.int64).max))
        highest = np.append(highest, np.full(new, np.iinfo(np.int64).min))
        entries_of.append(int(of_split["entries"].sum()))
        entries[numbers] += of_split["entries"]
        first[numbers] = np.minimum(first[numbers], of_split["first"])
        highest[numbers] = np.maximum(highest[numbers], of_split["highest"])
    columns = (column.tolist() for column in (entries, first, highest))
    all_runs = [_Run(queue, *run) for queue, *run in zip(runs.queues, *columns, strict=True)]
    all_runs += _of_lost_messages(task, runs.queues, table)
    if task.topics is not None:
        all_runs = [run for run in all_runs if run.queue.topic in task.topics]
    return all_runs, entries_of


def _of_lost_messages(
    task: RocksPlanTask, queues: Sequence[Queue], table: rebuild.RunTable
) -> list[_Run]:
    """Determine queue offsets of messages from the entries of the replaced database, and write them to the plan.

    Return a `_Run` for each queue that has entries only in the replaced database. All messages of such a queue are
    lost, so the scan did not find the queue.
    """
    old: dict[Queue, rebuild.OldNumbers] = {}
    if task.replaced is not None:
        suspects, staged = None, [Path(task.scanned, name) for name in task.staged]
        # If the log is undamaged, compare old entries with messages only in queues whose messages state doubtful queue
        # offsets: the first one is above 0, or later ones do not ascend, leave gaps (normal only in light queues), or
        # are too large. In all other queues, the old entries have the queue offsets that the messages state.
        if not (task.log.lost or task.log.misplaced):
            odd = np.flatnonzero(table.irregular | table.late).tolist()
            suspects = beginning_again(staged) | {queues[number] for number in odd}
        old = plan_old_numbers(task.replaced, staged, suspects, task.log)
    rebuild.write_old_numbers(task.plan, old)
    in_log = set(queues)
    return [
        _Run(queue, len(numbers.kept_at), int(numbers.kept_at[0]), int(numbers.kept_at[-1]))
        for queue, numbers in old.items()
        if queue not in in_log and len(numbers.kept_at)
    ]


def _key_order(queue: Queue) -> tuple[int, bytes, int]:
    """Return a sort key for the order of queues in RocksDB: by length of the topic, topic, and unsigned queue id."""
    name = encode_utf8(queue.topic)
    return len(name), name, queue.queue_id % (1 << 32)


def _parts(run: _Run, share: int) -> Iterator[tuple[KeyedRange, int]]:
    """Yield the key ranges of one queue, each with its approximate number of entries."""
    count = -(-run.entries // share)
    # Keys are unsigned, so negative queue offsets come last and belong to the last range. The cuts between the ranges
    # are computed only from the other queue offsets.
    first, stop = max(run.first, 0), max(run.highest + 1, 1)
    begin = _FIRST
    for number in range(1, count):
        cut = first + (stop - first) * number // count
        if cut > begin:
            yield KeyedRange(run.queue, begin, cut - 1), run.entries // count
            begin = cut
    yield KeyedRange(run.queue, begin, _LAST), run.entries // count
