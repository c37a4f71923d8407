"""The rebuild on a cluster whose executors have no reput, and that loses a worker while files are written."""

import json
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden.stores import GoldenStore
from tests.rebuild.rebuilding import assert_golden
from tests.spark.standalone import StandaloneCluster
from tests.waiting import wait_for

Golden = Callable[[str], GoldenStore]

# Two write tasks do their work and then wait, as if their answers were in flight, until a worker is gone.
DRIVER = """
import json, os, sys
from functools import partial
from pathlib import Path
from reput.base.config import StoreConfig
from reput.spark.runner import SparkRunner
from reput.spark.session import create_session
from reput.spark.ship import ship_code
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.rebuild.index_layout import IndexFileTask
from reput.engine.rebuild.queue_plan import QueueTask

master, bare_python, dependencies, store, config, output, signals = sys.argv[1:]

def slowly(function, task):
    import time
    result = function(task)
    folder = Path(signals)
    if not (folder / "killed").exists():
        import reput
        (folder / f"written-{os.getpid()}").write_text(reput.__file__)
        while not (folder / "killed").exists():
            time.sleep(0.02)
    return result

class Slow(SparkRunner):
    def run(self, function, tasks, weights, progress):
        if tasks and isinstance(tasks[0], (IndexFileTask, QueueTask)):
            function = partial(slowly, function)
        return super().run(function, tasks, weights, progress)

os.environ["PYSPARK_PYTHON"] = bare_python
spark = create_session(master, conf={"spark.executorEnv.PYTHONPATH": dependencies})
shipped = ship_code(spark.sparkContext)
report = rebuild_store(
    Slow(spark), store, config=StoreConfig.from_broker_config(config), output=output, split_size=100_000
)
print(json.dumps({"shipped": shipped, "messages": report.messages}))
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_files_written_by_a_worker_that_is_lost_are_written_again(
    standalone_cluster: StandaloneCluster, golden: Golden, tmp_path: Path
) -> None:
    store = golden("basic")
    output, signals, bare = tmp_path / "out", tmp_path / "signals", tmp_path / "bare"
    signals.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    arguments = [
        standalone_cluster.url, str(bare / "bin" / "python"), sysconfig.get_path("purelib"),
        str(store.path), str(store.root / "config.properties"), str(output), str(signals),
    ]  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as driver:
        try:
            _wait_for_two(signals, driver)
            standalone_cluster.kill_worker(1)
            (signals / "killed").touch()
            printed, errors = driver.communicate(timeout=180)
        finally:
            driver.kill()
    assert driver.returncode == 0, errors
    assert json.loads(printed) == {"shipped": True, "messages": len(store.messages)}
    for path in signals.glob("written-*"):
        assert Path(path.read_text()).is_relative_to(tmp_path), "not the code that was shipped"
    assert_golden(output, store)


def _wait_for_two(signals: Path, driver: "subprocess.Popen[str]") -> None:
    wait_for(lambda: len(list(signals.glob("written-*"))) >= 2, driver)
