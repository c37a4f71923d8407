"""The descriptions of reput's jobs on Spark's pages, and the help() of reput.spark."""

import importlib
import pydoc
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from pyspark.sql import SparkSession

import reput.spark
from reput.base import SerialRunner
from reput.engine.rebuild.scan_split import run_scan
from reput.engine.rebuild.staging import Staging
from reput.io import AnchoredRunner
from reput.spark import descriptions
from reput.spark.descriptions import described, description_of
from reput.spark.runner import SparkRunner
from reput.wings.lakes.task import run_export
from tests.golden.stores import GoldenLibrary


def test_every_function_that_has_a_description_is_there() -> None:
    for place, words in descriptions._OF_FUNCTIONS.items():
        module, _, name = place.rpartition(".")
        function = getattr(importlib.import_module(module), name)
        assert description_of(partial(partial(function, 1), 2)) == words
    assert description_of(_count_all) == "reput: count all"
    assert set(descriptions._OF_FUNCTIONS) >= descriptions._WEIGHED_BY_BYTES
    assert description_of(partial(run_export, ANY), [3 << 20, 1 << 19]) == (
        "reput export: read the log, write files (3.5 MiB in 2 ranges)"
    )
    assert description_of(_count_all, [1, 2]) == "reput: count all"


def test_a_description_is_that_of_the_work_however_it_is_wrapped() -> None:
    work = partial(run_scan, ANY)
    fenced = Staging(Path("staging"), "fingerprint").fenced(work)
    for function in (
        work,
        AnchoredRunner(SerialRunner()).wrapped(work),
        AnchoredRunner(SerialRunner()).wrapped(fenced),
    ):
        assert description_of(function, [1 << 20]) == (
            "reput rebuild: scan the log (1.0 MiB in 1 range)"
        )
    assert description_of(AnchoredRunner(SerialRunner()).wrapped(_count_all)) == "reput: count all"


def _count_all(task: int) -> int:
    return task


def test_help_shows_what_there_is() -> None:
    text = pydoc.plain(pydoc.render_doc(reput.spark))
    for name in reput.spark.__all__:
        assert f"{name}(" in text
    assert 'spark.read.format("rocketmq").load("/data/store")' in text


class _Tracker:
    """A context that stores its properties."""

    def __init__(self) -> None:
        self.properties: dict[str, Any] = {"spark.job.description": "mine"}

    def getLocalProperty(self, name: str) -> Any:
        return self.properties.get(name)

    def setLocalProperty(self, name: str, value: Any) -> None:
        self.properties[name] = value


def test_a_description_ends_with_its_job() -> None:
    context: Any = _Tracker()
    with described(context, "reput: work"):
        assert context.properties == {"spark.job.description": "reput: work"}
    assert context.properties == {"spark.job.description": "mine"}


@pytest.mark.slow
def test_jobs_say_what_they_do_and_lists_are_keys(
    spark: SparkSession, golden_library: GoldenLibrary
) -> None:
    sc = spark.sparkContext
    assert SparkRunner(spark).run(_count_all, [1, 2], [1, 1], lambda done, total: None) == [1, 2]
    store = golden_library.store("orders").path
    listed = [("orders", "order-100377")]
    for keys in (listed, spark.createDataFrame(listed, "topic string, key string")):
        assert len(reput.spark.lookup(spark, store, keys).collect()) == 2
    said = {
        job.description().get()
        for job in _jobs(sc)
        if job.description().isDefined()
    }  # fmt: skip
    assert {"reput: count all", "reput lookup: stage keys", "reput lookup: read matches"} <= said


def _jobs(sc: Any) -> list[Any]:
    jobs = sc._jsc.sc().statusStore().jobsList(None)
    return [jobs.apply(n) for n in range(jobs.size())]
