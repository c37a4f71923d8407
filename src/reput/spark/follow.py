"""`reput rebuild --follow`: a rebuild, and then a stream that carries it on beside whoever writes the log.

The rebuild runs in parallel. What comes after it need not: one core takes in more than a gigabyte a second, and no
broker writes that much. So each micro-batch is a step of `reput.store.follow` in the driver; the stream is its clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from reput.config import StoreConfig
from reput.errors import SparkJobError, UsageError
from reput.spark.rebuild import rebuild
from reput.spark.runner import reason_of
from reput.store.follow import Follower, FollowReport
from reput.store.follow_state import begin, has_indexes, owning
from reput.store.rebuild.driver import Progress
from reput.store.rebuild.report import RebuildReport

_TRIGGER = "500 milliseconds"
_WAIT_S = 0.2
_SYNC_S = 2.0
_SYNC_PAUSE = 5  # times what a sync takes, before the next
_TASKS_END_S = 5.0

Rebuilt = Callable[[RebuildReport], None]
Step = Callable[[FollowReport], None]


def follow(
    spark: SparkSession,
    store: str | Path,
    output: str | Path,
    *,
    config: StoreConfig | None = None,
    split_size: int | None = None,
    stop: Event | None = None,
    progress: Progress = lambda phase, done, total: None,
    rebuilt: Rebuilt = lambda report: None,
    carried_on: Step = lambda report: None,
    step: Step = lambda report: None,
) -> FollowReport:
    """Keep ConsumeQueue and IndexFile of a store in `output`, until `stop` is set or a KeyboardInterrupt comes.

    Nothing is written into the store. What is in `output` already is carried on; the first time it is rebuilt, as by
    `rebuild`, and `rebuilt` is called, else `carried_on` as soon as it was found out from where. `step` is called after
    each step of the stream that took something in.

    Raises as `rebuild` does, and UsageError for an output that was begun with other settings or is the store itself.
    """
    store, output = Path(store).absolute(), Path(output).absolute()
    if store.resolve() == output.resolve():
        raise UsageError(
            f"{output}: is the store itself, which is only read; choose another --output"
        )
    with owning(output):
        state = begin(store, output, config)
        is_there = has_indexes(output)
        if not is_there:
            report = rebuild(
                spark,
                store,
                config=state.config,
                output=output,
                split_size=split_size,
                progress=progress,
            )
            state.is_fresh, state.rebuilt_to = True, report.log_end
            rebuilt(report)
        follower = Follower(store, output, state)
        if is_there:
            carried_on(follower.report)
        keeper = _Keeper(follower, step)
        try:
            _run(spark, keeper, stop or Event())
        except KeyboardInterrupt:
            pass
        finally:
            keeper.close()
    return keeper.report


class _Keeper:
    """Takes steps, in the thread of Spark's callbacks, until it is closed from another."""

    def __init__(self, follower: Follower, step: Step) -> None:
        self._follower, self._step = follower, step
        self._lock, self._is_closed = Lock(), False
        self._sync_at = time.monotonic() + _SYNC_S
        self._is_dirty = True
        self.error: BaseException | None = None
        self.report = follower.report

    def take_step(self, batch: DataFrame, number: int) -> None:
        with self._lock:
            if self._is_closed or self.error is not None:
                return
            try:
                self._take_step()
            except BaseException as error:  # told by the one who waits, as itself
                self.error = error

    def _take_step(self) -> None:
        while self._follower.poll():
            self._is_dirty = True
            self._sync_if_due()
            self._step(self.report)
            if not self._follower.has_more:
                break
        self._sync_if_due()

    def _sync_if_due(self) -> None:
        if self._is_dirty and (begun := time.monotonic()) >= self._sync_at:
            self._follower.sync()
            took_s = time.monotonic() - begun  # long where there are very many queues
            self._sync_at = time.monotonic() + max(_SYNC_S, _SYNC_PAUSE * took_s)
            self._is_dirty = False

    def close(self) -> None:
        """Let a step end, make all durable. Raises StoreAccessError."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._follower.close(sync=self.error is None)


def _run(spark: SparkSession, keeper: _Keeper, stop: Event) -> None:
    try:
        ticks = spark.readStream.format("rate").option("rowsPerSecond", 1).load()
        stream = ticks.writeStream.foreachBatch(keeper.take_step).queryName("reput-follow")
        query = stream.trigger(processingTime=_TRIGGER).start()
    except (PySparkException, Py4JError) as error:
        raise SparkJobError(f"Spark stream failed: {reason_of(error)}") from error
    try:
        while query.isActive and keeper.error is None and not stop.wait(_WAIT_S):
            pass
        if keeper.error is not None:
            raise keeper.error
        if not query.isActive and (failed := query.exception()) is not None:
            raise SparkJobError(f"Spark stream failed: {reason_of(failed)}") from failed
    finally:
        query.stop()
        _wait_for_tasks(spark)


def _wait_for_tasks(spark: SparkSession) -> None:
    """Spark's own tasks of the last tick; one that outlives its session complains loudly."""
    deadline = time.monotonic() + _TASKS_END_S
    tracker = spark.sparkContext.statusTracker()
    while tracker.getActiveStageIds() and time.monotonic() < deadline:
        time.sleep(_WAIT_S)
