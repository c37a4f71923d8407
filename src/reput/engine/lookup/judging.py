"""Judge IndexFiles in parallel tasks: decide which ranges of the log each file covers (`reput.core.index.proofs`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from reput.base import Runner
from reput.core import (
    CommitLogReader,
    IndexFileReader,
    Judge,
    LogSource,
    RecallingJudge,
    StoreReader,
    Verdict,
)
from reput.engine.compare import Proved
from reput.io import Storage

# If there are at least this many IndexFiles, parallel tasks judge them. Judging so many in this process would take
# longer than starting the tasks.
_MANY_FILES = 16
# More groups would divide the work more evenly, but each lists the log.
_GROUPS_PER_SLOT = 4


@dataclass(frozen=True, slots=True)
class JudgeTask:
    """A task: decide for which ranges of the log one IndexFile of a store can be trusted.

    files  number of the store's IndexFiles
    """

    store: str
    storage: Storage
    log: LogSource
    path: str
    hash_slots: int
    index_items: int
    files: int


class _Verdicts:
    """A Judge that computes nothing: for each IndexFile, it returns the verdict that a task has computed."""

    def __init__(self, verdicts: dict[str, Verdict]) -> None:
        self._verdicts = verdicts

    def __call__(
        self,
        file: IndexFileReader,
        log: CommitLogReader,
        last: int,
        before: Verdict | None = None,
        files: int = 1,
    ) -> Verdict:
        """See `Judge`."""
        # Do not trust a file that is new, or that has lost items since a task judged it. Its range is scanned.
        verdict = self._verdicts.get(file.path)
        return verdict if verdict is not None and verdict.last <= last else Verdict(last)


def judged(
    runner: Runner, stores: Sequence[StoreReader], progress: Callable[[int, int], None]
) -> list[Judge | None]:
    """Decide in tasks, for each store, which ranges of its log its IndexFiles cover. Return a `Judge` for each store.

    A judge computes nothing: it returns the decisions of the tasks.

    If tasks would save no time (few IndexFiles, or only one process), no task runs, and the result has None for each
    store.

    Raises StoreAccessError, StoreChangedError.
    """
    by_store = [_tasks(store) for store in stores]
    count = sum(map(len, by_store))
    if count < _MANY_FILES or runner.parallelism == 1:
        return [None] * len(stores)
    # IndexFiles of one store share a listing of its log, which may take longer than to judge one file.
    all_verdicts: list[dict[str, Verdict]] = [{} for _ in stores]
    most = -(-count // (_GROUPS_PER_SLOT * runner.parallelism))
    groups = [
        (verdicts, tasks[first : first + most])
        for verdicts, tasks in zip(all_verdicts, by_store, strict=True)
        for first in range(0, len(tasks), most)
    ]
    weights = [sum(task.index_items for task in tasks) for _, tasks in groups]
    results = runner.run(run_judge_tasks, [tasks for _, tasks in groups], weights, progress)
    for (verdicts, tasks), of_group in zip(groups, results, strict=True):
        verdicts.update(zip((task.path for task in tasks), of_group, strict=True))
    return [_Verdicts(verdicts) for verdicts in all_verdicts]


def _tasks(store: StoreReader) -> list[JudgeTask]:
    files = store.index.current()
    return [
        JudgeTask(
            store.path, store.storage, store.own_log.source,
            file.path, file.hash_slots, file.index_items, len(files),
        )
        for file in files
    ]  # fmt: skip


def run_judge_tasks(tasks: Sequence[JudgeTask]) -> list[Verdict]:
    """Decide for which ranges of the log each of some IndexFiles of one store can be trusted.

    In a local store, all items of the files are compared with the log. In a remote store, only some are.

    Raises StoreAccessError, StoreChangedError.
    """
    with ExitStack() as stack:
        log = stack.enter_context(closing(CommitLogReader(tasks[0].log)))
        files = [
            stack.enter_context(
                closing(IndexFileReader(task.path, task.hash_slots, task.index_items, task.storage))
            )
            for task in tasks
        ]
        # Other tasks run beside this one, so it needs no threads.
        judge: Judge = Proved(log, files, threads=1) if log.source.is_local else RecallingJudge()
        return [
            judge(file, log, file.next_item - 1, None, task.files)
            for task, file in zip(tasks, files, strict=True)
        ]
