"""Run the full check: every entry of every index, then every record of the log, file by file.

Tasks run in groups: small enough to report findings early, large enough to outweigh the cost of starting a job.
Findings about the whole store come last: a lost end of the log, missing queues, a missing index.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import TypeVar

from reput import core
from reput.base import Finding, Kind, Progress, Runner, no_progress
from reput.engine.check.checking.checked_store import CheckedStore, IndexTable, lost_files
from reput.engine.check.checking.checkpoint import checkpoint_ahead
from reput.engine.check.checking.index_database import message_databases
from reput.engine.check.checking.index_table import IndexJob, read_index_table
from reput.engine.check.checking.listings import index_order, of_queue
from reput.engine.check.checking.log_check import LogFileResult, LogTask, check_log_file
from reput.engine.check.checking.next_start import (
    absent,
    dispatched_from,
    indexed_again,
    next_start,
    of_index_file,
)
from reput.engine.check.checking.other_queues import OtherQueues
from reput.engine.check.checking.queue_entries import LightQueues
from reput.engine.check.checking.queue_table import CheckedQueue, QueueJob, read_queue_table
from reput.engine.compare import (
    BEYOND,
    ComparedFile,
    EntryPlaces,
    IndexSpan,
    LogEdges,
    QueueSpan,
    Span,
)
from reput.engine.five import TimerLog, TimerWheel, check_timer_files
from reput.engine.writer import keep_topics
from reput.errors import StoreError
from reput.format.file_names import INDEX_FOLDER, TIMER_LOG_FOLDER
from reput.io import LOCAL

# A group of tasks is full if it has _BATCH_TASKS tasks per worker and _BATCH_BYTES bytes. It is also full if it has
# _BATCH_MOST_TASKS tasks.
_BATCH_TASKS, _BATCH_BYTES, _BATCH_MOST_TASKS = 4, 1 << 30, 256
Task = TypeVar("Task")
Result = TypeVar("Result")


def batches(weights: Sequence[int], parallelism: int) -> Iterator[slice]:
    """Group tasks to run together: small enough to report findings early, large enough to outweigh a job's start.

    Args:
        weights: Bytes of each task.
        parallelism: Number of tasks that run at the same time; if 1, each task is its own group.
    """
    if parallelism == 1:
        yield from (slice(number, number + 1) for number in range(len(weights)))
        return
    first = load = 0
    for number, weight in enumerate(weights, 1):
        load += weight
        count = number - first
        is_full = count >= _BATCH_TASKS * parallelism and load >= _BATCH_BYTES
        if is_full or count == _BATCH_MOST_TASKS or number == len(weights):
            yield slice(first, number)
            first, load = number, 0


def bytes_of(path: str) -> int:
    """Return the size of a file, or 0 if it has expired."""
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def bytes_below(folder: str) -> int:
    """Return the total size of a folder's files, ignoring expired files."""
    try:
        with os.scandir(folder) as entries:
            return sum(bytes_of(entry.path) for entry in entries)
    except FileNotFoundError:
        return 0


def beyond(
    store: CheckedStore, index: Sequence[IndexTable], queues: Sequence[CheckedQueue]
) -> Iterator[Finding]:
    """Yield findings for index and queue entries that lead to offsets after the end of the log: lost messages."""
    # In a live store, `store.end` is only the end of the checked part, and later messages exist.
    if store.is_live:
        return
    queued = sum(table.spans[BEYOND].total for table in queues if BEYOND in table.spans)
    if queued:
        yield store.lost_end(queued)
    for table in index:
        if BEYOND in table.spans:
            count = table.spans[BEYOND].total
            yield Finding(
                Kind.INDEX_AHEAD_OF_LOG, table.path,
                f"leads to offsets up to {table.last}, but the log ends at {store.end}",
                count=count,
                cost="new messages are not found by key until the log has grown past the file's end",
                at_next_start=f"keeps the entries, and indexes nothing before {table.last}",
            )  # fmt: skip


def _partly_copied(store: CheckedStore) -> Iterator[Finding]:
    """Yield a finding if the last record of the log ends with a zero byte, although its body matches the CRC.

    The CRC covers only the body, so the properties after it may have been copied only in part. Therefore the readers of
    reput skip such a record. Brokers read it.
    """
    if store.is_live or store.ends.reader == store.ends.rebuild:
        return
    with closing(core.CommitLogReader(core.StoreLog(store.path))) as log:
        is_reported = not log.get(store.ends.reader).body_crc_ok
    if not is_reported:
        last = store.ends.findings()[0]
        yield replace(last, at_next_start="keeps it, because it compares only bodies")


