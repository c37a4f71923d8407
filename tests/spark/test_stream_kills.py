"""The stream into files: each message once, with any process killed, over a store that is being written."""

import json
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.standalone import StandaloneCluster
from tests.tables.reading import read
from tests.waiting import wait_for

WRITER = """
import sys, time
from pathlib import Path
import reput
from reput.base.config import StoreConfig
store, stop = sys.argv[1:]
config = StoreConfig(commit_log_file_bytes=1 << 16)
number = 0
with reput.open_store(store, mode="rw", config=config) as living:
    print("ready", flush=True)
    while not Path(stop).exists():
        living.put_many([reput.Message("t", b"body %d" % (number + n), f"k{n}") for n in range(7)])
        number += 7
        time.sleep(0.03)
print(number)
"""

DRIVER = """
import os, sys
from reput.spark import register
from reput.spark.session import create_session
master, store, folder, mode, bare, dependencies = sys.argv[1:]
if bare:
    os.environ["PYSPARK_PYTHON"] = bare
spark = create_session(master, conf={"spark.executorEnv.PYTHONPATH": dependencies} if bare else None)
register(spark)
stream = spark.readStream.format("rocketmq").schema("physical_offset long, body binary")
stream = stream.options(startingOffsets="earliest")
if mode == "follow":
    stream = stream.options(maxOffsetsPerTrigger="150")
writer = stream.load(store).writeStream.format("parquet")
writer = writer.option("checkpointLocation", folder + "/checkpoint")
trigger = dict(availableNow=True) if mode == "finish" else dict(processingTime="0 seconds")
query = writer.trigger(**trigger).start(folder + "/table")
query.awaitTermination()
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[Path, Callable[[], int]]]:
    """Start a process that writes a store. Yield the store, and a function that stops the process.

    The function returns the number of messages that the process wrote.
    """
    store, stop = tmp_path / "store", tmp_path / "stop"
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(store), str(stop)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    def finish() -> int:
        stop.touch()
        return int(process.communicate(timeout=600)[0])

    yield store, finish
    process.kill()
    process.wait()


def start_driver(
    master: str, store: Path, folder: Path, mode: str = "follow", bare: str = ""
) -> "subprocess.Popen[str]":
    dependencies = sysconfig.get_path("purelib")
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, master, str(store), str(folder), mode, bare, dependencies],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for_batches(folder: Path, count: int, driver: "subprocess.Popen[str]") -> None:
    commits = folder / "checkpoint" / "commits"
    wait_for(
        lambda: commits.exists() and sum(p.name.isdigit() for p in commits.iterdir()) >= count,
        driver,
    )


def assert_each_once(spark: SparkSession, folder: Path, store: Path, messages: int) -> None:
    table = spark.read.parquet(str(folder / "table"))
    found = sorted((row["physical_offset"], bytes(row["body"])) for row in table.collect())
    wanted = read(store, ["physical_offset", "body"]).to_pylist()
    assert len(wanted) == messages
    assert found == [(row["physical_offset"], row["body"]) for row in wanted]


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, 4])
def test_each_message_comes_once_though_the_driver_is_killed(
    spark: SparkSession, broker: tuple[Path, Callable[[], int]], tmp_path: Path, kills: int
) -> None:
    store, stop = broker
    folder = tmp_path / "sink"
    for number in range(kills):
        driver = start_driver("local[2]", store, folder)
        wait_for_batches(folder, 3 * (number + 1), driver)
        driver.kill()
        driver.communicate()
    messages = stop()
    driver = start_driver("local[2]", store, folder, "finish")
    assert driver.wait() == 0, driver.communicate()[1]
    driver.communicate()
    offsets = [
        path for path in (folder / "checkpoint" / "offsets").iterdir() if path.name.isdigit()
    ]
    assert json.loads(offsets[0].read_text().splitlines()[-1]).keys() == {str(store)}
    assert_each_once(spark, folder, store, messages)


@pytest.mark.slow
def test_each_message_comes_once_though_a_worker_is_killed(
    spark: SparkSession,
    broker: tuple[Path, Callable[[], int]],
    standalone_cluster: StandaloneCluster,
    tmp_path: Path,
) -> None:
    """The executors do not have reput; it is sent to them."""
    store, stop = broker
    folder, bare = tmp_path / "sink", tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    python = str(bare / "bin" / "python")
    driver = start_driver(standalone_cluster.url, store, folder, bare=python)
    wait_for_batches(folder, 3, driver)
    standalone_cluster.kill_worker(0)
    wait_for_batches(folder, 6, driver)
    driver.kill()
    driver.communicate()
    messages = stop()
    driver = start_driver(standalone_cluster.url, store, folder, "finish", python)
    assert driver.wait() == 0, driver.communicate()[1]
    driver.communicate()
    assert_each_once(spark, folder, store, messages)
