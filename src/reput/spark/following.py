"""Run `reput.engine.rebuild.follow`: the first rebuild on Spark, all later work in the driver."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from reput.base import Progress, StoreConfig, checked, silent
from reput.engine.rebuild import (
    FollowReport,
    OnRebuilt,
    OnReport,
    RebuildReport,
    follow_store,
    rebuild_store,
)
from reput.engine.rebuild.warm_up import warm_up
from reput.spark.runner import prepared_runner


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
    return follow_store(
        store, output, partial(_rebuild, spark, split_size, progress), config=config,
        stop=stop, on_wait=on_wait, on_rebuilt=on_rebuilt, on_resume=on_resume, on_step=on_step,
    )  # fmt: skip


def _rebuild(
    spark: SparkSession,
    split_size: int | None,
    progress: Progress,
    store: Path,
    output: Path,
    config: StoreConfig,
) -> RebuildReport:
    return rebuild_store(
        prepared_runner(spark, warm_up), store, config=config, output=output, split_size=split_size,
        progress=progress,
    )  # fmt: skip
