"""Plan which task writes which queue entries.

- A queue is regular if it accepts every entry and skips no position. Then the position of an entry follows from the
  number of earlier entries. So several regular tasks, each for a range of the log, can write the queue.
- The other queues are divided into packs. A pack is a group of queues that one task writes. This task reads the whole
  log.

One task makes the plan. It reads the runs of all splits, in log order. A run is a summary of the entries of one queue
in one split (`reput.engine.rebuild.batch_file`). The runs would not fit into the driver's memory: 10,000 queues in
10,000 splits have a hundred million runs. So this task writes the plan to files, and returns only small tasks to the
driver. Each of these small tasks has a few numbers, and refers to the files of the plan:

    plan.json      the names of all staged files and queues, and the queues of each pack (`QueuePlan`)
    positions-N    one int64 per queue: the position of its next entry when regular task N begins; -1 for a queue
                   without earlier entries, whose next entry takes the queue offset of its message as its position
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import repeat
from pathlib import Path
from posixpath import join
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.core import CommitLogReader, Queue, StoreLog, check_topic, is_light
from reput.engine.rebuild.batch_file import QueueRuns, name_of, queue_of, read_runs
from reput.engine.writer import is_folder_of, old_batch_queues, old_queues
from reput.errors import StoreError
from reput.format.consume_queue import ENTRY_BYTES, MAX_QUEUE_OFFSET
from reput.io import FileReader, FileWriter, StagedFiles

MOST_ENTRIES = 16 << 20  # Maximum number of entries per task.
# Maximum number of queues per task. A task holds the state of all its queues in memory.
_MOST_PACKED = 512
_MOST_JOINED = 512  # Maximum number of ConsumeQueue files that one join task builds.
# If topics get no ConsumeQueue, the report names at most this many of these topics, as examples.
_MOST_NAMES = 3

# A pack is a group of queues that one task writes. With at most 4 packs, it is cheaper to read all staged files once
# per pack than to divide the files among the packs first.
_MOST_UNDIVIDED = 4
_Numbers = npt.NDArray[np.int64]
Kind = Literal["regular", "irregular", "old", "extended", "old extended", "batch", "form"]


_PACKED: tuple[Kind, ...] = ("irregular", "old", "extended", "old extended", "batch")


@dataclass(frozen=True, slots=True)
class QueueTask:
    """A task that writes ConsumeQueue entries.

    A regular task writes the entries of the staged files [first, stop), but only into regular queues: queues in which
    the position of an entry follows from the number of earlier entries, without reading them. Any other task writes all
    entries of a group of queues. It has one of these kinds:

    irregular  the position of an entry is known only after reading all earlier entries
    old        the entries of the replaced store decide the queue offsets
    extended   the queues have extension files
    batch      batch queues (5.x)
    form       the task of another form of queues than files (`reput.engine.rebuild.queue_kinds`)
    """

    number: int
    kind: Kind
    first: int
    stop: int
    weight: int


@dataclass(frozen=True, slots=True)
class DivideTask:
    """Divides the staged files [first, stop) among packs (`reput.engine.rebuild.divided`).

    A pack is a group of queues that one task writes.
    """

    number: int
    first: int
    stop: int
    weight: int


@dataclass(frozen=True, slots=True)
class JoinTask:
    """Builds queue files in object storage from the pieces that the regular tasks (see QueueTask) have staged.

    first, stop  range of queue numbers
    tasks        number of regular tasks
    """

    first: int
    stop: int
    tasks: int
    weight: int


@dataclass(slots=True)
class QueueLayout:
    """The tasks that write `count` queues, in three steps.

    divides  run first; each divides staged files among the later tasks
    tasks    run next; they write the entries
    joins    run last; each builds files from the pieces that `tasks` have staged. Empty except in object storage
    unnamed  examples of topics that get no ConsumeQueue, because their name cannot be a folder name
    """

    divides: list[DivideTask] = field(default_factory=list)
    tasks: list[QueueTask] = field(default_factory=list)
    joins: list[JoinTask] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    count: int = 0


@dataclass(frozen=True, slots=True)
class PlanTask:
    """The input of the planning task.

    scanned          the folder of the staged files
    staged           names of the staged files, in log order
    plan             the folder for the files of the plan
    output           the store whose queues are replaced; None if no queues are replaced
    share            entries per task
    misplaced        whether some messages state a wrong physical offset
    lost             whether parts of the log cannot be read
    in_pieces        whether regular tasks (see QueueTask) stage pieces of files. They do so in object storage, where no
                     two tasks can write parts of one object
    """

    scanned: str
    staged: tuple[str, ...]
    plan: str
    output: str | None
    file_bytes: int
    share: int
    misplaced: bool
    lost: bool
    log_begin: int
    batch_topics: frozenset[str]
    extended: bool
    in_pieces: bool = False


class QueuePlan(NamedTuple):
    """The content of plan.json. A pack is a group of queues that one task writes.

    staged     names of the staged files, in log order
    queues     all queues of the staged files; the position of a queue in this list is its number
    apart      queues that regular tasks (see QueueTask) must skip
    packs      for each pack, the numbers of its queues
    ranges     for each pack, the first and last queue offset (as uint64) of each of its queues; empty if packs have
               whole queues
    divided    packs whose tasks read divided files (`reput.engine.rebuild.divided`) instead of staged files
    divisions  number of divided files
    """

    staged: Sequence[str]
    queues: list[Queue]
    apart: frozenset[Queue] = frozenset()
    packs: Sequence[list[int]] = ()
    ranges: Sequence[list[tuple[int, int]]] = ()
    divided: frozenset[int] = frozenset()
    divisions: int = 0

    def divided_by(self, packs: Collection[int], tasks: Sequence[DivideTask]) -> QueuePlan:
        """Return the plan with further tasks, which run first and divide the messages in the staged files among packs.

        A pack is a group of queues that one later task writes. Without the further tasks, the later task of each pack
        reads all staged files itself.
        """
        return self._replace(divided=frozenset(packs if tasks else ()), divisions=len(tasks))

    def pack(self, number: int) -> list[Queue]:
        return [self.queues[queue] for queue in self.packs[number]]


# A worker runs many tasks of one rebuild, and all of them read the same plan.
@lru_cache(maxsize=2)
def read_plan(folder: str) -> QueuePlan:
    """Read a plan. Raises StoreAccessError."""
    with StagedFiles.reading(join(folder, "plan.json")) as local, FileReader(local) as reader:
        plan = QueuePlan(*json.loads(reader.read(0, reader.size)))
    queues = [Queue(*queue) for queue in plan.queues]
    apart = frozenset(Queue(*queue) for queue in plan.apart)
    return plan._replace(queues=queues, apart=apart, divided=frozenset(plan.divided))


def positions_before(folder: str, task: QueueTask) -> dict[Queue, int]:
    """Return, for each queue of a task, the number of entries that earlier tasks write. Raises StoreAccessError."""
    with (
        StagedFiles.reading(_positions_file(folder, task.number)) as local,
        FileReader(local) as reader,
    ):
        positions = np.frombuffer(reader.read(0, reader.size), np.int64).tolist()
    pairs = zip(read_plan(folder).queues[: len(positions)], positions, strict=True)
    return {queue: position for queue, position in pairs if position >= 0}


def _positions_file(folder: str, number: int) -> str:
    return join(folder, f"positions-{number:06d}")


def _write(path: str, data: Any) -> None:
    with StagedFiles.writing(path) as attempt, FileWriter(attempt) as file:
        file.write(data, 0)


class SplitRuns:
    """The runs of all splits: for each split, a summary of the entries of each queue.

    Gives each queue one number for the whole log. In the footers of staged files, a queue may have a different number
    in each file.

    queues  the queues found so far, in the order of their numbers
    """

    def __init__(self, scanned: str, staged: Sequence[str]) -> None:
        self._scanned, self._staged = scanned, staged
        # Maps the name of a queue, as in the footers of staged files, to the queue's number.
        self._numbers: dict[str, int] = {}
        self.queues: list[Queue] = []

    def __iter__(self) -> Iterator[tuple[_Numbers, QueueRuns]]:
        """Yield for each split: the numbers of the queues that have entries in the split, and the runs of these queues.

        A run is a summary of a queue's entries in the split.
        """
        for name in self._staged:
            names, runs = read_runs(join(self._scanned, name))
            earlier = map(self._numbers.get, names, repeat(-1))
            numbers = np.fromiter(earlier, np.int64, len(names))
            has_entries = runs["entries"] > 0
            for row in np.flatnonzero(has_entries & (numbers < 0)).tolist():
                numbers[row] = self._number(names[row])
            yield numbers[has_entries], runs[has_entries]

    def number(self, queue: Queue) -> int:
        """Return the number of a queue. A new queue gets the next number."""
        return self._number(name_of(queue))

    def _number(self, name: str) -> int:
        number = self._numbers.setdefault(name, len(self.queues))
        if number == len(self.queues):
            self.queues.append(queue_of(name))
        return number


class RunTable:
    """State of all queues as columns, indexed by queue number.

    position   the next position in the queue's files; -1 before its first entry
    irregular  whether positions cannot be computed from the numbers of entries in the runs
    late       whether the first message states a queue offset above 0
    light      whether the queue is a light queue (%LMQ%)
    gapped     whether it is a light queue whose messages state queue offsets with gaps
    """

    def __init__(self) -> None:
        self.position = np.empty(0, np.int64)
        self.entries = np.empty(0, np.int64)
        self.irregular = np.empty(0, np.bool_)
        self.late = np.empty(0, np.bool_)
        self.light = np.empty(0, np.bool_)
        self.gapped = np.empty(0, np.bool_)

    def grow(self, queues: Sequence[Queue]) -> None:
        new = queues[len(self.position) :]
        if not new:
            return
        none = np.zeros(len(new), np.bool_)
        self.position = np.append(self.position, np.full(len(new), -1))
        self.entries = np.append(self.entries, np.zeros(len(new), np.int64))
        self.irregular = np.append(self.irregular, none)
        self.late = np.append(self.late, none)
        self.gapped = np.append(self.gapped, none)
        light = [is_light(queue.topic) for queue in new]
        self.light = np.append(self.light, np.array(light, np.bool_))

    def take(self, numbers: _Numbers, runs: QueueRuns) -> None:
        """Add the runs (summaries of entries) of the next split, at most one per queue."""
        position = self.position[numbers]
        is_new = position < 0
        self.late[numbers] |= is_new & (runs["first"] > 0)
        position = np.where(is_new, np.maximum(runs["first"], 0), position)
        # In a light queue (LMQ), the entries are numbered without gaps even if the offsets in the messages have gaps.
        leaves_gap, is_light = runs["ahead"] > position, self.light[numbers]
        is_beyond = runs["highest"] > MAX_QUEUE_OFFSET
        self.irregular[numbers] |= (runs["slack"] < position) | leaves_gap & ~is_light | is_beyond
        self.gapped[numbers] |= leaves_gap & is_light
        self.position[numbers] = position + runs["entries"]
        self.entries[numbers] += runs["entries"]


def plan_queues(task: PlanTask) -> QueueLayout:
    """Write the files of the plan; return the tasks. Safe to run twice. Raises StoreAccessError."""
    folder, layout = task.plan, QueueLayout()
    table, runs = RunTable(), SplitRuns(task.scanned, task.staged)
    before, first, entries_so_far = table.position, 0, 0
    entries_of: list[int] = []
    for split, (numbers, of_split) in enumerate(runs):
        table.grow(runs.queues)
        table.take(numbers, of_split)
        entries_of.append(int(of_split["entries"].sum()))
        entries_so_far += entries_of[-1]
        if entries_so_far >= task.share or split == len(task.staged) - 1:
            # Several tasks of the kind `regular` (see QueueTask) share the work of writing a queue. But in a store with
            # extension files, a single task of another kind writes all entries of a queue.
            if not task.extended:
                _write(_positions_file(folder, len(layout.tasks)), before.data)
                layout.tasks.append(
                    _task(len(layout.tasks), "regular", first, split + 1, entries_so_far)
                )
            before, first, entries_so_far = table.position.copy(), split + 1, 0
    regular = len(layout.tasks)
    # A queue accepts an entry only if the entry's physical offset is higher than the physical offsets of all earlier
    # entries. So if messages state wrong physical offsets, the number of accepted entries is not known in advance.
    if task.misplaced:
        table.irregular[:] = True
    kinds = _kinds(task, table, runs)
    unnamed = sorted({runs.queues[number].topic for number in kinds["unnamed"]})
    layout.unnamed = unnamed[:_MOST_NAMES]
    layout.count = len(runs.queues) - len(kinds["unnamed"])
    packs: list[list[int]] = []
    divided: list[int] = []
    for kind in _PACKED:
        for pack, entries in _packs(sorted(kinds[kind], key=runs.queues.__getitem__), table):
            layout.tasks.append(_task(len(packs), kind, 0, len(task.staged), entries))
            # If messages state wrong physical offsets, only the messages before and after them in the log show where
            # they really are. These other messages can be of any queue. So a task that compares old entries with
            # messages must read the staged files, which have the messages of all queues. Divided files
            # (`reput.engine.rebuild.divided`) do not suffice: in them, a task finds only the messages of its own
            # queues.
            if not task.misplaced or kind in ("irregular", "extended"):
                divided.append(len(packs))
            packs.append(pack)
    layout.divides = divide_tasks(len(divided), entries_of, task.share)
    apart = frozenset(runs.queues[n] for n in set[int]().union(*kinds.values()))
    plan = QueuePlan(task.staged, runs.queues, apart, packs)
    write_plan(folder, plan.divided_by(divided, layout.divides))
    if task.in_pieces and regular:
        layout.joins = list(_joins(table, task.file_bytes, regular))
    return layout


def _joins(table: RunTable, file_bytes: int, regular: int) -> Iterator[JoinTask]:
    """Yield the join tasks. Each has queues with neighbouring numbers, and builds a bounded number of files."""
    files = -(-np.maximum(table.position, 0) * ENTRY_BYTES // file_bytes)
    first = joined = 0
    # A file is joined from pieces if its entries come from several tasks. Each task covers a range of the log, and the
    # end of a range divides at most one file of a queue. So only few files of a long queue need a join.
    for number, count in enumerate(np.minimum(files, regular + 1).tolist(), 1):
        joined += count
        if joined >= _MOST_JOINED or number == len(files):
            yield JoinTask(first, number, regular, joined * file_bytes)
            first, joined = number, 0


def divide_tasks(packs: int, entries: Sequence[int], share: int) -> list[DivideTask]:
    """Distribute the staged files over tasks that divide the files' messages among packs. Return these tasks.

    A pack is a group of queues that one task writes. Each task gets neighbouring files with about `share` entries in
    total; `entries` has the number of entries of each staged file. If there are few packs, no task is returned, because
    reading all staged files once per pack is then cheaper.
    """
    tasks: list[DivideTask] = []
    first = count = 0
    for stop, of_file in enumerate(entries if packs > _MOST_UNDIVIDED else (), 1):
        count += of_file
        if count >= share or stop == len(entries):
            tasks.append(DivideTask(len(tasks), first, stop, ENTRY_BYTES * (count + 1)))
            first, count = stop, 0
    return tasks


def write_plan(folder: str, plan: QueuePlan) -> None:
    """Write the plan for `read_plan`. Raises StoreAccessError."""
    fields = [list(field) if isinstance(field, frozenset) else field for field in plan]
    _write(join(folder, "plan.json"), json.dumps(fields).encode())


def _task(number: int, kind: Kind, first: int, stop: int, entries: int) -> QueueTask:
    return QueueTask(number, kind, first, stop, ENTRY_BYTES * (entries + 1))


def _kinds(task: PlanTask, table: RunTable, runs: SplitRuns) -> dict[str, set[int]]:
    """Return, for each kind of special task, the numbers of the queues that need such a task.

    The result also has the key `unnamed`, for which there are no tasks. Its queues are not written, because their
    topics cannot be names of folders.
    """
    queues = runs.queues
    irregular = set(np.flatnonzero(table.irregular).tolist())
    batch = {n for n, queue in enumerate(queues) if queue.topic in task.batch_topics}
    unnamed = {n for n, queue in enumerate(queues) if not _has_folder_name(queue)} - batch
    old: set[int] = set()
    if task.output is not None and task.lost:
        in_batches = old_batch_queues(Path(task.output), task.batch_topics)
        batch |= {runs.number(queue) for queue in in_batches}
        table.grow(queues)
    if task.output is not None:
        old_names = old_queues(Path(task.output), task.file_bytes)
        if not task.lost:
            old_names = frozenset(old_names.intersection(queues))
        old_numbers = {runs.number(queue): queue for queue in old_names}
        table.grow(queues)
        # The old entries decide the queue offsets of the following queues:
        # - all queues, if part of the log is lost, because their old entries may lead to lost messages;
        # - irregular queues: their messages state queue offsets that leave gaps, do not ascend, or are too large, so
        #   the stated queue offsets may be wrong;
        # - `late` queues, if the log begins at physical offset 0: the log has the queue's first message, but this
        #   message states a queue offset above 0, which may be wrong;
        # - light queues (%LMQ%), if the log begins later: their entries have no gaps, but the queue offsets that
        #   messages state may have gaps, so the queue offset of the first message does not show the position of its
        #   entry;
        # - light queues with such gaps: a message may have lost the property that names the queue.
        asks = table.irregular | table.gapped | (table.late if not task.log_begin else table.light)
        old = {n for n in old_numbers if task.lost or asks[n]} - batch - unnamed
        # A folder with the entries of another queue shows nothing about this one.
        with closing(CommitLogReader(StoreLog(task.output))) as log:
            is_own = partial(is_folder_of, Path(task.output), log=log, is_damaged=bool(task.lost))
            old = {n for n in old if is_own(old_numbers[n])}
    special = batch | unnamed | old
    extended = set(range(len(queues))) - special if task.extended else set()
    return {
        "irregular": irregular - special - extended, "old": set() if task.extended else old,
        "extended": extended, "old extended": old if task.extended else set(),
        "batch": batch, "unnamed": unnamed,
    }  # fmt: skip


def _packs(numbers: Sequence[int], table: RunTable) -> Iterator[tuple[list[int], int]]:
    """Yield groups of queues for one task each, with bounded numbers of queues and entries.

    Each group comes with its number of entries.
    """
    pack: list[int] = []
    entries = 0
    for number in numbers:
        of_queue = int(table.entries[number])
        if pack and (entries + of_queue > MOST_ENTRIES or len(pack) == _MOST_PACKED):
            yield pack, entries
            pack, entries = [], 0
        pack.append(number)
        entries += of_queue
    if pack:
        yield pack, entries


def _has_folder_name(queue: Queue) -> bool:
    try:
        check_topic(queue.topic)
    except StoreError:
        return False
    return True
