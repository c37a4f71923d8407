"""The rebuild on real Spark: local, and on a cluster that loses a worker in the middle."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from reput.errors import SparkJobError, StoreChangedError
from reput.spark import rebuild
from reput.spark.runner import SparkRunner
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.rebuild.rebuilding import assert_golden, golden_config
from tests.slow import slow_from
from tests.spark.standalone import StandaloneCluster, run_python
from tests.waiting import wait_for

Golden = Callable[[str], GoldenStore]

# Every third task of the first job waits until a worker is gone. The rest of the run is normal.
KILLED_DRIVER = """
import json, sys
from functools import partial
from pathlib import Path
from reput.base.config import StoreConfig
from reput.spark.runner import SparkRunner
from reput.spark.session import create_session
from reput.spark.ship import ship_code
from reput.engine.rebuild.driver import rebuild_store

master, store, config, output, signals = sys.argv[1:]

def slowly(function, task):
    import time
    folder = Path(signals)
    if task.split.number % 3 == 0:
        (folder / f"started-{task.split.number}").touch()
        while not (folder / "killed").exists():
            time.sleep(0.02)
    return function(task)

class Slow(SparkRunner):
    def run(self, function, tasks, weights, progress):
        if tasks and hasattr(tasks[0], "split"):
            function = partial(slowly, function)
        return super().run(function, tasks, weights, progress)

spark = create_session(master)
ship_code(spark.sparkContext)
report = rebuild_store(
    Slow(spark), store, config=StoreConfig.from_broker_config(config), output=output, split_size=600_000
)
print(json.dumps(report.as_dict()))
"""


@pytest.mark.parametrize(
    ("name", "split_size"),
    slow_from(
        1,
        [
            ("orders", None),
            ("orders", 50_000),
            ("basic", None),
            ("timed", 20_000),
            ("tricky", None),
            ("tricky", 2_000),
            ("extremes", 300),
            ("lmq", 5_000),
            ("git", 100_000),
            ("defaults", None),
        ],
    ),
)
def test_a_rebuild_on_local_spark_has_the_brokers_own_bytes(
    spark: SparkSession, golden: Golden, tmp_path: Path, name: str, split_size: int | None
) -> None:
    store = golden(name)
    seen: dict[str, tuple[int, int]] = {}

    def progress(phase: str, done: int, total: int) -> None:
        assert 0 <= done <= total
        seen[phase] = done, total

    report = rebuild(
        spark,
        store.path,
        config=golden_config(store),
        output=tmp_path,
        split_size=split_size,
        progress=progress,
    )
    assert_golden(tmp_path, store)
    assert report.messages == len(store.messages)
    assert report.damage == []
    assert {"scan", "write"} <= seen.keys()
    assert all(done == total for done, total in seen.values())


@pytest.mark.slow
def test_a_rebuild_in_place_without_settings_takes_the_sizes_of_the_files_it_replaces(
    spark: SparkSession, golden: Golden, tmp_path: Path
) -> None:
    store = golden("basic")
    copy = tmp_path / "store"
    copy_store(store.path, copy)
    report = rebuild(spark, copy)
    expected = golden_config(store)
    assert report.config.queue_entries == expected.queue_entries
    assert report.config.hash_slots == expected.hash_slots
    assert report.config.index_items == expected.index_items
    assert_golden(copy, store)


@pytest.mark.spark_min
def test_an_error_of_the_store_reaches_the_driver_as_itself_with_one_line(
    spark: SparkSession, golden: Golden, tmp_path: Path
) -> None:
    runner = SparkRunner(spark)
    with pytest.raises(StoreChangedError) as caught:
        runner.run(_refuse, [1, 2, 3], [1, 1, 1], lambda done, total: None)
    assert str(caught.value) == "commitlog/0: ends at 7"


def _refuse(task: int) -> int:
    if task == 2:
        raise StoreChangedError("commitlog/0: ends at 7")
    return task


@pytest.mark.slow
def test_a_worker_that_dies_ends_a_local_job_with_one_line(spark: SparkSession) -> None:
    runner = SparkRunner(spark)
    with pytest.raises(SparkJobError) as caught:
        runner.run(_die, [1], [1], lambda done, total: None)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("Spark job failed: ")
    # the Spark session still works
    assert runner.run(abs, [-5], [1], lambda done, total: None) == [5]


def _die(task: int) -> int:
    import os

    os._exit(7)


@pytest.mark.slow
def test_a_task_that_is_tried_again_changes_no_byte(golden: Golden, tmp_path: Path) -> None:
    store = golden("lmq")
    result = run_python(
        RETRIED_DRIVER,
        *(str(store.path), str(store.root / "config.properties")),
        *(str(tmp_path / "out"), str(tmp_path)),
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout.split()[-1]) > 4
    assert_golden(tmp_path / "out", store)


# Each task fails once after its work is done, as if its answer were lost.
RETRIED_DRIVER = """
import sys
from functools import partial
from pathlib import Path
from reput.base.config import StoreConfig
from reput.spark.runner import SparkRunner
from reput.spark.session import create_session
from reput.engine.rebuild.driver import rebuild_store

