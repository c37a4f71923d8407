"""What Spark's pages say of reput's jobs, instead of the line of code that began them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from pyspark import SparkContext

_PROPERTY = "spark.job.description"
_OF_FUNCTIONS = {
    "reput.lakes.task.run_export": "reput export: read the log, write files",
    "reput.lakes.merging.run_merge": "reput export: combine small files",
    "reput.lookup.driver._search": "reput lookup: search indexes, scan what they do not cover",
    "reput.lookup.judging.run_judge_task": "reput lookup: prove or spot-check IndexFiles",
    "reput.lookup.match_task.run_match_task": "reput lookup: read matches",
    "reput.lookup.local_files._write_part": "reput lookup: write the answer",
    "reput.pipeline.scan_split.run_scan": "reput rebuild: scan the log",
    "reput.pipeline.driver._write_one": "reput rebuild: write ConsumeQueues and IndexFiles",
}
_WEIGHED_BY_BYTES = {
    "reput.lakes.task.run_export",
    "reput.lakes.merging.run_merge",
    "reput.pipeline.scan_split.run_scan",
}
"""Whose tasks weigh what they read: Spark itself counts no input bytes of Python's."""

STAGE_KEYS = "reput lookup: stage keys"
START_WORKERS = "reput: start workers"
START_SQL = "reput: start Spark's SQL"
ASK_EXECUTORS = "reput: look for reput on executors"


def description_of(function: Callable[..., Any], weights: Sequence[int] = ()) -> str:
    """Of a job that runs a function over tasks of these weights: what it does, on how much, where these are bytes.

    The name of the function where no better words are known.
    """
    while isinstance(function, partial):
        function = function.func
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    place = f"{module}.{name}"
    words = _OF_FUNCTIONS.get(place) or f"reput: {name.strip('_').replace('_', ' ')}"
    if place not in _WEIGHED_BY_BYTES or not weights:
        return words
    return f"{words} ({sum(weights) / (1 << 20):,.1f} MiB in {len(weights):,} ranges)"


@contextmanager
def described(sc: SparkContext, text: str) -> Iterator[None]:
    """Give the jobs that the body starts in this thread a description."""
    before = sc.getLocalProperty(_PROPERTY)
    sc.setLocalProperty(_PROPERTY, text)
    try:
        yield
    finally:
        sc.setLocalProperty(_PROPERTY, before)  # type: ignore[arg-type]
