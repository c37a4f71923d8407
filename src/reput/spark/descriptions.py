"""Describe reput's jobs on Spark's pages, which otherwise show the line of code that started the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from pyspark import SparkContext

from reput.base import counted

_PROPERTY = "spark.job.description"
_OF_FUNCTIONS = {
    "reput.wings.lakes.task.run_export": "reput export: read the log, write files",
    "reput.wings.lakes.merging.run_merge": "reput export: combine small files",
    "reput.engine.lookup.driver._search": "reput lookup: search indexes, scan what they do not cover",
    "reput.engine.lookup.judging.run_judge_tasks": "reput lookup: prove or spot-check IndexFiles",
    "reput.engine.lookup.match_task.run_match_task": "reput lookup: read matches",
    "reput.engine.lookup.local_files._write_part": "reput lookup: write the answer",
    "reput.engine.rebuild.scan_split.run_scan": "reput rebuild: scan the log",
    "reput.engine.rebuild.driver._data_end": "reput rebuild: find the ends of log files",
    "reput.engine.rebuild.queue_plan.plan_queues": "reput rebuild: plan ConsumeQueues",
    "reput.engine.five.rocksdb_layout.rocksdb_layout": "reput rebuild: plan the tables of RocksDB",
    "reput.engine.rebuild.divided.divide": "reput rebuild: divide entries among queues",
    "reput.engine.rebuild.driver._write_one": "reput rebuild: write ConsumeQueues and IndexFiles",
    "reput.engine.rebuild.queue_pieces.write_objects": "reput rebuild: stage ConsumeQueues and IndexFiles",
    "reput.engine.rebuild.queue_pieces.join_pieces": "reput rebuild: join pieces of ConsumeQueue files",
    "reput.engine.rebuild.publish._publish": "reput rebuild: publish files",
}
_WEIGHED_BY_BYTES = {
    "reput.wings.lakes.task.run_export",
    "reput.wings.lakes.merging.run_merge",
    "reput.engine.rebuild.scan_split.run_scan",
}
"""Functions whose tasks are weighted by the number of bytes that they read. The description of a job states the sum of
these numbers, because Spark does not count bytes that Python reads.
"""

STAGE_KEYS = "reput lookup: stage keys"
START_WORKERS = "reput: start workers"
START_SQL = "reput: start Spark's SQL"
ASK_EXECUTORS = "reput: check executors for reput"


def description_of(function: Callable[..., Any], weights: Sequence[int] = ()) -> str:
    """Return the description of a job that runs a function over tasks.

    The description says what the function does, or gives its name if that is unknown. If the tasks' weights are bytes,
    the description also gives their sum.
    """
    place, name = next(
        (part for part in _within(function) if part[0] in _OF_FUNCTIONS),
        list(_within(function))[-1],
    )
    words = _OF_FUNCTIONS.get(place) or f"reput: {name.strip('_').replace('_', ' ')}"
    if place not in _WEIGHED_BY_BYTES or not weights:
        return words
    return f"{words} ({sum(weights) / (1 << 20):,.1f} MiB in {counted(len(weights), 'range')})"


def _within(function: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """Yield the name of a function with its module, and the name without it.

    For a `partial`, yield both names of each function in it instead.
    """
    if isinstance(function, partial):
        for each in (function.func, *filter(callable, function.args)):
            yield from _within(each)
    else:
        name = getattr(function, "__qualname__", type(function).__qualname__)
        yield f"{getattr(function, '__module__', '')}.{name}", name


@contextmanager
def described(sc: SparkContext, text: str) -> Iterator[None]:
    """Give a description to the jobs that the `with` block starts in this thread."""
    before = sc.getLocalProperty(_PROPERTY)
    sc.setLocalProperty(_PROPERTY, text)
    try:
        yield
    finally:
        sc.setLocalProperty(_PROPERTY, before)  # type: ignore[arg-type]
