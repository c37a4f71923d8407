"""A check and a repair on Spark give the same findings in the same order, and the same bytes, as in one process."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from reput.cli.main import DAMAGED
from reput.engine.check.repairing.driver import plan_repair, repair_store
from reput.engine.rebuild.warm_up import warm_up
from reput.spark.runner import prepared_runner
from tests.check.checking import checked
from tests.check.repairing import SMALL, damaged_store, held
from tests.cli.running import reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenLibrary, GoldenStore, TornCase
from tests.rebuild.rebuilding import golden_config

Golden = Callable[[str], GoldenStore]
Torn = Callable[[str], TornCase]


def test_spark_finds_the_same_in_the_same_order(
    spark: SparkSession, golden: Golden, torn: Torn
) -> None:
    runner = prepared_runner(spark, warm_up)
    store = golden("orders")
    assert checked(store.path, golden_config(store), runner=runner) == []
    damaged = torn("name_collision").after
    alone = checked(damaged)
    assert len(alone) > 5
    assert checked(damaged, runner=runner) == alone


@pytest.mark.slow
def test_spark_finds_every_golden_damage_as_one_process_does(
    spark: SparkSession, golden_library: GoldenLibrary, torn: Torn
) -> None:
    runner = prepared_runner(spark, warm_up)
    torn("kill9")
    for name in golden_library.torn_names():
        for state in (torn(name).before, torn(name).after):
            assert checked(state, runner=runner) == checked(state), (name, state)


@pytest.mark.slow
def test_the_command_takes_a_runner(spark: SparkSession, torn: Torn) -> None:
    damaged = torn("name_collision").after
    on_spark = reput("check", damaged, "--format", "jsonl", "--runner", "spark")
    assert on_spark.code == DAMAGED
    assert on_spark.out == reput("check", damaged, "--format", "jsonl").out


@pytest.mark.slow
def test_a_repair_on_spark_writes_the_same_bytes(spark: SparkSession, tmp_path: Path) -> None:
    runner = prepared_runner(spark, warm_up)
    one, other = damaged_store(tmp_path / "a" / "store"), tmp_path / "b" / "store"
    copy_store(one, other)
    options = {"config": SMALL, "truncate_tail": True, "salvage": True}
    repair_store(plan_repair(one, **options))  # type: ignore[arg-type]
    repair_store(plan_repair(other, **options, runner=runner), runner=runner)  # type: ignore[arg-type]
    assert held(one) == held(other)
