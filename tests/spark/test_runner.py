import os
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from reput.spark.runner import FrameRunner, SparkRunner, _group, runner_beside_frames, starting_sql


@pytest.mark.parametrize(
    ("weights", "share", "sizes"),
    [
        ([64] * 153, 153 * 64 / 8, [20, 19, 19, 19, 19, 19, 19, 19]),
        ([20, 20, 14, 7, 7, 7, 6], 81 / 8, [1, 1, 1, 1, 1, 1, 1]),
        ([1, 1, 1], 100, [3]),
        ([1, 1, 1], 0.1, [1, 1, 1]),
    ],
)
def test_tasks_are_grouped_with_their_neighbours_into_partitions_of_equal_weight(
    weights: list[int], share: float, sizes: list[int]
) -> None:
    groups = _group(list(range(len(weights))), weights, share)
    assert [len(tasks) for tasks, _ in groups] == sizes
    assert [task for tasks, _ in groups for task in tasks] == list(range(len(weights)))
    assert [weight for _, weight in groups] == [
        sum(weights[task] for task in tasks) for tasks, _ in groups
    ]


def _process(_: int) -> int:
    return os.getpid()


def _process_of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"id": [os.getpid()]})


@pytest.mark.slow
def test_plain_tasks_and_dataframes_run_in_the_same_workers(spark: SparkSession) -> None:
    runner = runner_beside_frames(spark)
    assert type(runner) is SparkRunner
    numbers = [1] * (8 * runner.parallelism)
    theirs = runner.run(_process, numbers, numbers, lambda done, total: None)
    frame = spark.range(0, 1, 1, 1).mapInArrow(_process_of_batches, "id bigint")
    assert {row.id for row in frame.collect()} <= {*theirs}


class _Session:
    """A session that reput did not create, so its SparkContext lacks reput's environment variables."""

    def __init__(self) -> None:
        self.sparkContext: Any = SimpleNamespace(environment={}, defaultParallelism=2)


def test_in_sessions_of_others_tasks_go_through_dataframes_and_sql_starts_with_them() -> None:
    theirs: Any = _Session()
    assert type(runner_beside_frames(theirs)) is FrameRunner
    with starting_sql(theirs):  # would fail if it used the session, which has no methods
        pass
