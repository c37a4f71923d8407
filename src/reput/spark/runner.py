"""Run plain functions over small tasks on Spark, with retries and progress. This module knows nothing about stores."""

from __future__ import annotations

import itertools
import pickle
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar, cast

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from reput.base import retried
from reput.errors import ReputError, SparkJobError, is_transient
from reput.spark.connect import ConnectJob, ship, slots_of
from reput.spark.descriptions import START_SQL, START_WORKERS, described, description_of
from reput.spark.errors import VERSION, job_error
from reput.spark.session import SHARED_WORKERS, is_connect, is_local
from reput.spark.workers import set_modules_aside

Task = TypeVar("Task")
Result = TypeVar("Result")
# Maximum bytes per partition. Many partitions let dynamic allocation add executors, limit the work that a lost executor
# loses, and make progress visible.
_MAX_PARTITION_WEIGHT = 512 << 20
# Each poll calls the JVM about twenty times, so the polls of a long job are fewer.
_FIRST_POLL_S, _LONGEST_POLL_S = 0.25, 1.0


class _Call(Generic[Task, Result]):
    """Runs the tasks of a partition.

    A permanent ReputError is returned as a value, so that Spark does not repeat the task. A transient error is raised,
    so that Spark gives the task to another executor.
    """

    def __init__(self, function: Callable[[Task], Result]) -> None:
        self._function, self._version = function, VERSION

    def __call__(self, groups: Iterable[list[Task]]) -> Iterator[Result | ReputError]:
        # Before the first tasks, the driver checks which reput code the running executors have. An executor that starts
        # later may have another version of reput.
        if self._version != VERSION:
            yield SparkJobError(
                f"an executor on {socket.gethostname()} has reput {VERSION}, the driver {self._version}: "
                "install the same version on every node"
            )
            return
        set_modules_aside()
        for task in itertools.chain.from_iterable(groups):
            try:
                yield retried(self._function, task)
            except ReputError as error:
                if is_transient(error):
                    raise
                yield error
                return


class SparkRunner:
    """Runs tasks as Spark jobs. Each partition has a few consecutive tasks."""

    # More partitions would divide the work more evenly, but each costs about 10 ms.
    partitions_per_slot: ClassVar[float] = 8

    def __init__(self, spark: SparkSession) -> None:
        self._context: SparkContext = spark.sparkContext

    @property
    def parallelism(self) -> int:
        """Number of slots of the present executors. With dynamic allocation, the next phase may have more."""
        return self._context.defaultParallelism

    def start_workers(self, prepare: Callable[[], None]) -> None:
        """Start the executors' Python workers before there is work for them, and call `prepare` in each.

        Raises SparkJobError.
        """
        with self.starting_workers(prepare):
            pass

    @contextmanager
    def starting_workers(self, prepare: Callable[[], None]) -> Iterator[None]:
        """Start the workers and call `prepare` in each while the `with` block runs. Raises SparkJobError."""
        slots = self.parallelism
        tasks = self._mapped(_Call(partial(_prepare, prepare)), [[slot] for slot in range(slots)])
        job = self._job(tasks, START_WORKERS)
        yield
        job.done.wait()
        job.results()

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        weights: Sequence[int],
        progress: Callable[[int, int], None],
    ) -> list[Result]:
        """Run tasks and return their results in order. Raises a task's ReputError, or SparkJobError."""
        if not tasks:
            return []
        share = sum(weights) / (self.parallelism * self.partitions_per_slot)
        groups = _group(tasks, weights, min(share, _MAX_PARTITION_WEIGHT))
        rows = self._mapped(_Call(function), [group for group, _ in groups])
        job = self._job(rows, description_of(function, weights))
        progress(0, sum(weights))
        pause = _FIRST_POLL_S
        try:
            while not job.done.wait(pause):
                pause = min(2 * pause, _LONGEST_POLL_S)
                # Spark reports only how many tasks have ended. Assume that they ended in order.
                progress(sum(weight for _, weight in groups[: job.finished_tasks()]), sum(weights))
        except KeyboardInterrupt:
            job.cancel()
            raise
        progress(sum(weights), sum(weights))
        results: list[Result | ReputError] = self._results(job.results())
        for result in results:
            if isinstance(result, ReputError):
                raise result
        return cast(list[Result], results)

    def _mapped(self, call: _Call[Task, Result], groups: list[list[Task]]) -> Any:
        """Return a distributed collection with the results, one partition per group."""
        return self._context.parallelize(groups, len(groups)).mapPartitions(call)

    def _results(self, collected: list[Any]) -> list[Any]:
        return collected

    def _job(self, rows: Any, description: str) -> _Job | ConnectJob:
        """Start the job that collects the results."""
        return _Job(self._context, rows, description)


def _prepare(prepare: Callable[[], None], _: int) -> None:
    prepare()
    set_modules_aside()


