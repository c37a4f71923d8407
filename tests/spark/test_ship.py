import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from reput.spark.errors import why_unfit
from reput.spark.ship import ship_code
from tests.spark.standalone import StandaloneCluster, run_python
from tests.waiting import wait_for

# Three sessions on one cluster: executors with reput installed; with its dependencies only; without either.
DRIVER = """
import json, os, sys
from reput.errors import SparkJobError
from reput.spark.session import create_session
from reput.spark.ship import ship_code

master, bare_python, dependencies = sys.argv[1:]

def has_reput(_):
    import importlib.util
    return importlib.util.find_spec("reput") is not None

def crc(_):
    import numpy as np
    import reput
    from reput.kernels.checksum import body_crcs
    data = np.frombuffer(bytearray(b"123456789"), np.uint8)
    result = np.zeros(1, np.int32)
    body_crcs(data, np.zeros(1, np.int64), np.array([9]), result)
    return reput.__file__, int(result[0]), bool(body_crcs.stats.cache_hits)

def run(sc, task):
    return sc.parallelize(range(4), 4).map(task).collect()

crc(0)  # compiles the kernel here, for all that follow
spark = create_session(master)
installed = {"shipped": ship_code(spark.sparkContext), "crcs": run(spark.sparkContext, crc)}
spark.stop()

os.environ["PYSPARK_PYTHON"] = bare_python
spark = create_session(master, conf={"spark.executorEnv.PYTHONPATH": dependencies})
bare = {"before": run(spark.sparkContext, has_reput)}
bare["shipped"] = ship_code(spark.sparkContext)
bare["crcs"] = run(spark.sparkContext, crc)
bare["shipped_again"] = ship_code(spark.sparkContext)
spark.stop()

spark = create_session(master)
try:
    ship_code(spark.sparkContext)
except SparkJobError as error:
    refused = str(error)
spark.stop()
print(json.dumps({"installed": installed, "bare": bare, "refused": refused}))
"""

# Tasks wait until the test has killed a worker. Spark repeats the tasks of this worker on the other one.
KILLED_DRIVER = """
import sys
from pathlib import Path
from reput.spark.session import create_session

spark = create_session(sys.argv[1])
folder = Path(sys.argv[2])

def task(number):
    import time
    (folder / f"started-{number}").touch()
    while not (folder / "killed").exists():
        time.sleep(0.05)
    return number

print(spark.sparkContext.parallelize(range(8), 8).map(task).sum())
"""


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11,",
            "the executors run Python 3.12, the driver 3.",
        ),
        ('Cannot run program "python3.11": error=2', "an executor cannot start python3.11: "),
        (
            "ModuleNotFoundError: No module named 'reput.base.tasks'",
            "an executor lacks reput.base.tasks: ",
        ),
        (
            "ImportError: cannot import name 'retried' from 'reput.base.tasks' (/opt/reput/tasks.py)",
            "an executor has another version of reput, without retried: ",
        ),
    ],
)
def test_what_executors_lack_is_told_with_its_remedy(said: str, told: str) -> None:
    error = why_unfit(RuntimeError(f"Job aborted\n  {said}\n  at org.apache.spark.Task"))
    assert str(error).startswith(told)
    assert "PYSPARK_PYTHON" in str(error)
    assert "\n" not in str(error)


def test_other_failures_are_not_blamed_on_executors() -> None:
    assert why_unfit(RuntimeError("No module named 'mine'")) is None


def test_nothing_is_shipped_to_local_executors(spark: SparkSession) -> None:
    assert ship_code(spark.sparkContext) is False


@pytest.mark.slow  # quick runs have a rebuild on executors without dependencies
def test_executors_get_the_code_that_they_lack_with_its_compiled_kernels(
    standalone_cluster: StandaloneCluster, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    python = str(bare / "bin" / "python")
    # Python ignores .pth files in folders of PYTHONPATH, so an editable install is not found there.
    dependencies = sysconfig.get_path("purelib")
    run = run_python(DRIVER, standalone_cluster.url, python, dependencies)
    assert run.stderr == ""
    result = json.loads(run.stdout)
    crc = 0xCBF43926 & 0x7FFFFFFF

    assert result["installed"]["shipped"] is False
    assert {value for _, value, _ in result["installed"]["crcs"]} == {crc}

    assert result["bare"]["before"] == [False] * 4
    assert result["bare"]["shipped"] is True
    assert result["bare"]["shipped_again"] is False
    for file, value, was_compiled in result["bare"]["crcs"]:
        assert Path(file).is_relative_to(tmp_path), "not the executor's own folder"
        assert value == crc
        assert was_compiled

    assert "lack numba, numpy" in result["refused"]


@pytest.mark.slow
def test_a_job_survives_a_worker_killed_in_mid_run(
    standalone_cluster: StandaloneCluster, tmp_path: Path
) -> None:
    program = [sys.executable, "-c", KILLED_DRIVER, standalone_cluster.url, str(tmp_path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as driver:
        wait_for(lambda: len(list(tmp_path.glob("started-*"))) >= 2, driver)
        standalone_cluster.kill_worker(0)
        (tmp_path / "killed").touch()
        output, _ = driver.communicate(timeout=600)
    assert output == b"28\n"


OTHER_DRIVER = """
import os, sys
from reput.spark.runner import SparkRunner
from reput.spark.session import create_session
from reput.spark.ship import ship_code

master, bare_python, path = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = bare_python
spark = create_session(master, conf={"spark.executorEnv.PYTHONPATH": path})
print(ship_code(spark.sparkContext), SparkRunner(spark).run(abs, [-5], [1], lambda done, total: None))
"""


@pytest.mark.slow
def test_executors_with_another_version_of_reput_get_this_one(
    standalone_cluster: StandaloneCluster, tmp_path: Path
) -> None:
    bare, old = tmp_path / "bare", tmp_path / "old"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    (old / "reput").mkdir(parents=True)
    (old / "reput" / "__init__.py").write_text('__version__ = "0.1.0"\n')
    path = f"{old}:{sysconfig.get_path('purelib')}"
    run = run_python(OTHER_DRIVER, standalone_cluster.url, str(bare / "bin" / "python"), path)
    assert run.stdout == "True [5]\n", run.stderr
