"""Which entries go where: prefix sums over the splits decide every file before one is written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from reput.config import StoreConfig
from reput.errors import StoreError
from reput.kernels.queue_entries import MAX_QUEUE_OFFSET
from reput.log.dispatch_batch import Queue
from reput.pipeline.splits import SplitSummary
from reput.pipeline.stitch import LogSummary
from reput.queues.kinds import check_topic, is_light


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Index entries [start, stop) of one staged split."""

    staged: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class IndexFileTask:
    """One IndexFile: its entries, and the single entry before its first, None for the very first file."""

    number: int
    entries: tuple[KeyRange, ...]
    previous: KeyRange | None

    @property
    def weight(self) -> int:
        return 1 + sum(part.stop - part.start for part in self.entries)


@dataclass(frozen=True, slots=True)
class QueueTask:
    """ConsumeQueue entries of a run of splits.

    positions  entries each queue has before this run, None where it begins in it; queues not named are left out

    An irregular queue has a task of its own, over the whole log: where it stands is known only by the walk. So has one
    whose old entries decide about numbers (`has_old`).
    """

    staged: tuple[str, ...]
    positions: dict[Queue, int | None]
    weight: int
    is_irregular: bool = False
    has_old: bool = False


@dataclass(slots=True)
class QueueLayout:
    """How `count` queues are written. `unnamed` ones have a topic that cannot name a folder, and no ConsumeQueue."""

    tasks: list[QueueTask] = field(default_factory=list)
    unnamed: list[Queue] = field(default_factory=list)
    count: int = 0


def index_layout(log: LogSummary, config: StoreConfig) -> list[IndexFileTask]:
    """Cut the sequence of all index entries into files of index_items - 1.

    The broker makes the next file when a message, of any kind, comes after the last was filled.
    """
    capacity = config.index_items - 1
    total = log.keys
    count = -(-total // capacity)
    if total % capacity == 0 and _messages_after_last_key(log.splits):
        count += 1
    bounds, position = [], 0
    for split in log.splits:
        bounds.append((position, position + split.keys, split.staged))
        position += split.keys
    tasks, first_split = [], 0
    for number in range(count):
        start, stop = number * capacity, min((number + 1) * capacity, total)
        while first_split < len(bounds) and bounds[first_split][1] <= start - 1:
            first_split += 1
        before = _cut(bounds, first_split, start - 1, start) if number else []
        entries = _cut(bounds, first_split, start, stop)
        tasks.append(IndexFileTask(number, tuple(entries), next(iter(before), None)))
    return tasks


def _cut(
    bounds: list[tuple[int, int, str]], first_split: int, start: int, stop: int
) -> list[KeyRange]:
    ranges = []
    for place in range(first_split, len(bounds)):  # a large log has many: none is copied
        first, last, staged = bounds[place]
        if first >= stop:
            break
        low, high = max(start, first), min(stop, last)
        if low < high:
            ranges.append(KeyRange(staged, low - first, high - first))
    return ranges


def _messages_after_last_key(splits: list[SplitSummary]) -> bool:
    for split in reversed(splits):
        if split.keys:
            return split.keyless_tail
        if split.messages:
            return True
    return False


def queue_layout(
    log: LogSummary,
    parallelism: int,
    other_topics: Collection[str] = (),
    old: Collection[Queue] = (),
) -> QueueLayout:
    """Split the ConsumeQueue entries into `parallelism` runs, plus one task for each irregular queue.

    Queues of `other_topics` have no ConsumeQueue; `old` are those whose files are replaced.
    """
    layout = QueueLayout()
    irregular, unnamed = _irregular_queues(log.splits)
    others = {run.queue for s in log.splits for run in s.runs if run.queue.topic in other_topics}
    irregular, unnamed = irregular - others, unnamed - others
    with_old = _with_old(log, irregular, old) - others - unnamed
    irregular |= with_old
    layout.unnamed = sorted(unnamed)
    positions: dict[Queue, int | None] = {}
    entries = sum(run.entries for split in log.splits for run in split.runs)
    share = max(-(-entries // parallelism), 1)
    group: list[SplitSummary] = []
    taken = 0
    for split in log.splits:
        group.append(split)
        taken += sum(run.entries for run in split.runs)
        if taken >= share or split is log.splits[-1]:
            layout.tasks.append(_queue_task(group, positions, irregular | unnamed | others, taken))
            group, taken = [], 0
    for queue in sorted(irregular):
        staged = tuple(s.staged for s in log.splits if any(run.queue == queue for run in s.runs))
        has_old = queue in with_old
        layout.tasks.append(
            QueueTask(staged, {queue: None}, entries, is_irregular=True, has_old=has_old)
        )
    layout.count = len(positions) + len(irregular)
    return layout


def _with_old(log: LogSummary, irregular: set[Queue], old: Collection[Queue]) -> set[Queue]:
    """Those of the old queues whose entries say what the log alone does not: all where some of it is lost."""
    if any(split.misplaced for split in log.splits):
        return set()
    if log.lost:
        return set(old)
    # A log that begins at 0 has lost nothing: a queue that begins later may state a wrong offset.
    later = set() if log.begin else _beginning_late(log.splits)
    return {
        queue
        for queue in old
        if queue in irregular or queue in later or (log.begin and is_light(queue.topic))
    }


def _beginning_late(splits: list[SplitSummary]) -> set[Queue]:
    """Return the queues whose first message states another queue offset than 0."""
    first: dict[Queue, int] = {}
    for split in splits:
        for run in split.runs:
            first.setdefault(run.queue, run.first)
    return {queue for queue, offset in first.items() if offset > 0}


def _queue_task(
    group: list[SplitSummary], positions: dict[Queue, int | None], left_out: set[Queue], weight: int
) -> QueueTask:
    """The task of a run of splits; `positions` moves on behind it."""
    begin: dict[Queue, int | None] = {}
    for split in group:
        for run in split.runs:
            if run.queue in left_out:
                continue
            before = positions.get(run.queue)
            begin.setdefault(run.queue, before)
            positions[run.queue] = (max(run.first, 0) if before is None else before) + run.entries
    return QueueTask(tuple(split.staged for split in group), begin, weight + 1)


def _irregular_queues(splits: list[SplitSummary]) -> tuple[set[Queue], set[Queue]]:
    """Queues whose places are not prefix sums, as entries are dropped or gaps are left; and unnamed ones."""
    positions: dict[Queue, int] = {}
    irregular: set[Queue] = set()
    unnamed: set[Queue] = set()
    misplaced = any(split.misplaced for split in splits)
    for split in splits:
        for run in split.runs:
            if run.queue not in positions and not _has_folder_name(run.queue):
                unnamed.add(run.queue)
            position = positions.get(run.queue, max(run.first, 0))
            leaves_gap = run.ahead > position and not is_light(run.queue.topic)
            if misplaced or run.slack < position or leaves_gap or run.highest > MAX_QUEUE_OFFSET:
                irregular.add(run.queue)
            positions[run.queue] = position + run.entries
    return irregular - unnamed, unnamed


def _has_folder_name(queue: Queue) -> bool:
    try:
        check_topic(queue.topic)
    except StoreError:
        return False
    return True
