"""Which task writes which entries of a RocksDB: key ranges that follow each other, of about the same number of entries.

Tables whose key ranges do not overlap go into the last level of the database as they are, so nothing is written twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from reput.format.java_string import encode_utf8
from reput.log.dispatch_batch import Queue
from reput.pipeline.splits import QueueRun, SplitSummary

MOST_ENTRIES = 8 << 20  # of a task, which sorts them in memory
_FIRST, _LAST = 0, (1 << 64) - 1


class KeyedRange(NamedTuple):
    """Entries of a queue whose queue offsets, as unsigned numbers, are in [first, last]: keys sort so."""

    queue: Queue
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class RocksTask:
    """One table: ranges in the order of their keys, and the staged splits, in the order of the log, that have some."""

    number: int
    staged: tuple[str, ...]
    ranges: tuple[KeyedRange, ...]
    weight: int


def rocksdb_layout(splits: list[SplitSummary], parallelism: int) -> list[RocksTask]:
    """Tasks for all queues of a log."""
    runs: dict[Queue, QueueRun] = {}
    own = {run.queue for split in splits for run in split.runs}
    for split in splits:
        for run in split.runs:
            before = runs.get(run.queue)
            runs[run.queue] = run if before is None else _joined(before, run)
    entries = sum(run.entries for run in runs.values())
    share = max(min(-(-entries // parallelism), MOST_ENTRIES), 1)
    tasks: list[RocksTask] = []
    ranges: list[KeyedRange] = []
    weight = 0
    for queue in sorted(own, key=_key_order):
        for part, count in _parts(runs[queue], share):
            if ranges and weight + count > share:
                tasks.append(_task(len(tasks), splits, ranges, weight))
                ranges, weight = [], 0
            ranges.append(part)
            weight += count
    if ranges:
        tasks.append(_task(len(tasks), splits, ranges, weight))
    return tasks


def _key_order(queue: Queue) -> tuple[int, bytes, int]:
    name = encode_utf8(queue.topic)
    return len(name), name, queue.queue_id % (1 << 32)


def _joined(before: QueueRun, run: QueueRun) -> QueueRun:
    """`first` is the least of the two, unlike in `followed_by`: it says where the offsets begin."""
    return before.followed_by(run)._replace(first=min(before.first, run.first))


def _parts(run: QueueRun, share: int) -> Iterator[tuple[KeyedRange, int]]:
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


def _task(
    number: int, splits: list[SplitSummary], ranges: list[KeyedRange], weight: int
) -> RocksTask:
    wanted = {part.queue for part in ranges}
    staged = tuple(s.staged for s in splits if any(run.queue in wanted for run in s.runs))
    return RocksTask(number, staged, tuple(ranges), weight + 1)
