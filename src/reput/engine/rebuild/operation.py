"""Define `reput.rebuild`, which rebuilds ConsumeQueues and IndexFiles from the CommitLog, and `follow_log`.

`follow_log` maintains indexes of a log that another process writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from reput.base import Progress, StoreConfig, checked, silent
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.rebuild.follow.driver import follow_store
from reput.engine.rebuild.report import FollowReport, RebuildReport
from reput.engine.rebuild.warm_up import warm_up
from reput.engine.stores import Chosen, log_bytes, opened_runner, takes_stores
from reput.io import Location

Shown = Callable[[], AbstractContextManager[Progress]]
"""A function that returns a context manager, which shows the progress of a follower's first rebuild."""


@takes_stores
@checked
def rebuild(
    store: str | PathLike[str],
    *,
    only: Literal["consumequeue", "index"] | None = None,
    output: str | PathLike[str] | None = None,
    queues: Literal["files", "rocksdb", "both"] | None = None,
    index: Literal["files", "rocksdb"] | None = None,
    config: StoreConfig | None = None,
    split_size: int | None = None,
    salvage: bool = False,
    staging: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    runner: Any = "auto",
    progress: Progress = silent,
) -> RebuildReport:
    """Rebuild ConsumeQueues and IndexFiles, byte for byte as a broker's dispatch writes them.

    Args:
        store: A folder or URL with `commitlog/`. The store is not changed if `output` is another place.
        only: Rebuild only the ConsumeQueues or only the IndexFiles.
        output: Folder or URL for `consumequeue/`, `index/` and `checkpoint`; None to write into the store itself.
            Existing objects at a URL are not replaced.
        queues: "files", "rocksdb" or "both"; None for the kind that the store has, which must be one. With "both", a
            store that has both kinds keeps the topics that it has in RocksDB. Not with `only="index"`.
        index: "files" for IndexFiles (the default), or "rocksdb" for the database of keys of a 5.4 broker. A store that
            has keys in RocksDB only needs one of them, unless `only="consumequeue"`.
        config: The broker's settings; by default sizes are derived from the store's files.
        split_size: Bytes of CommitLog per scan task.
        salvage: After damage, resume at the next verifiable record, not at the next file.
        staging: URL of object storage for temporary files of tasks, if the workers share no folder.
        storage_options: Options of file systems, as for `reput.open_store`.
        runner: "auto", "serial", "processes", "spark", or a SparkSession. "auto" uses Spark from 256 MiB on.
        progress: Called with the phase, units done and units in all.

    Returns:
        A report of the written files. It also states damage of the log, which raises no error.

    Raises:
        StoreNotFoundError, StoreLockedError, StoreAccessError, StoreChangedError, UsageError, SparkJobError.
    """
    if output is None:
        Location.refuse_archive(store)
    # Report a wrong path at once, before starting a runner, which takes seconds.
    size_bytes = log_bytes(store, storage_options)
    with opened_runner(Chosen.of(runner), size_bytes, warm_up) as tasks:
        return rebuild_store(
            tasks, store, only=only, output=output, queues=queues, index=index, config=config,
            split_size=split_size, salvage=salvage, staging=staging,
            storage_options=storage_options, progress=progress,
        )  # fmt: skip


@checked
def follow_log(
    store: str | PathLike[str],
    output: str | PathLike[str],
    *,
    config: StoreConfig | None = None,
    split_size: int | None = None,
    runner: Any = "auto",
    shown: Shown = lambda: nullcontext(silent),
    **calls: Any,
) -> FollowReport:
    """Maintain indexes for a growing log until stopped. Missing indexes are first rebuilt with the runner.

    Args:
        store: A store directory, which another process may be writing.
        output: The folder for the indexes, which must not be the store.
        config: As for `follow_store`.
        split_size: Bytes of CommitLog per scan task of the rebuild.
        runner: The runner of the rebuild, as for `reput.rebuild`.
        shown: Shows the progress of the rebuild.
        calls: `stop` and other callbacks, as for `follow_store`.

    Raises the errors of `follow_store` and `reput.rebuild`.
    """
    first = partial(_rebuild_first, Chosen.of(runner), shown, split_size)
    return follow_store(Path(store), Path(output), first, config=config, **calls)


def _rebuild_first(
    choice: Chosen, bars: Shown, split_size: int | None, store: Path, output: Path, config: StoreConfig
) -> RebuildReport:  # fmt: skip
    with bars() as progress, opened_runner(choice, log_bytes(store), warm_up) as tasks:
        return rebuild_store(
            tasks, store, config=config, output=output, queues="files", index="files",
            split_size=split_size, progress=progress,
        )  # fmt: skip