def _timers(store: CheckedStore) -> Iterator[Finding]:
    """Yield findings about the timer of a 5.x broker: lost messages, units, slots and chains."""
    if store.is_live:
        return
    yield from TimerWheel(store.path).findings
    if not (store.path / TIMER_LOG_FOLDER).is_dir():
        yield from check_timer_files(str(store.path), LOCAL, store.begin)
        return
    with core.MessageStore(store.path, config=store.config) as reader:
        timers = TimerLog(reader)
        for _ in timers:
            pass
    # The check of the log reports unreadable records.
    yield from (finding for finding in timers.damage if finding.kind is not Kind.UNREADABLE_RECORD)


class FullCheck:
    """Runs the tasks of a check, and joins their findings."""

    def __init__(self, store: CheckedStore, runner: Runner, progress: Progress) -> None:
        self._store, self._runner, self._progress = store, runner, progress
        self._edges = LogEdges.of([file.start for file in store.files], store.end)
        self._index: list[IndexTable] = []
        self._queues: list[CheckedQueue] = []
        self._without_queue: dict[core.Queue, tuple[int, int]] = {}
        self._totals = LogFileResult()
        self._light = LightQueues(store.begin)

    def run(self) -> Iterator[Finding]:
        """Yield all findings as they are found. Raises StoreAccessError."""
        yield from self.begin()
        for _, _, findings in self.steps({}):
            yield from findings
        yield from self.end()

    def begin(self) -> Iterator[Finding]:
        """Read the index and the queues, to find out which of their entries lead into each log file."""
        yield from self._read_index()
        yield from self._read_queues()
        yield from self._join_index()
        yield from beyond(self._store, self._index, self._queues)
        yield from next_start(self._store, self._index)

    def end(self) -> Iterator[Finding]:
        """Check the other queues and the store as a whole, after all log files were checked or added."""
        # The tasks have remembered facts about the log files. They are only a cache, so errors do not matter.
        with (
            suppress(StoreError),
            closing(core.CommitLogReader(core.StoreLog(str(self._store.path)))) as log,
        ):
            keep_topics(log)
        yield from _partly_copied(self._store)
        yield from _timers(self._store)
        other_queues = OtherQueues(self._store)
        yield from other_queues.findings()
        # `_without_queue` has all queues without a ConsumeQueue file. Queues in RocksDB and batch queues have no such
        # file, but are not missing, so take them out of `_without_queue`, unless they have lost their files. If these
        # queues cannot be listed, empty `_without_queue`, because any of its queues may exist.
        if other_queues.cannot_tell is None:
            present = other_queues.queues.keys() - lost_files(self._store)
        else:
            present = set(self._without_queue)
        for queue in present:
            self._without_queue.pop(queue, None)
        # IndexFiles of uncertain size were not read, so nothing is known about missing keys.
        without_index = self._totals.without_index if self._store.knows_index_sizes else 0
        yield from absent(
            self._store,
            self._without_queue,
            without_index,
            bool(self._queues or other_queues.queues),
        )
        yield from message_databases(self._store, quick=False)
        yield from checkpoint_ahead(self._store, self._totals.latest)

    def _batches(
        self,
        phase: str,
        function: Callable[[Task], Result],
        tasks_of: Callable[[slice], Sequence[Task]],
        weights: Sequence[int],
    ) -> Iterator[tuple[slice, Sequence[Task], list[Result]]]:
        """Run tasks in batches (see `batches`), and yield each batch with its tasks and their results.

        `weights` are the bytes of the tasks. `tasks_of` returns the tasks of a batch.
        """
        total, before = sum(weights), 0

        def advance(done: int, _of_batch: int) -> None:
            self._progress(phase, before + done, total)

        for batch in batches(weights, self._runner.parallelism):
            tasks = tasks_of(batch)
            yield batch, tasks, self._runner.run(function, tasks, weights[batch], advance)
            before += sum(weights[batch])

    def _read_index(self) -> Iterator[Finding]:
        store, config = self._store, self._store.config
        if not store.knows_index_sizes or not store.index:
            return
        job = IndexJob(
            config.hash_slots, config.index_items, self._edges,
            os.path.basename(store.index[-1]), store.is_live,
        )  # fmt: skip
        weights = [bytes_of(path) for path in store.index]
        read = partial(read_index_table, job)
        for _, _, tables in self._batches("index", read, store.index.__getitem__, weights):
            for table in tables:
                self._index.append(table)
                next_start = of_index_file(store, table)
                yield from (
                    replace(finding, at_next_start=next_start) for finding in table.findings
                )
                table.findings = []

    def _read_queues(self) -> Iterator[Finding]:
        store = self._store
        job = QueueJob(store.config.queue_entries, self._edges, store.is_live)
        tasks = sorted(store.queues.items())
        weights = [bytes_below(folder) for _, folder in tasks]
        read = partial(read_queue_table, job)
        for _, _, tables in self._batches("queues", read, tasks.__getitem__, weights):
            for table in tables:
                self._queues.append(table)
                yield from map(of_queue, table.findings)
                table.findings = []

    def _join_index(self) -> Iterator[Finding]:
        """Check that each IndexFile begins where the previous one ends."""
        used = [table for table in self._index if table.items]
        for before, after in pairwise(used):
            yield from index_order(after.path, after.first, before.name, before.last)

    def _has_expired(self, file: core.CommitLogFile) -> bool:
        """Return whether the broker has deleted a log file, and perhaps the queue files of its messages, too."""
        return self._store.is_live and file.start < self._store.begin_now()

    def steps(
        self, earlier: Mapping[int, LogFileResult]
    ) -> Iterator[tuple[core.CommitLogFile, LogFileResult, list[Finding]]]:
        """Check the log files in log order, one for each step, after `begin`. Yield each with its result and findings.

        `earlier` has results of earlier steps, by number of the log file. These files are not read again. Expired files
        are skipped.
        """
        plan = _LogPlan(self._store, self._index, self._queues)
        if earlier:
            # Without the light queues of all earlier files, nothing shows the lag with which they continue.
            self._light = LightQueues(max(self._store.begin, 1))
        numbers = [number for number in plan.numbers if number not in earlier]
        files = [self._store.files[number] for number in numbers]

        # Plan the tasks of one batch only. Those of all log files would name each queue many times.
        def tasks_of(batch: slice) -> list[LogTask]:
            return [plan.task(number) for number in numbers[batch]]

        weights = [file.size for file in files]
        for number in earlier.keys() & set(plan.numbers):
            self._add(earlier[number])
        for batch, tasks, results in self._batches("log", check_log_file, tasks_of, weights):
            self._repeat(plan, tasks, results)
            for file, result in zip(files[batch], results, strict=True):
                if not self._has_expired(file):
                    yield file, result, list(self.add(result))

    def leading_into(self) -> Iterator[tuple[list[str], list[int]]]:
        """Yield the files of each index and each queue, and the numbers of the log files into which they lead.

        Log files that have expired, and log files after the checked part, are left out. Batch queues lead into no log
        file here, because `end` compares them with the log.
        """
        files = self._store.files
        present = {n for n, file in enumerate(files) if not self._has_expired(file)}
        for table in self._index:
            yield [table.path], sorted(present.intersection(table.spans))
        for queue in self._queues:
            paths = [path for _, _, path in queue.places.files]
            yield paths, sorted(present.intersection(queue.spans))
        with closing(core.BatchQueueSetReader(self._store.path)) as batches:
            for topic, queue_id in batches.list():
                folder = batches.queue(topic, queue_id).folder
                yield (
                    [file.path for file in core.list_queue_files(folder, kind=core.BATCH_QUEUE)],
                    [],
                )

    def _repeat(
        self, plan: _LogPlan, tasks: Sequence[LogTask], results: list[LogFileResult]
    ) -> None:
        """Repeat the tasks that met queues without an entry for their log file, if these queues exist."""
        again = {
            row: complete
            for row, (task, result) in enumerate(zip(tasks, results, strict=True))
            if (complete := plan.with_queues(task, result.unplaced)) is not None
        }
        weights = [task.compared.file.size for task in again.values()]
        repeated = self._runner.run(check_log_file, list(again.values()), weights, no_progress)
        for row, repetition in zip(again, repeated, strict=True):
            results[row] = repetition

    def add(self, result: LogFileResult) -> Iterator[Finding]:
        """Yield the findings of the next log file, and add it to the totals."""
        yield from result.findings
        yield from self._light.take(result.light)
        self._add(result)

    def _add(self, result: LogFileResult) -> None:
        totals = self._totals
        totals.without_index += result.without_index
        times = [latest for latest in (totals.latest, result.latest) if latest is not None]
        totals.latest = max(times, default=None)
        for queue, (count, first) in result.without_queue.items():
            previous, at = self._without_queue.get(queue, (0, first))
            self._without_queue[queue] = previous + count, min(at, first)