def prepared_runner(spark: SparkSession, prepare: Callable[[], None]) -> SparkRunner:
    """Return a runner, after sending reput's code to the executors and calling `prepare` in all workers and here.

    Raises SparkJobError.
    """
    prepare()
    ship(spark)
    runner = runner_of(spark)
    runner.start_workers(prepare)
    return runner


def runner_of(spark: SparkSession) -> SparkRunner:
    """Return a runner for an operation that uses no DataFrames."""
    return ConnectRunner(spark) if is_connect(spark) else SparkRunner(spark)


class FrameRunner(SparkRunner):
    """Runs tasks as DataFrames, for an operation that also uses other DataFrames.

    In most sessions, Spark has separate Python workers for DataFrames. Starting one set of workers is faster than two.
    """

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        self._spark = spark

    def _mapped(self, call: _Call[Task, Result], groups: list[list[Task]]) -> Any:
        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
            results = [
                pickle.dumps(result) for result in call(groups[number] for number in numbers)
            ]
            yield pa.RecordBatch.from_pydict({"result": pa.array(results, pa.binary())})

        count = len(groups)
        return self._spark.range(0, count, 1, count).mapInArrow(run, "result binary")

    def _results(self, collected: list[Any]) -> list[Any]:
        return [pickle.loads(row.result) for row in collected]


class ConnectRunner(FrameRunner):
    """Runs tasks in a session of Spark Connect, which has no SparkContext."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def parallelism(self) -> int:
        return slots_of(self._spark)

    def _job(self, rows: Any, description: str) -> ConnectJob:
        return ConnectJob(self._spark, rows)


def runner_beside_frames(spark: SparkSession) -> SparkRunner:
    """Return a runner for an operation that uses DataFrames. Its tasks run in the same workers as the DataFrames."""
    if is_connect(spark):
        return ConnectRunner(spark)
    if SHARED_WORKERS in spark.sparkContext.environment:
        return SparkRunner(spark)
    return FrameRunner(spark)


@contextmanager
def starting_sql(spark: SparkSession) -> Iterator[None]:
    """Let Spark run a first DataFrame during the `with` block: the first one costs Spark's JVM some seconds.

    The end of the block does not wait for the DataFrame. The next DataFrame waits, and reports any error. Does nothing
    on clusters, whose executors may not have reput yet.
    """
    context = None if is_connect(spark) else spark.sparkContext
    if (
        context is not None
        and SHARED_WORKERS in context.environment
        and is_local(str(context.master))
    ):
        InheritableThread(target=_use_sql, args=(spark,), daemon=True).start()
    yield


def _use_sql(spark: SparkSession) -> None:
    # If the session is stopped while this job runs, many kinds of errors are possible.
    with suppress(Exception), described(spark.sparkContext, START_SQL):
        frame = spark.range(0, 1, 1, 1).mapInArrow(_same, "id bigint")
        frame.write.format("noop").mode("overwrite").save()


def _same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _group(
    tasks: Sequence[Task], weights: Sequence[int], share: float
) -> list[tuple[list[Task], int]]:
    """Group consecutive tasks, each group with a weight of about `share`. Return groups with their weights."""
    groups: list[tuple[list[Task], int]] = []
    group: list[Task] = []
    weight = before = 0
    for task, task_weight in zip(tasks, weights, strict=True):
        group.append(task)
        weight += task_weight
        if before + weight >= share * (len(groups) + 1):
            groups.append((group, weight))
            before += weight
            group, weight = [], 0
    return [*groups, (group, weight)] if group else groups


class _Job:
    """A Spark job in its own thread, watched from another thread."""

    def __init__(self, context: SparkContext, rows: Any, description: str) -> None:
        self._context, self._rows, self._description = context, rows, description
        self._group = f"reput-{uuid.uuid4().hex}"
        self._results: list[Any] = []
        self._error: BaseException | None = None
        self.done = threading.Event()
        # A plain thread would not have the properties that the user set for jobs, such as the scheduler pool.
        InheritableThread(target=self._collect, daemon=True).start()

    def _collect(self) -> None:
        try:
            self._context.setJobGroup(self._group, self._description, interruptOnCancel=True)
            self._results = self._rows.collect()
        except BaseException as error:
            self._error = error
        finally:
            self.done.set()

    def cancel(self) -> None:
        """Do nothing: calls to the JVM may fail after an interrupt. The end of the session ends the job."""

    def finished_tasks(self) -> int:
        tracker = self._context.statusTracker()
        stages = [
            tracker.getStageInfo(stage)
            for job in tracker.getJobIdsForGroup(self._group)
            if (info := tracker.getJobInfo(job)) is not None
            for stage in info.stageIds
        ]
        return sum(stage.numCompletedTasks for stage in stages if stage is not None)

    def results(self) -> list[Any]:
        if isinstance(self._error, PySparkException | Py4JError | OSError):
            raise job_error(self._error) from self._error
        if self._error is not None:
            raise self._error
        return self._results
