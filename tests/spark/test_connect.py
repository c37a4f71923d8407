"""Jobs of reput in a session of Spark Connect whose server has no reput."""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.errors import PySparkException

from reput.errors import SparkJobError, StoreAccessError
from reput.spark.connect import ConnectJob
from tests.golden.stores import GoldenStore
from tests.rebuild.rebuilding import assert_golden
from tests.spark.connect_server import ConnectServer
from tests.spark.standalone import run_python

Golden = Callable[[str], GoldenStore]

CLIENT = Path(__file__).parents[2] / "build" / "connect"
"""What PySpark's client needs, as `make test-connect` installs it."""

DRIVER = """
import json, sys
url, client, store, config, folder = sys.argv[1:]
sys.path.append(client)
from pyspark.sql.connect.session import SparkSession
import reput, reput.spark
from reput.errors import ReputError
from reput.spark.connect import ship

spark = SparkSession.builder.remote(url).getOrCreate()
result = {"shipped": ship(spark)}
reput.spark.register(spark)
result["shipped_again"] = ship(spark)

def where(batches):
    import reput, pyarrow as pa
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"path": [reput.__file__]})

result["code"] = spark.range(1).mapInArrow(where, "path string").collect()[0].path
messages = spark.read.format("rocketmq").load(store)
result["rows"] = sorted(row.physical_offset for row in messages.select("physical_offset").collect())
counted = spark.sql(f"SELECT count(*) FROM rocketmq('{store}', columns => 'topic')")
result["counted"] = counted.collect()[0][0]
keys = [tuple(key) for key in json.load(sys.stdin)]
seen = []
for asked in (keys, spark.createDataFrame(keys, "topic string, key string")):
    found = reput.spark.lookup(spark, store, asked, columns="physical_offset")
    rows = found.where("physical_offset is not null").collect()
    seen.append(sorted([row.topic, row.key, row.physical_offset] for row in rows))
    result["complete"] = reput.spark.coverage_of(found).collect()[0].is_complete
result["found"] = seen
table = reput.look_up(store, keys, runner=spark, columns="physical_offset").read_all()
result["looked_up"] = sorted(offset for offset in table["physical_offset"].to_pylist() if offset is not None)
progress = []
exported = reput.spark.export(
    spark, store, f"{folder}/table", progress=lambda *seen: progress.append(seen[-2])
)
result["exported"] = exported.rows
result["progress"] = max(progress) > 0
settings = reput.StoreConfig.from_broker_config(config)
rebuilt = reput.rebuild(store, output=f"{folder}/indexes", config=settings, runner=spark)
result["rebuilt"] = rebuilt.messages
stream = (
    spark.readStream.format("rocketmq").option("startingOffsets", "earliest").load(store)
    .writeStream.format("memory").queryName("messages").trigger(availableNow=True).start()
)
stream.awaitTermination()
result["streamed"] = spark.table("messages").count()
try:
    reput.spark.export(spark, f"{folder}/no-store", f"{folder}/other")
except ReputError as error:
    result["refused"] = str(error)
spark.stop()
print(json.dumps(result))
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ConnectServer]:
    """A server whose Python has reput's dependencies, but not reput."""
    if not (CLIENT / "grpc").is_dir():
        if os.environ.get("REPUT_CONNECT") == "required":
            pytest.fail(f"{CLIENT} is not there: `make test-connect` installs it")
        pytest.skip("Spark Connect's client is not installed: `make test-connect` does that")
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    running = ConnectServer(
        tmp_path, PYSPARK_PYTHON=str(bare / "bin" / "python"),
        PYTHONPATH=sysconfig.get_path("purelib"),
    )  # fmt: skip
    yield running
    running.stop()


@pytest.mark.slow
def test_everything_runs_on_a_server_without_reput(
    server: ConnectServer, golden: Golden, tmp_path: Path
) -> None:
    store = golden("basic")
    keys = list(dict.fromkeys((query.topic, query.key) for query in store.queries))[:50]
    config = store.root / "config.properties"
    ran = run_python(
        DRIVER, server.url, str(CLIENT), str(store.path), str(config), str(tmp_path),
        text=json.dumps(keys), timeout_s=800,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    offsets = sorted(message.physical_offset for message in store.messages)
    assert (result["shipped"], result["shipped_again"]) == (True, False)
    assert Path(result["code"]).parent.name == "reput"
    assert not Path(result["code"]).is_relative_to(Path(__file__).parents[2])
    assert result["rows"] == offsets
    by_list, by_frame = result["found"]
    assert by_list == by_frame
    assert by_list
    assert result["looked_up"] == sorted(offset for *_, offset in by_list)
    assert result["complete"] is True
    for job in ("counted", "exported", "rebuilt", "streamed"):
        assert result[job] == len(offsets), job
    assert result["progress"]
    table = ds.dataset(tmp_path / "table", partitioning="hive").to_table(["physical_offset"])
    assert sorted(table.column(0).to_pylist()) == offsets
    assert_golden(tmp_path / "indexes", store)
    assert "no-store" in result["refused"]
    assert "\n" not in result["refused"]


class FakeSession:
    """The part of a Connect session that a job uses."""

    def __init__(self) -> None:
        self.handlers: list[Callable[..., None]] = []
        self.tags: list[str] = []
        self.interrupted: list[str] = []
        self.addTag = self.tags.append
        self.registerProgressHandler = self.handlers.append
        self.removeProgressHandler = self.handlers.remove
        self.interruptTag = self.interrupted.append


class Rows:
    def __init__(self, collect: Callable[[], Any]) -> None:
        self.collect = collect


def test_a_job_knows_how_many_of_its_tasks_have_ended_and_can_be_cancelled() -> None:
    session = FakeSession()

    def collect() -> list[int]:
        stages = [SimpleNamespace(num_completed_tasks=count) for count in (2, 3)]
        session.handlers[0](stages, inflight_tasks=1, operation_id="1", done=False)
        return [1]

    job = ConnectJob(session, Rows(collect))
    job.done.wait()
    assert job.results() == [1]
    assert job.finished_tasks() == 5
    assert not session.handlers
    job.cancel()
    assert session.interrupted == session.tags


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        ("Traceback\n  reput.errors.StoreAccessError: /a: gone", StoreAccessError, "/a: gone"),
        ("[PYTHON] ValueError: what", SparkJobError, "Spark job failed: "),
        ("No module named 'numba'", SparkJobError, "an executor lacks numba"),
    ],
)
def test_a_job_that_fails_says_why_in_one_line(said: str, kind: type[Exception], told: str) -> None:
    def collect() -> None:
        raise PySparkException(said)

    job = ConnectJob(FakeSession(), Rows(collect))
    job.done.wait()
    with pytest.raises(kind, match=told) as caught:
        job.results()
    assert "\n" not in str(caught.value)