class _LogPlan:
    """Plans the task of each log file: it names the queues and IndexFiles that have entries for this log file.

    numbers  the log files to check
    """

    def __init__(
        self, store: CheckedStore, index: Sequence[IndexTable], queues: Sequence[CheckedQueue]
    ) -> None:
        self._store, self._index, self._queues = store, index, queues
        self.numbers = [
            number
            for number in range(store.last_file + 1)
            if store.files[number].start < store.end or number == store.last_file
        ]
        self._places = {table.queue: place for place, table in enumerate(queues)}
        self._longest = [
            max((count for _, count, _ in table.places.files), default=0) for table in queues
        ]
        # For each log file, the queues and IndexFiles with entries for it, as places in `queues` and `index`.
        self._queues_of = _by_file(table.spans for table in queues)
        self._index_of = _by_file(table.spans for table in index)
        # The time of an IndexFile's first item is relative to `base`, the end time of the previous IndexFile. If the
        # log does not begin at 0, earlier IndexFiles may have expired. Then the first `base` is unknown (None).
        base: int | None = 0 if store.begin == 0 else None
        self._bases = []
        for table in index:
            self._bases.append(base)
            if table.items:
                base = max(table.header.end_timestamp, 0)
        self._indexed = _ranges_by_file(store, index)
        self._indexed_to = max((table.last for table in index if table.items), default=None)
        # Messages after the last queue entry are not dispatched yet. That is not damage. Without any queue entry,
        # nothing shows where dispatch ended, so all messages need entries.
        dispatched = max((table.end for table in queues), default=-1)
        self._dispatched_to = store.end if dispatched < 0 or store.is_live else dispatched
        self._indexed_again, self._dispatched_from = (
            indexed_again(store, index),
            dispatched_from(store),
        )
        ends = store.ends
        self._is_padded = bool(ends.findings()) and not store.facts.of_ends(ends)
        self._has_light = any(core.is_light(table.queue.topic) for table in queues)

    def task(self, number: int) -> LogTask:
        """Return the task of one log file."""
        store = self._store
        file = store.files[number]
        is_last = number == store.last_file
        compared = ComparedFile(
            file,
            min(file.end, store.end) if store.is_live else file.end,
            store.end,
            is_last or store.is_live,
            core.DispatchRules.of(store.config),
            tuple(self._queue_span(place, number) for place in self._queues_of.get(number, ())),
            tuple(self._index_span(place, number) for place in self._index_of.get(number, ())),
        )
        return LogTask(
            compared,
            number,
            is_last,
            self._is_padded,
            store.is_live,
            file.start >= store.broker_start,
            self._dispatched_to,
            str(store.path / INDEX_FOLDER),
            tuple(self._indexed.get(number, ())),
            self._indexed_to,
            self._indexed_again,
            self._dispatched_from,
            self._has_light,
        )

    def with_queues(self, task: LogTask, queues: Collection[core.Queue]) -> LogTask | None:
        """Return the task with these queues added; None if none of them exists."""
        additions = {self._places[queue] for queue in queues if queue in self._places}
        if not additions:
            return None
        places = sorted({*self._queues_of.get(task.number, ()), *additions})
        spans = tuple(self._queue_span(place, task.number) for place in places)
        return replace(task, compared=task.compared._replace(queues=spans))

    def _queue_span(self, place: int, number: int) -> QueueSpan:
        table = self._queues[place]
        span, files = table.spans.get(number), table.places.files
        if span is None:
            return QueueSpan(table.queue, None, EntryPlaces(table.places.folder, ()), table.stop)
        # The files are in the order of their first entries.
        low = bisect_left(files, span.first - self._longest[place], key=itemgetter(0))
        high = bisect_right(files, span.last + 1, key=itemgetter(0))
        near = tuple(file for file in files[low:high] if file[0] + file[1] >= span.first)
        return QueueSpan(table.queue, span, EntryPlaces(table.places.folder, near), table.stop)

    def _index_span(self, place: int, number: int) -> IndexSpan:
        table = self._index[place]
        # A writer appends only to the newest file.
        is_growing = self._store.is_live and place == len(self._index) - 1
        return IndexSpan(
            table.path, self._store.config.hash_slots, table.header, table.spans[number],
            self._bases[place], is_growing,
        )  # fmt: skip


def _by_file(spans: Iterable[Mapping[int, Span]]) -> dict[int, list[int]]:
    """Return for each log file which of the indexes have entries for it."""
    places: dict[int, list[int]] = {}
    for place, by_file in enumerate(spans):
        for number in by_file:
            places.setdefault(number, []).append(place)
    return places


def _ranges_by_file(
    store: CheckedStore, index: Sequence[IndexTable]
) -> dict[int, list[tuple[int, int]]]:
    """Return for each log file the offsets of the first and the last item of each IndexFile whose range meets it."""
    starts = [file.start for file in store.files]
    ranges: dict[int, list[tuple[int, int]]] = {}
    for table in index:
        if table.items:
            low = max(bisect_right(starts, table.first) - 1, 0)
            for number in range(low, bisect_right(starts, table.last)):
                ranges.setdefault(number, []).append((table.first, table.last))
    return ranges
