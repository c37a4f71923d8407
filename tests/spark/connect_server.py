"""A real Spark Connect server on the loopback interface, and drivers that connect to it."""

import os
import re
import signal
import subprocess
from pathlib import Path

from reput.spark.java import find_java_home
from reput.spark.local_session import spark_home
from tests.waiting import wait_for

_SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.warehouse.dir": "warehouse",
}


class ConnectServer:
    """A Connect server with a local master. `environment` has environment variables for its Python workers."""

    def __init__(self, folder: Path, master: str = "local[2]", **environment: str) -> None:
        self._log = folder / "connect-server.log"
        home = spark_home()
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    home / "bin" / "spark-submit",
                    *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
                    *("--master", master, "--driver-memory", "1g"),
                    *(part for pair in _SETTINGS.items() for part in ("--conf", "=".join(pair))),
                    "spark-internal",
                ],
                env=os.environ
                | {
                    "JAVA_HOME": str(find_java_home()),
                    "SPARK_HOME": str(home),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_CONNECT_MODE": "0",
                }
                | environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self.port = self._wait()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        """Return the address for `SparkSession.builder.remote`."""
        return f"sc://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """End the server and its Python workers."""
        try:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(timeout=60)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()

    def _wait(self) -> int:
        """Wait until the server has started; return the port that it has chosen."""

        def started() -> re.Match[str] | None:
            text = self._log.read_text(errors="replace")
            assert self._process.poll() is None, f"no Connect server:\n{text}"
            return re.search(r"Spark Connect server started at: .*:(\d+)\n", text)

        return int(wait_for(started)[1])