store, config, output, folder = sys.argv[1:]

def lose_first_answer(function, task):
    import hashlib, pickle
    mark = Path(folder) / ("lost-" + hashlib.sha256(pickle.dumps(task)).hexdigest()[:20])
    result = function(task)
    if not mark.exists():
        mark.touch()
        raise RuntimeError("lost")
    return result

class Losing(SparkRunner):
    def run(self, function, tasks, weights, progress):
        return super().run(partial(lose_first_answer, function), tasks, weights, progress)

spark = create_session("local[2,60]")
rebuild_store(
    Losing(spark), store, config=StoreConfig.from_broker_config(config), output=output, split_size=200_000
)
print(len(list(Path(folder).glob("lost-*"))))
"""


@pytest.mark.slow  # test_rebuild_shipped also loses a worker, and is not slow
def test_a_cluster_that_loses_a_worker_in_the_middle_writes_the_same_bytes(
    standalone_cluster: StandaloneCluster, golden: Golden, tmp_path: Path
) -> None:
    store = golden("orders")
    output, signals = tmp_path / "out", tmp_path / "signals"
    signals.mkdir()
    driver = subprocess.Popen(
        [
            sys.executable,
            *("-c", KILLED_DRIVER, standalone_cluster.url, str(store.path)),
            *(str(store.root / "config.properties"), str(output), str(signals)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _wait_until(lambda: len(list(signals.glob("started-*"))) >= 2, driver)
        standalone_cluster.kill_worker(0)
        (signals / "killed").touch()
        printed, errors = driver.communicate(timeout=180)
    finally:
        driver.kill()
    assert driver.returncode == 0, errors
    assert json.loads(printed.splitlines()[-1])["messages"] == len(store.messages)
    assert_golden(output, store)


def _wait_until(ready: Callable[[], bool], driver: "subprocess.Popen[str]") -> None:
    wait_for(ready, driver)


@pytest.mark.slow
def test_one_core_and_two_write_the_same_bytes(golden: Golden, tmp_path: Path) -> None:
    store = golden("timed")
    for cores in (1, 2):
        output = tmp_path / str(cores)
        result = run_python(
            ONE_REBUILD,
            *(
                f"local[{cores}]",
                str(store.path),
                str(store.root / "config.properties"),
                str(output),
            ),
        )
        assert result.returncode == 0, result.stderr
        assert_golden(output, store)
    names = [sorted(path.name for path in (tmp_path / n / "index").iterdir()) for n in ("1", "2")]
    assert names[0] == names[1]


ONE_REBUILD = """
import sys
from reput.base.config import StoreConfig
from reput.spark import rebuild
from reput.spark.session import create_session

master, store, config, output = sys.argv[1:]
with create_session(master) as spark:
    rebuild(spark, store, config=StoreConfig.from_broker_config(config), output=output)
"""
