"""Define `reput.spark.rebuild`, `.follow` and `.export`, which take a SparkSession as their first argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from os import PathLike
from pathlib import Path
from threading import Event
from typing import Any

from pyspark.sql import SparkSession

from reput.base import Progress, StoreConfig, checked, silent
from reput.engine.rebuild import FollowReport, OnRebuilt, OnReport, RebuildReport, follow_log
from reput.engine.rebuild import rebuild as rebuild_on
from reput.wings.lakes import ExportReport, ExportRequest
from reput.wings.lakes import export as export_on

StorePath = str | PathLike[str]


@checked
def rebuild(spark: Any, store: StorePath, **options: Any) -> RebuildReport:
    """Rebuild ConsumeQueues and IndexFiles of a store: `reput.rebuild(store, runner=spark)`.

    Args:
        spark: A SparkSession; on a cluster, every executor must have access to the paths of the store and the output.
        store: A store directory with `commitlog/`.
        options: As for `reput.rebuild`.
    """
    return rebuild_on(store, runner=spark, **options)


@checked
def follow(
    spark: SparkSession,
    store: str | Path,
    output: str | Path,
    *,
    config: StoreConfig | None = None,
    split_size: int | None = None,
    stop: Event | None = None,
    progress: Progress = silent,
    on_wait: Callable[[], None] = lambda: None,
    on_rebuilt: OnRebuilt = lambda report: None,
    on_resume: OnReport = lambda report: None,
    on_step: OnReport = lambda report: None,
) -> FollowReport:
    """Maintain, in the folder `output`, the ConsumeQueues and IndexFiles of a store.

    Returns when `stop` is set or KeyboardInterrupt is raised. If `output` has no indexes yet, they are rebuilt on
    Spark, with `split_size` and `progress` as for `rebuild`. After the rebuild, the session is no longer used.
    `reput.engine.rebuild.follow.driver.follow_store` describes the other arguments and the result. Raises the errors of
    `follow_store` and of `rebuild`.
    """
    return follow_log(
        store, output, config=config, split_size=split_size, runner=spark,
        shown=lambda: nullcontext(progress), stop=stop, on_wait=on_wait, on_rebuilt=on_rebuilt,
        on_resume=on_resume, on_step=on_step,
    )  # fmt: skip


@checked
def export(
    spark: Any,
    stores: StorePath | Sequence[StorePath],
    destination: StorePath,
    format: str = "parquet",
    request: ExportRequest | None = None,
    *,
    split_size: int | None = None,
    target_file_size: int | None = None,
    **options: Any,
) -> ExportReport:
    """Write the messages of stores into a table: `reput.export(stores, destination, to=format, runner=spark)`.

    Args:
        spark: A SparkSession; on a cluster, every executor must have access to the paths of stores and destination.
        stores: As for `reput.export`.
        destination: The folder of the table.
        format: The argument `to` of `reput.export`.
        request: The messages, columns, partitions and JSON bodies to export; None for everything, or for the request
            with the fields in `options`.
        split_size: The argument `split_bytes` of `reput.export`.
        target_file_size: The argument `target_file_bytes` of `reput.export`.
        options: Further options of `reput.export`.
    """
    return export_on(
        stores, destination, to=format, request=request, split_bytes=split_size,
        target_file_bytes=target_file_size, runner=spark, **options,
    )  # fmt: skip
