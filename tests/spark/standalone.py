"""A real Spark cluster on the loopback interface: one master and worker processes, each a JVM."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyspark

from reput.spark.java import find_java_home
from tests.waiting import wait_for

_SPARK_HOME = Path(pyspark.__file__).parent


class StandaloneCluster:
    """One master and `workers` workers of one core each, for `create_session(cluster.url)`.

    Only one Spark can run in a process: drive it from a process of its own, with `run_python`.
    """

    def __init__(self, folder: Path, workers: int = 2, within: Sequence[str] = ()) -> None:
        """Start the cluster; `within` is a command that runs each worker."""
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            master = self._start("master", "master.Master", "--host", "127.0.0.1", "--port", "0")
            self.url = self._wait_for(master, r"Starting Spark master at (spark://\S+)")
            logs = [
                self._start(
                    f"worker-{number}",
                    "worker.Worker",
                    *("--host", "127.0.0.1", "--cores", "1", "--memory", "2g"),
                    *("--work-dir", str(folder / f"work-{number}"), self.url),
                    within=within,
                )
                for number in range(workers)
            ]
            for log in logs:
                self._wait_for(log, r"(Successfully registered with master)")
        except BaseException:
            self.stop()
            raise

    @property
    def worker_pids(self) -> list[int]:
        return [process.pid for process in self._processes[1:]]

    def kill_worker(self, number: int) -> None:
        """Kill a worker as a power cut would; its executors end as well."""
        os.kill(self.worker_pids[number], signal.SIGKILL)
        self._processes[1 + number].wait()

    def stop(self) -> None:
        # Workers end first, because they end their executors.
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(timeout=600)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, name: str, main: str, *arguments: str, within: Sequence[str] = ()) -> Path:
        log = self._folder / f"{name}.log"
        environment = os.environ | {
            "JAVA_HOME": str(find_java_home()),
            "SPARK_HOME": str(_SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    *within,
                    str(_SPARK_HOME / "bin" / "spark-class"),
                    f"org.apache.spark.deploy.{main}",
                    *("--webui-port", "0"),
                    *arguments,
                ],
                env=environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        return log

    def _wait_for(self, log: Path, pattern: str) -> str:
        match: re.Match[str] = wait_for(lambda: re.search(pattern, log.read_text(errors="replace")))
        return match[1]


def run_python(
    source: str,
    *arguments: str,
    environment: dict[str, str] | None = None,
    text: str = "",
    timeout_s: float = 240,
) -> subprocess.CompletedProcess[str]:
    """Run a driver program in a new process, with a text as input. Returns its output of both streams."""
    return subprocess.run(
        [sys.executable, "-c", source, *arguments],
        env=os.environ if environment is None else environment,
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
