"""Judge IndexFiles in parallel tasks: decide which ranges of the log each file covers (`reput.core.index.verdict`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from reput.base import Runner
from reput.core import CommitLogReader, IndexFileReader, Judge, LogSource, StoreReader, Verdict
from reput.core.index.trust import RecallingJudge
from reput.engine.compare import Proved
from reput.io import Storage

# If there are at least this many IndexFiles, parallel tasks judge them. Judging so many in this process would take
# longer than starting the tasks.
_MANY_FILES = 16


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
    tasks: list[JudgeTask] = []
    owners: list[int] = []
    for number, store in enumerate(stores):
        files = store.index.current()
        owners += [number] * len(files)
        tasks += [
            JudgeTask(
                store.path, store.storage, store.own_log.source,
                file.path, file.hash_slots, file.index_items, len(files),
            )
            for file in files
        ]  # fmt: skip
    if len(tasks) < _MANY_FILES or runner.parallelism == 1:
        return [None] * len(stores)
    weights = [task.index_items for task in tasks]
    verdicts: list[dict[str, Verdict]] = [{} for _ in stores]
    found = runner.run(run_judge_task, tasks, weights, progress)
    for owner, task, verdict in zip(owners, tasks, found, strict=True):
        verdicts[owner][task.path] = verdict
    return [_Verdicts(of_store) for of_store in verdicts]


def run_judge_task(task: JudgeTask) -> Verdict:
    """Decide for which ranges of the log an IndexFile can be trusted.

    In a local store, all items of the file are compared with the log. In a remote store, only some are.

    Raises StoreAccessError, StoreChangedError.
    """
    opened = IndexFileReader(task.path, task.hash_slots, task.index_items, task.storage)
    with closing(opened) as file, closing(CommitLogReader(task.log)) as log:
        last = file.next_item - 1
        judge: Judge = Proved(task.store, [file]) if task.storage.is_local else RecallingJudge()
        return judge(file, log, last, None, task.files)
