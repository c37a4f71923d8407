"""Plan which ranges of CommitLog files to read, and pack them into tasks. Notes explain why ranges are skipped."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from reput.base import Finding, Runner, counted, nearest_first, no_progress, waiting
from reput.core import (
    NO_NAMES,
    BrokerNames,
    CommitLogFile,
    LogListing,
    OffsetRange,
    ScanBuffers,
    holes,
    open_queues,
)
from reput.engine.rebuild import DEFAULT_SPLIT_BYTES, find_log_end, not_whole
from reput.engine.tables.by_key import IndexBesideLog, KeyedStretch
from reput.engine.tables.filters import (
    Condition,
    choices,
    limits,
    of_queues,
    offsets_of,
    sought_keys,
)
from reput.engine.tables.found_records import FoundRecords
from reput.engine.tables.read import LogRange, ReadTask, damage_rows
from reput.engine.tables.times import StoredRange, stored_elsewhere, stored_within
from reput.errors import MissingExtraError, StoreError, UsageError
from reput.format.commit_log import MIN_RECORD_BYTES
from reput.io import FileReader, OpenFile

_LEAST_BYTES = 16 << 20
_TASKS = 8
# Opening a file takes as long as reading this many consecutive bytes.
_RANGE_BYTES = 64 << 10
# Reading one scattered record takes as long as reading this many consecutive bytes.
_RECORD_BYTES = 8 << 10
# Reading one message at a given offset takes as long as reading this many consecutive bytes.
_SCATTERED_BYTES = 128 << 10
SPLIT_BYTES = 2 * DEFAULT_SPLIT_BYTES
_MAX_TASKS = 100_000
_MOST_NAMES = 5


def _packed(tasks: Sequence[ReadTask], most_bytes: int) -> Iterator[tuple[ReadTask, ...]]:
    waiting: list[ReadTask] = []
    size = 0
    for task in tasks:
        cost = cost_of(task.part)
        if waiting and size + cost > most_bytes:
            yield tuple(waiting)
            waiting, size = [], 0
        waiting.append(task)
        size += cost
    if waiting:
        yield tuple(waiting)


def cost_of(part: LogRange) -> int:
    """Return the cost of a range in bytes: bytes to read, plus the costs of opening a file and of scattered reads."""
    reads = 0 if part.found is None else len(part.found) * _RECORD_BYTES
    return part.log_bytes + reads + _RANGE_BYTES


class MissingLog(NamedTuple):
    """A range of a store's log that no file contains."""

    store: str
    lost: Finding
    names: BrokerNames = NO_NAMES

    @classmethod
    def of(cls, source: LogListing, findings: Iterable[Finding]) -> list[MissingLog]:
        """Return a MissingLog for each finding about a log."""
        return [cls(source.name, lost, source.names) for lost in findings]

    def row(self, conditions: Iterable[Condition]) -> pa.RecordBatch:
        """Return the row for this range, with all columns, or no row if it does not meet the conditions."""
        return damage_rows([self.lost], self.store, conditions, self.names)


