"""`reput.pipeline`: rebuild ConsumeQueues and IndexFiles from the CommitLog."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, Literal

from reput.arguments import checked
from reput.config import StoreConfig
from reput.log.paths import log_bytes
from reput.operations.runners import Chosen, opened_runner
from reput.operations.stores import takes_stores
from reput.pipeline.driver import rebuild_store
from reput.pipeline.report import RebuildReport
from reput.pipeline.warm_up import warm_up
from reput.tasks import Progress, silent


@takes_stores
@checked
def rebuild(
    store: str | PathLike[str],
    *,
    only: Literal["consumequeue", "index"] | None = None,
    output: str | PathLike[str] | None = None,
    queues: Literal["files", "rocksdb"] | None = None,
    config: StoreConfig | None = None,
    split_size: int | None = None,
    salvage: bool = False,
    runner: Any = "auto",
    progress: Progress = silent,
) -> RebuildReport:
    """Rebuild ConsumeQueues and IndexFiles, identical to those of a broker's dispatch.

    Args:
        store: A store directory with `commitlog/`; nothing is written there unless it is the output.
        only: Rebuild only one of the two.
        output: Folder for `consumequeue/`, `index/` and `checkpoint`; None for the store itself.
        queues: Write queues as files or into RocksDB; None for the store's own kind.
        config: Settings that decide the bytes; None takes what the store's own files show.
        split_size: Bytes of CommitLog that a scan task reads.
        salvage: After damage, resume at the next verifiable record, not at the next file.
        runner: "auto", "serial", "processes", "spark", or a SparkSession. "auto" uses Spark from 256 MiB on.
        progress: Called with the phase, units done and units in all.

    Returns:
        What was found and written. Damage of the log is reported there, not raised.

    Raises:
        StoreNotFoundError, StoreLockedError, StoreAccessError, StoreChangedError, UsageError, SparkJobError.
    """
    size_bytes = log_bytes(store)  # before anything is started, which takes seconds
    target = None if output is None else Path(output)
    with opened_runner(Chosen.of(runner), size_bytes, warm_up) as tasks:
        return rebuild_store(
            tasks, Path(store), only=only, output=target, queues=queues, config=config,
            split_size=split_size, salvage=salvage, progress=progress,
        )  # fmt: skip
