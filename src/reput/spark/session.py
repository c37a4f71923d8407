"""Create Spark sessions for reput: quiet, quick to start, on any installed Java."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from reput.engine.tables import start_compiling
from reput.errors import SparkJobError, UsageError
from reput.spark.errors import log
from reput.spark.java import find_java_home
from reput.spark.local_session import archive_options, socket_settings, spark_home

_MASTER = re.compile(r"local(-cluster)?(\[.+\])?$|spark://.+:\d|k8s://|yarn$")
_LOOPBACK = "127.0.0.1"
DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
# Spark's JVM only plans and moves data, while the work is done in Python. Without its optimizing compiler, the JVM
# starts a quarter faster and uses half the processor time. Performance counters for jstat would wake it up 20 times per
# second.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m -XX:-UsePerfData"
# Spark's SQL sets this variable for its workers. If plain jobs set it as well, both kinds of jobs share workers.
SHARED_WORKERS = "SPARK_SIMPLIFIED_TRACEBACK"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


def is_local(master: str) -> bool:
    """Return whether the executors of this master are processes on this machine."""
    return master.split("[", 1)[0] in ("local", "local-cluster")


def is_connect(spark: object) -> bool:
    """Return whether a session uses Spark Connect, which has neither a JVM nor a SparkContext in this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def create_session(
    master: str = "local[*]",
    app_name: str = "reput",
    conf: Mapping[str, str] | None = None,
    *,
    compiles: bool = True,
) -> SparkSession:
    """Start Spark, or return the session that already runs in this process.

    `REPUT_SPARK_LOG_LEVEL` sets the level of Spark's log on stderr. By default, only errors are logged, except errors
    of tasks, because the driver raises them. `REPUT_SPARK_TRACE` sets the number of lines of a stack trace (default 1),
    or `full`.

    Args:
        master: Any Spark master. Local masters listen only on the loopback interface.
        app_name: The name that Spark's own pages show.
        conf: Spark settings, which override the settings made here. By default, the JVM gets options with which it
            starts quickly, but runs slower later. If the JVM itself must do heavy work, replace these options: pass
            `spark.driver.extraJavaOptions`, which may be empty.
        compiles: Whether to start processes that compile the kernels for reading tables, if the kernels are not cached.

    Raises:
        UsageError: The kind of the master is unknown.
        JavaNotFoundError: No Java was found on which Spark runs.
        SparkJobError: Spark did not start. The text has the reason.
    """
    if not _MASTER.match(master):
        raise UsageError(
            f"master must be local[N], spark://HOST:PORT, yarn or k8s://URL, not {master}",
            arguments=["master"],
        )
    if compiles and is_local(master):
        begin_compiling()  # Spark takes seconds to start. Compile meanwhile.
    threading.Thread(target=_import_ahead, daemon=True).start()
    java_home, home = find_java_home(), spark_home()
    settings = _settings(master, dict(conf or {}), archive_options(java_home, home))
    with _environment(_launch_environment(master, java_home, home)):
        try:
            return (
                SparkSession.builder.master(master)
                .appName(app_name)
                .config(map=dict(settings))
                .getOrCreate()
            )
        except (PySparkException, Py4JError, OSError) as error:
            reason = _first_line(error)
            raise SparkJobError(f"Spark did not start on {master}: {reason}") from error


def begin_compiling() -> None:
    """Compile, in other processes, the kernels that read tables. Print a note. Do nothing if they are cached."""
    if start_compiling():
        log("compiling kernels in the background, once on this machine; the first rows wait for it")


def _import_ahead() -> None:
    """Import modules that pyspark needs later, such as pandas, while its JVM starts. They take a third of a second."""
    with suppress(ImportError):
        import pyspark.testing.utils  # noqa: F401


@contextmanager
def command_session(master: str) -> Iterator[SparkSession]:
    """Yield a session for one command in the main thread.

    The session ends with the command, or immediately after Ctrl-C. But if a session was already running, it is used and
    stays open.

    pyspark's own handler of Ctrl-C asks the JVM to cancel its jobs. If Ctrl-C arrives during another call to the JVM,
    pyspark's handler fails and prints a traceback. So this function installs a handler that does not call the JVM. The
    jobs are cancelled nevertheless, because the session ends. Errors and log lines of interrupted calls are suppressed.
    """
    interrupted, is_new = False, SparkSession.getActiveSession() is None

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        logging.disable()
        raise KeyboardInterrupt

    try:
        # Each command compiles the kernels that it needs, so the session compiles none.
        spark = create_session(master, compiles=False)
        try:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, interrupt)
            yield spark
        finally:
            if is_new:
                spark.stop()
    except Exception:
        if interrupted:
            raise KeyboardInterrupt from None
        raise


def _settings(master: str, conf: dict[str, str], archive: str) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        f"spark.executorEnv.{SHARED_WORKERS}": "1",
    }
    if is_local(master):
        settings["spark.driver.bindAddress"] = _LOOPBACK
        settings["spark.driver.host"] = _LOOPBACK
        if SparkSession.getActiveSession() is None:
            settings |= socket_settings()
    # If an option occurs twice, Java uses the last one, so the caller's options win.
    options = f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
    quick_start = f"{QUICK_START} {archive}" if is_local(master) else QUICK_START
    conf[DRIVER_OPTIONS] = f"{options} {conf.get(DRIVER_OPTIONS, quick_start)}"
    return settings | conf


def _launch_environment(master: str, java_home: Path, home: Path) -> dict[str, str]:
    """Return the environment that `spark-submit` needs when pyspark starts it."""
    variables = {"JAVA_HOME": str(java_home), "PYSPARK_DRIVER_PYTHON": sys.executable}
    if is_local(master):
        # Let workers run this Python. Use the jars of pyspark, even if another Spark is installed. Use the loopback
        # address, in case the host name does not resolve.
        variables["PYSPARK_PYTHON"] = sys.executable
        variables["SPARK_HOME"] = str(home)
        variables["SPARK_LOCAL_IP"] = _LOOPBACK
    elif "PYSPARK_PYTHON" not in os.environ:
        variables["PYSPARK_PYTHON"] = sys.executable
    return variables


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables during the `with` block: pyspark reads these settings only from the environment."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _first_line(error: Exception) -> str:
    java_error = getattr(error, "java_exception", None)
    text = str(java_error.getMessage()) if java_error is not None else str(error)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__