@dataclass(slots=True)
class ReadPlan:
    """The ranges to read, in order; missing ranges of the logs; and notes about skipped ranges."""

    tasks: list[ReadTask] = field(default_factory=list)
    missing: list[MissingLog] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def log_bytes(self) -> int:
        """Return the number of log bytes to read."""
        return sum(task.part.log_bytes for task in self.tasks)

    def packed(
        self, split_bytes: int | None = None, least_tasks: int = 1
    ) -> list[tuple[ReadTask, ...]]:
        """Pack consecutive ranges into tasks.

        Args:
            split_bytes: Maximum log bytes per packed task. A single larger range is a task of its own.
            least_tasks: Minimum number of packed tasks, if there are enough ranges. If this number is above 1, a packed
                task has at most 1/`least_tasks` of all bytes. With the default 1, a packed task has at most an eighth
                of all bytes, or 16 MiB if that is more. `split_bytes` limits packed tasks in both cases.
        """
        total = sum(cost_of(task.part) for task in self.tasks)
        share = -(-total // least_tasks) if least_tasks > 1 else max(total // _TASKS, _LEAST_BYTES)
        return list(_packed(self.tasks, min(split_bytes or SPLIT_BYTES, share)))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Physical offsets [start, stop) of one store. None stands for the beginning or the end of its log."""

    start: int | None = None
    stop: int | None = None


EVERYTHING = Bounds()


def plan_reading(
    sources: Sequence[LogListing],
    conditions: Sequence[Condition] = (),
    *,
    bounds: Mapping[str, Bounds] | None = None,
    split_bytes: int | None = None,
    least_tasks: int = 1,
    use_indexes: bool = True,
    unwrap_batches: bool = False,
    runner: Runner | None = None,
) -> ReadPlan:
    """Plan how to read every message that meets the conditions.

    bounds: by store name, the physical offsets between which to read; stores without bounds are read whole
    split_bytes: maximum log bytes per task, by default SPLIT_BYTES; reduced if there would be fewer than `least_tasks`
        tasks
    use_indexes: whether to find messages through ConsumeQueues and IndexFiles
    unwrap_batches: whether to read messages of inner batches; IndexFiles lack their keys
    runner: runs a planning task for each store; None for this process

    Raises StoreError; UsageError if there are more tasks than a driver holds.
    """
    plan, split_bytes = ReadPlan(), split_bytes or SPLIT_BYTES
    total = sum(file.size for source in sources for file in source.files)
    wanted_bytes = max(min(split_bytes, -(-total // max(least_tasks, 1))), MIN_RECORD_BYTES)
    # A very large log may need more than `_MAX_TASKS` tasks of the default size, and must be readable. So refuse too
    # many tasks only if the arguments make the tasks smaller than the default.
    if wanted_bytes < SPLIT_BYTES and total // wanted_bytes > _MAX_TASKS:
        raise UsageError(
            f"splitBytes {split_bytes}, minPartitions {least_tasks}: "
            f"this would make {total // wanted_bytes} tasks; at most {_MAX_TASKS} are possible"
        )
    left_out = {
        source.name: column for source in sources if (column := _excluding(source, conditions))
    }
    plan.notes += [f"{name}: skipped, excluded by {column}" for name, column in left_out.items()]
    tasks = [
        (source, (bounds or {}).get(source.name, EVERYTHING))
        for source in sources
        if source.name not in left_out
    ]
    planned = partial(_planned, conditions, wanted_bytes, use_indexes, unwrap_batches)
    runner = runner or waiting(not all(source.is_local for source in sources))
    for part in runner.run(planned, tasks, [1] * len(tasks), no_progress):
        plan.tasks += part.tasks
        plan.missing += part.missing
        plan.notes += part.notes
    return plan


def _excluding(source: LogListing, conditions: Sequence[Condition]) -> str | None:
    """Return the name of a column by which the conditions exclude a whole store; None if there is no such column.

    The column has the same value in all rows of the store, and the conditions do not allow this value.
    """
    values = {"store": source.name, **source.names._asdict()}
    for column, value in values.items():
        named = choices(conditions, column)
        if named is not None and value not in named:
            return column
    return None


def _planned(
    conditions: Sequence[Condition],
    split_bytes: int,
    use_indexes: bool,
    unwrap_batches: bool,
    task: tuple[LogListing, Bounds],
) -> ReadPlan:
    """Return the plan for one store."""
    plan, (source, bounds) = ReadPlan(), task
    with IndexBesideLog(source) as index:
        _plan_source(plan, index, conditions, bounds, split_bytes, use_indexes, unwrap_batches)
    return plan


def plan_between(
    sources: Sequence[LogListing], bounds: Mapping[str, Bounds], *, split_bytes: int | None = None
) -> ReadPlan:
    """Plan how to read each store between two offsets.

    Each offset is the beginning of a record, or was the end of the log. Ranges that no file contains, even before the
    first file and after the last one, are reported as missing. Raises StoreError.
    """
    plan = ReadPlan()
    for source in sources:
        span = bounds.get(source.name, EVERYTHING)
        if span.start is None or span.stop is None or span.start >= span.stop:
            continue
        files = [file for file in source.files if file.start < span.stop and span.start < file.end]
        # `holes` finds missing ranges between files. So add an imaginary empty file at each bound: `holes` then also
        # finds a missing range between a bound and the nearest file.
        edges = [
            CommitLogFile(span.start, 0, source.name),
            *files,
            CommitLogFile(span.stop, 0, source.name),
        ]
        lost_files = [] if source.is_compacted else holes(edges)
        plan.missing += MissingLog.of(source, lost_files)
        for file in files:
            begin, end = max(span.start, file.start), min(span.stop, file.end)
            ends_log = source.is_compacted
            part = LogRange(
                file, begin, end, source.name, ends_log=ends_log, at_record=True,
                names=source.names,
            )  # fmt: skip
            plan.tasks += [
                ReadTask(piece, source.open_file)
                for piece in _cut(part, split_bytes or SPLIT_BYTES, source.open_file)
            ]
    return plan


def _plan_source(
    plan: ReadPlan,
    index: IndexBesideLog,
    conditions: Sequence[Condition],
    bounds: Bounds,
    split_bytes: int,
    use_indexes: bool,
    unwrap_batches: bool,
) -> None:
    source = index.source
    last, topics = source.last_with_data(), choices(conditions, "topic")
    if last is None:
        plan.missing += MissingLog.of(source, index.find_lost_end(topics))
        plan.notes.append(f"{source.name}: has no messages")
        return
    files = [file for file in source.files if file.start <= last.start]
    start, stop = _offset_bounds(files, conditions, bounds)
    lost_files = [] if source.is_compacted else holes(files)
    plan.missing += MissingLog.of(
        source, (lost for lost in lost_files if start < lost.stop and lost.start < stop)
    )
    if use_indexes and stop >= files[-1].end:
        plan.missing += MissingLog.of(source, index.find_lost_end(topics))
    end = index.log_end
    if not source.is_compacted and stop >= files[-1].end:
        # A broker may be writing the last record. Stop before it, as an export does.
        end = find_log_end(source, ScanBuffers()) if end is None else end
        stop = max(min(stop, end), start)
        if not source.is_at_end(end):
            plan.notes.append(f"{source.name}: {not_whole(end)}")
    ranges = [
        LogRange(
            file,
            max(start, file.start),
            min(stop, file.end),
            source.name,
            ends_log=file == last or source.is_compacted,
            names=source.names,
        )
        for file in files
        if start < file.end and file.start < stop
    ]
    _note(plan, source, len(files), len(ranges), "physical_offset")
    requested = _at_offsets(plan, source, ranges, conditions) if use_indexes else None
    if requested is None and use_indexes:
        requested = _by_key(plan, index, ranges, conditions, unwrap_batches)
    if requested is not None:
        ranges = requested
    else:
        ranges = _by_time(plan, source, ranges, conditions, split_bytes)
        ranges = _by_queue(plan, source, ranges, conditions) if use_indexes else ranges
    tasks = [piece for part in ranges for piece in _cut(part, split_bytes, source.open_file, end)]
    plan.tasks += [ReadTask(part, source.open_file) for part in tasks]


def _note(plan: ReadPlan, source: LogListing, before: int, after: int, why: str) -> None:
    if after < before:
        plan.notes.append(
            f"{source.name}: {before - after} of {counted(before, 'file')} skipped, excluded by {why}"
        )


def _offset_bounds(
    files: Sequence[CommitLogFile], conditions: Sequence[Condition], bounds: Bounds
) -> tuple[int, int]:
    low, high = limits(conditions, "physical_offset")
    starts = [files[0].start, bounds.start, low]
    stops = [files[-1].end, bounds.stop, None if high is None else high + 1]
    return max(s for s in starts if s is not None), min(s for s in stops if s is not None)


def _by_key(
    plan: ReadPlan,
    index: IndexBesideLog,
    ranges: Sequence[LogRange],
    conditions: Sequence[Condition],
    unwrap_batches: bool,
) -> list[LogRange] | None:
    """Return the ranges to which IndexFiles lead; None if there is no condition on keys, or no usable index.

    Adds records that have lost a requested key to `plan.missing`. IndexFiles lack the keys of inner messages: if these
    are to be read, the whole log is scanned.
    """
    keys_required, topics = sought_keys(conditions), choices(conditions, "topic")
    if keys_required is None:
        return None
    column, keys, with_rolled_back = keys_required
    with_replaced_ids = column == "unique_keys"
    if not ranges:
        return None
    within = OffsetRange(ranges[0].start, ranges[-1].stop)
    keyed = index.find_by_key(
        topics, keys, with_replaced_ids=with_replaced_ids, with_rolled_back=with_rolled_back,
        within=within,
    )  # fmt: skip
    # In notes, write the option's name unique_key, because users do not know the column's name unique_keys.
    column = "unique_key" if with_replaced_ids else column
    if keyed is None:  # No readable index: scan the log.
        return None
    plan.missing += MissingLog.of(index.source, keyed.damage)
    if unwrap_batches:
        return None
    stretches = keyed.stretches
    if frequent := sum(
        item.range.stop - item.range.start for item in stretches if item.is_frequent
    ):
        plan.notes.append(
            f"{index.source.name}: {column}: too frequent in {frequent} bytes of the log, which are scanned instead"
        )
    if many := sum(item.range.stop - item.range.start for item in stretches if item.has_many_keys):
        plan.notes.append(
            f"{index.source.name}: {column}: {many} bytes of the log are scanned, because a search for {len(keys):,} "
            "keys in so many topics takes longer; a condition on the topic makes it faster"
        )
    # The index excludes no part of the log. So return None: the caller then uses conditions on other columns, which may
    # exclude parts of the log.
    if all(item.records is None for item in stretches):
        return None
    plan.notes += [f"{index.source.name}: {note}" for note in keyed.notes]
    parts = [
        replace(part, start=begin, stop=end, found=records)
        for part in ranges
        for stretch in _overlapping(stretches, part.start, part.stop)
        if (begin := max(stretch.range.start, part.start))
        < (end := min(stretch.range.stop, part.stop))
        and ((records := _between(stretch, begin, end)) is None or len(records))
    ]
    size = sum(part.log_bytes for part in parts)
    plan.notes.append(
        f"{index.source.name}: {column} found through the index: {size} bytes to read"
    )
    return parts


def _overlapping(
    stretches: Sequence[KeyedStretch], start: int, stop: int
) -> Sequence[KeyedStretch]:
    """Return the stretches that overlap with [start, stop). All are in order, and do not overlap each other."""
    first = bisect_right(stretches, start, key=lambda stretch: stretch.range.stop)
    return stretches[first : bisect_left(stretches, stop, key=lambda stretch: stretch.range.start)]


def _between(stretch: KeyedStretch, start: int, stop: int) -> FoundRecords | None:
    return None if stretch.records is None else stretch.records.between(start, stop)


def _by_time(
    plan: ReadPlan,
    source: LogListing,
    ranges: Sequence[LogRange],
    conditions: Sequence[Condition],
    split_bytes: int,
) -> list[LogRange]:
    low, high = limits(conditions, "store_timestamp")
    if low is None and high is None:
        return list(ranges)
    low_ms, high_ms = low and low // 1000, high and high // 1000
    of_file = {part.file: part for part in ranges}
    if source.is_local:
        ranges_of_time = list(stored_within(source, list(of_file), low_ms, high_ms))
    else:
        timed = stored_elsewhere(source, list(of_file), low_ms, high_ms, split_bytes)
        ranges_of_time = timed.ranges
        if timed.scanned_bytes:
            plan.notes.append(
                f"{source.name}: {timed.scanned_bytes} bytes scanned to find their store times, which are remembered"
            )
        if timed.sampled_files:
            plan.notes.append(
                f"{source.name}: store times of {timed.sampled_files} of {len(of_file)} files are unknown and were "
                "sampled; messages are missed if the broker's clock stepped back by more than an hour"
            )
    _note(
        plan, source, len(of_file), len({item.file for item in ranges_of_time}), "store_timestamp"
    )
    parts = _parts_of(ranges_of_time, of_file)
    size, rest = (
        sum(item_range.stop - item_range.start for item_range in part) for part in (ranges, parts)
    )
    if rest < size:
        plan.notes.append(
            f"{source.name}: {size - rest} of {size} bytes skipped, excluded by store_timestamp"
        )
    return parts


def _parts_of(
    ranges: Sequence[StoredRange], of_file: Mapping[CommitLogFile, LogRange]
) -> list[LogRange]:
    """Return the parts of `ranges` that have to be read. Adjacent parts are joined.

    `of_file` has, for each file, the range that has to be read.
    """
    parts: list[LogRange] = []
    for item in ranges:
        part = of_file[item.file]
        start, stop = max(item.start, part.start), min(item.stop, part.stop)
        if parts and parts[-1].file == item.file and parts[-1].stop == start:
            parts[-1] = replace(parts[-1], stop=stop)
        elif start < stop:
            at_record = item.at_record and start == item.start
            parts.append(replace(part, start=start, stop=stop, at_record=at_record))
    return parts


def _by_queue(
    plan: ReadPlan,
    source: LogListing,
    ranges: list[LogRange],
    conditions: Sequence[Condition],
) -> list[LogRange]:
    requested = of_queues(conditions)
    if not requested or source.folder is None:
        return ranges
    try:
        with closing(open_queues(source.folder)) as queues:
            if not queues.topics():
                return ranges
    except (StoreError, MissingExtraError):  # Unreadable queues: scan the log.
        return ranges
    columns = " and ".join(dict.fromkeys(condition.column for condition in requested))
    plan.notes.append(
        f"{source.name}: {columns} found through the ConsumeQueues, where these are complete"
    )
    return [replace(part, folder=source.folder, by_queue=True) for part in ranges]


def _at_offsets(
    plan: ReadPlan, source: LogListing, ranges: list[LogRange], conditions: Sequence[Condition]
) -> list[LogRange] | None:
    """Return a range for each physical offset that a condition names; None if it names none or too many."""
    offsets = offsets_of(conditions)
    size = sum(part.stop - part.start for part in ranges)
    if offsets is None or len(offsets) * _SCATTERED_BYTES > size:
        return None
    places, parts = sorted(offsets), []
    for part in ranges:
        first, last = bisect_left(places, part.start), bisect_left(places, part.stop)
        parts += [replace(part, start=at, stop=at + 1) for at in places[first:last]]
    count = counted(len(parts), "message")
    plan.notes.append(f"{source.name}: {count} found through physical offsets")
    return parts


def _cut(
    part: LogRange, split_bytes: int, open_file: OpenFile, log_end: int | None = None
) -> list[LogRange]:
    """Split a range into tasks.

    The unused end of the last file stays one task. It begins at `log_end`. If `log_end` is None, it begins after the
    last nonzero byte.
    """
    if part.by_queue or part.found is not None or part.stop - part.start <= split_bytes:
        return [part]
    data_end = part.stop
    if part.ends_log and log_end is not None and part.start <= log_end <= part.stop:
        data_end = log_end
    elif part.ends_log and open_file is FileReader:
        with FileReader(part.file.path) as reader:
            last = reader.last_nonzero(part.file.size)
        data_end = part.file.start + (last or 0) + 1
    return [
        replace(part, start=start, stop=stop, at_record=part.at_record and start == part.start)
        for start, stop in part.file.cut(part.start, part.stop, split_bytes, data_end)
    ]


def unknown_topics(sources: Sequence[LogListing], conditions: Iterable[Condition]) -> list[str]:
    """Return a line for each topic in the conditions that no store has, with the most similar names.

    Returns no lines if the topics of at least one store are unknown, for example because the store is remote or has no
    queues.
    """
    topics: set[str] = set()
    for source in sources:
        topics_of_store = _topics_of(source)
        if not topics_of_store:
            return []
        topics.update(topics_of_store)
    named = choices(conditions, "topic") or ()
    return [_line(topic, sorted(topics)) for topic in named if topic not in topics]


def _topics_of(source: LogListing) -> Sequence[str]:
    if source.folder is None:
        return ()
    try:
        with closing(open_queues(source.folder)) as queues:
            return queues.topics()
    except (StoreError, MissingExtraError):
        return ()


def _line(topic: str, topics: list[str]) -> str:
    names = nearest_first(topic, topics)[:_MOST_NAMES]
    more = len(topics) - len(names)
    return f"no queue of topic {topic}; there are {', '.join(names)}" + (
        f" and {more:,} more" if more else ""
    )
