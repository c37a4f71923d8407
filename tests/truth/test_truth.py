"""Answers that say that they are complete have every message that a store was built from, whatever is damaged."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import reput.spark
from tests.truth.harness import Harness, Result
from tests.truth.sampling import SAMPLE, is_sampled, run_many

# `make test` runs a fixed sample; `make test-truth` sets the number of scenes.
_SCENES, _FIRST = 800, 10_000
# Scenes whose questions are asked on Spark. Each takes about ten seconds.
_ON_SPARK = range(200, 206)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Harness:
    return Harness(tmp_path_factory.mktemp("truth"))


@pytest.fixture(scope="module")
def sample(harness: Harness) -> Result:
    every = Result()
    for seed in SAMPLE:
        every.add(harness.run(seed, partial(is_sampled, seed)))
    return every


def test_no_answer_of_a_sample_is_wrong(sample: Result) -> None:
    assert not sample.violations, "\n".join(map(str, sample.violations[:20]))


def test_the_sample_has_complete_answers_and_incomplete_ones(sample: Result) -> None:
    assert sample.combinations >= 290
    assert sample.answers / 3 < sample.complete < sample.answers


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_answer_on_spark_is_wrong(spark: SparkSession, tmp_path: Path) -> None:
    reput.spark.register(spark)
    harness, found = Harness(tmp_path, spark=spark), Result()
    for seed in _ON_SPARK:
        found.add(harness.run(seed, lambda path: path.name.startswith("spark")))
    assert found.combinations >= 3 * len(_ON_SPARK)
    assert not found.violations, "\n".join(map(str, found.violations[:20]))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_no_answer_of_twenty_thousand_combinations_is_wrong(tmp_path: Path) -> None:
    found = run_many(tmp_path, range(_FIRST, _FIRST + _SCENES))
    print(found.summary())
    assert found.combinations >= 20_000
    assert not found.violations, "\n".join(map(str, found.violations[:20]))
