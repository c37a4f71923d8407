"""`reput rebuild` on Spark: the rebuild of `reput.pipeline` with its tasks run by a cluster."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from reput.arguments import checked
from reput.config import StoreConfig
from reput.pipeline.driver import Only, rebuild_store
from reput.pipeline.queue_kinds import QueueForm
from reput.pipeline.report import RebuildReport
from reput.pipeline.warm_up import warm_up
from reput.spark.runner import prepared_runner
from reput.tasks import Progress, silent


@checked
def rebuild(
    spark: SparkSession,
    store: str | Path,
    *,
    config: StoreConfig | None = None,
    only: Only | None = None,
    output: str | Path | None = None,
    queues: QueueForm | None = None,
    split_size: int | None = None,
    salvage: bool = False,
    progress: Progress = silent,
) -> RebuildReport:
    """Rebuild ConsumeQueue and IndexFile of a store from its CommitLog, as the broker would have written them.

    Args:
        spark: a session; on a cluster the store and the output must be paths that every executor sees.
        store: a store directory with `commitlog/`; nothing is written there unless it is the output.
        config: sizes and settings that decide the bytes, see `reput.StoreConfig`; None takes the sizes of the
            store's own files where they are certain, and a broker's defaults for the rest.
        only: "consumequeue" or "index", to rebuild just that.
        output: directory for `consumequeue/`, `index/` and `checkpoint`; the store itself when None.
        queues: "files" or "rocksdb" (5.x; needs rocksdict on every executor); None writes them as the store has them.
        split_size: bytes of CommitLog a scan task reads; the result does not depend on it.
        salvage: after damage, resume at the next verifiable record, not at the next file.
        progress: called with the phase, units done and units in all.

    Returns what was found and made; damage in the log is reported there, not raised.

    Raises:
        StoreNotFoundError, StoreLockedError, StoreAccessError, StoreChangedError, UsageError, SparkJobError.
    """
    return rebuild_store(
        prepared_runner(spark, warm_up), store, config=config, only=only, output=output,
        queues=queues, split_size=split_size, salvage=salvage, progress=progress,
    )  # fmt: skip
