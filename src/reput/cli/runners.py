"""Who runs the tasks of a command: Spark, processes of this machine, or this process alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Thread
from typing import Any, NamedTuple

import click

from reput.errors import MissingExtraError, UsageError
from reput.tasks import Runner, SerialRunner

SMALL_BYTES = 256 << 20
"""Of CommitLog: below, Spark or other processes would take longer to start than the work takes."""
INSTALL_SPARK = "pip install 'reput[spark]'"


class Chosen(NamedTuple):
    """What the options ask for; None where they say nothing."""

    runner: str | None
    master: str | None

    def is_spark(self, size_bytes: int) -> bool:
        """Whether Spark runs the tasks of a job over so many bytes of CommitLog.

        Raises UsageError, and MissingExtraError where Spark was asked for and is not installed.
        """
        if self.runner == "local" and self.master:
            raise UsageError("--master: names a Spark master; leave it out, or --runner local")
        if self.runner is None and self.master is None:
            return size_bytes >= SMALL_BYTES and has_spark()
        if self.runner == "local":
            return False
        if not has_spark():
            option = "--master" if self.master else "--runner spark"
            raise MissingExtraError(f"{option}: PySpark is not installed: {INSTALL_SPARK}")
        return True


def has_spark() -> bool:
    """Whether PySpark is installed; it is not imported."""
    return find_spec("pyspark") is not None


_OPTIONS = (
    click.option(
        "--runner",
        type=click.Choice(["spark", "local"]),
        help="Run on Spark, or in processes of this machine.  [default: this process for small stores,"
        " else Spark where it is installed]",
    ),
    click.option(
        "--master", metavar="URL", help="The Spark master to run on.  [default: local[*]]"
    ),
)


def runner_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --runner and --master, of which a command makes a `Chosen`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@contextmanager
def opened_runner(chosen: Chosen, size_bytes: int, prepare: Callable[[], None]) -> Iterator[Runner]:
    """The runner for a job over so many bytes of CommitLog, until the body ends.

    Args:
        chosen: What the options ask for.
        size_bytes: Of the CommitLogs that the job reads.
        prepare: Compiles the kernels of the job, or loads them from their cache.

    Raises:
        UsageError, MissingExtraError, JavaNotFoundError, SparkJobError.
    """
    if chosen.is_spark(size_bytes):
        from reput.spark.runner import prepared_runner

        with spark_session(chosen, prepare) as spark:
            yield prepared_runner(spark, prepare)
    else:
        with local_runner(chosen, size_bytes, prepare) as runner:
            yield runner


@contextmanager
def spark_session(chosen: Chosen, prepare: Callable[[], None]) -> Iterator[Any]:
    """A session for the command. Kernels are compiled while Spark starts, which is mostly waiting."""
    from reput.spark.session import command_session

    prepared = _begun(prepare)
    with command_session(chosen.master or "local[*]") as spark:
        prepared()
        yield spark


def _begun(work: Callable[[], None]) -> Callable[[], None]:
    """Begin work in a thread; the result waits for its end and raises what it raised."""
    ended: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            ended.set_exception(error)
        else:
            ended.set_result(None)

    Thread(target=run, daemon=True).start()
    return ended.result


@contextmanager
def local_runner(chosen: Chosen, size_bytes: int, prepare: Callable[[], None]) -> Iterator[Runner]:
    """The same where Spark is not to run the job."""
    if chosen.runner is None and size_bytes < SMALL_BYTES:
        yield SerialRunner()
    else:
        from reput.tasks.processes import ProcessRunner

        with ProcessRunner(prepare=prepare) as runner:
            told = "" if has_spark() else f"; for Spark: {INSTALL_SPARK}"
            click.echo(f"Runs in {runner.parallelism} processes of this machine{told}.", err=True)
            yield runner
