"""Spark sessions for reput: quiet, quick to start, on any installed Java."""

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

from reput.errors import SparkJobError, UsageError
from reput.spark.class_archive import archive_options
from reput.spark.java import find_java_home
from reput.spark.log import log
from reput.spark.sockets import socket_settings
from reput.spark.spark_home import spark_home
from reput.table.warm_up import compile_meanwhile

_MASTER = re.compile(r"local(-cluster)?(\[.+\])?$|spark://.+:\d|k8s://|yarn$")
_LOOPBACK = "127.0.0.1"
DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
# Spark's JVM plans and passes on; the work is done in Python. So it need not compile itself to the
# last drop: it starts in a quarter less time and leaves the workers half its processor time. And nobody
# attaches jstat to it: it need not wake up 20 times a second to count for it.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m -XX:-UsePerfData"
# Also set for workers of plain jobs, as Spark's SQL sets it for its own: then both share workers.
SHARED_WORKERS = "SPARK_SIMPLIFIED_TRACEBACK"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


def is_local(master: str) -> bool:
    """Whether the executors of this master are processes of this machine and this Python."""
    return master.split("[", 1)[0] in ("local", "local-cluster")


def is_connect(spark: object) -> bool:
    """Return whether a session is one of Spark Connect, which has neither a JVM nor a SparkContext here."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def create_session(
    master: str = "local[*]",
    app_name: str = "reput",
    conf: Mapping[str, str] | None = None,
    *,
    compiles: bool = True,
) -> SparkSession:
    """Start Spark, or return the session that already runs in this process.

    Args:
        master: any Spark master; the local ones listen on the loopback interface only.
        app_name: the name that Spark's own pages show.
        conf: Spark settings, which override the settings made here. If the JVM itself must do
            heavy work, pass `spark.driver.extraJavaOptions` (it may be empty): then it no longer
            trades top speed for a quick start.
        compiles: whether processes begin to compile the kernels that read a table, if this machine never has.

    Raises:
        UsageError: no such kind of master.
        JavaNotFoundError: no Java that Spark runs on.
        SparkJobError: Spark did not start; says why in one line.

    `REPUT_SPARK_LOG_LEVEL` (default `error`, without what tasks raise, which the driver does too) says how much of
    Spark's log goes to stderr; `REPUT_SPARK_TRACE` (default 1) how many lines of a stack trace, or `full`.
    """
    if not _MASTER.match(master):
        raise UsageError(
            f"master {master}: not local[N], spark://HOST:PORT, yarn or k8s://URL",
            arguments=["master"],
        )
    if compiles and is_local(master):
        begin_compiling()  # beside Spark, which takes seconds to start
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
    """Compile the kernels of a table in processes, unless they are cached, and print a note."""
    if compile_meanwhile():
        log("compiling kernels in the background, once on this machine; the first rows wait for it")


def _import_ahead() -> None:
    """Import the modules, pandas among them, that pyspark needs after its JVM has started: a third of a second."""
    with suppress(ImportError):
        import pyspark.testing.utils  # noqa: F401


@contextmanager
def command_session(master: str) -> Iterator[SparkSession]:
    """Yield a session for one command in the main thread, which Ctrl-C ends at once; an older session stays.

    pyspark's own handler asks the JVM to cancel its jobs, in the midst of another question to the JVM perhaps, which
    prints a traceback; the end of the session cancels them as well. py4j logs each call that this cuts off, and what
    pyspark asks on its way out may fail for it.
    """
    interrupted, is_own = False, SparkSession.getActiveSession() is None

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        logging.disable()
        raise KeyboardInterrupt

    try:
        spark = create_session(master, compiles=False)  # a command compiles what it needs
        try:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, interrupt)
            yield spark
        finally:
            if is_own:
                spark.stop()
    except Exception:
        if interrupted:
            raise KeyboardInterrupt from None
        raise


def _settings(master: str, given: dict[str, str], archive: str) -> dict[str, str]:
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
    # Of an option that is there twice Java takes the last, so the caller's stand.
    options = f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
    quick_start = f"{QUICK_START} {archive}" if is_local(master) else QUICK_START
    given[DRIVER_OPTIONS] = f"{options} {given.get(DRIVER_OPTIONS, quick_start)}"
    return settings | given


def _launch_environment(master: str, java_home: Path, home: Path) -> dict[str, str]:
    """Return the environment that `spark-submit` needs when pyspark starts it."""
    variables = {"JAVA_HOME": str(java_home), "PYSPARK_DRIVER_PYTHON": sys.executable}
    if is_local(master):
        # The workers must be this Python and the jars pyspark's own, even if another Spark is installed;
        # and a host name that does not resolve must not matter.
        variables["PYSPARK_PYTHON"] = sys.executable
        variables["SPARK_HOME"] = str(home)
        variables["SPARK_LOCAL_IP"] = _LOOPBACK
    elif "PYSPARK_PYTHON" not in os.environ:
        variables["PYSPARK_PYTHON"] = sys.executable
    return variables


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while: pyspark takes these from nowhere else."""
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
