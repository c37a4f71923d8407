"""Choose the runner of an operation's tasks: this process, several processes, or Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Thread
from typing import Any, Literal, NamedTuple, get_args

from reput import base
from reput.base import Runner, SerialRunner, is_spark_session
from reput.errors import MissingExtraError, UsageError
from reput.io import AnchoredRunner

SMALL_BYTES = 256 << 20
"""Bytes of CommitLog below which starting Spark or processes takes longer than the work."""
INSTALL_SPARK = "pip install 'reput[spark]'"


RunnerName = Literal["auto", "serial", "processes", "spark"]


class Chosen(NamedTuple):
    """The requested runner of an operation.

    Attributes:
        runner: "auto", "serial" (this process), "processes" (of this machine), "spark" (a new session), or a
            SparkSession.
        master: The Spark master of a new session; "local[*]" if None.
    """

    runner: Any = "auto"
    master: str | None = None

    @classmethod
    def of(cls, runner: Any) -> Chosen:
        """Return the choice for the argument `runner` of an operation."""
        return runner if isinstance(runner, Chosen) else cls(runner)

    def is_spark(self, size_bytes: int) -> bool:
        """Return whether Spark should run the tasks of a job over `size_bytes` of CommitLog.

        Raises UsageError for an unknown runner, MissingExtraError if Spark is requested but not installed.
        """
        if not isinstance(self.runner, str):
            _check_session(self.runner)
            return True
        if self.runner not in get_args(RunnerName):
            names = ", ".join(map(repr, get_args(RunnerName)))
            raise UsageError(
                f"runner {self.runner!r}: pass one of {names}, or a SparkSession",
                arguments=["runner"],
            )
        if self.runner in ("serial", "processes"):
            if self.master:
                raise UsageError(
                    f"master {self.master}: needs runner spark; omit master, or pass runner spark",
                    arguments=["master", "runner"],
                )
            return False
        if self.runner == "auto" and self.master is None:
            return size_bytes >= SMALL_BYTES and has_spark()
        argument, value = ("master", self.master) if self.master else ("runner", self.runner)
        require_spark(f"{argument} {value}: PySpark is not installed", [argument])
        return True


def _check_session(runner: object) -> None:
    """Raise UsageError for an object that is not a SparkSession, without importing PySpark."""
    if not is_spark_session(runner):
        raise UsageError(
            f"runner: a {type(runner).__name__} is not a SparkSession", arguments=["runner"]
        )


def has_spark() -> bool:
    """Return whether PySpark is installed, without importing it."""
    return find_spec("pyspark") is not None


def require_spark(reason: str, arguments: Sequence[str] = ()) -> None:
    """Raise MissingExtraError if PySpark is not installed. `reason` is the beginning of the error."""
    if not has_spark():
        raise MissingExtraError(f"{reason}: {INSTALL_SPARK}", arguments=arguments)


@contextmanager
def opened_runner(choice: Chosen, size_bytes: int, prepare: Callable[[], None]) -> Iterator[Runner]:
    """Yield the runner for a job, and close it after the `with` block.

    Args:
        choice: The requested runner.
        size_bytes: Size of the CommitLogs that the job reads.
        prepare: Compiles the kernels of the job, or loads them from their cache.

    Raises:
        UsageError, MissingExtraError, JavaNotFoundError, SparkJobError.
    """
    if choice.is_spark(size_bytes):
        from reput.spark import prepared_runner

        with spark_session(choice, prepare) as spark:
            yield prepared_runner(spark, prepare)
    else:
        with local_runner(choice, size_bytes, prepare) as runner:
            yield runner


@contextmanager
def spark_session(choice: Chosen, prepare: Callable[[], None]) -> Iterator[Any]:
    """Yield the caller's session, or a new one.

    Kernels are compiled while Spark starts, because this process mostly waits for the start.
    """
    if not isinstance(choice.runner, str):
        prepare()
        yield choice.runner
        return
    from reput.spark import command_session

    prepared = _begun(prepare)
    with command_session(choice.master or "local[*]") as spark:
        prepared()
        yield spark


def _begun(work: Callable[[], None]) -> Callable[[], None]:
    """Begin work in a thread. The returned function waits for the end of the work, and raises its error."""
    ended: Future[None] = Future()

    def run() -> None:
        try:
            work()
        # Pass on any error. Otherwise, the waiting thread would wait forever.
        except BaseException as error:
            ended.set_exception(error)
        else:
            ended.set_result(None)

    # A daemon thread does not keep the process alive if the caller never waits for it.
    Thread(target=run, daemon=True).start()
    return ended.result


@contextmanager
def local_runner(
    choice: Chosen, size_bytes: int, prepare: Callable[[], None], processes: int | None = None
) -> Iterator[Runner]:
    """Provide a runner of this machine, by default with a process per processor."""
    if choice.runner == "serial" or (choice.runner == "auto" and size_bytes < SMALL_BYTES):
        yield AnchoredRunner(SerialRunner())
    else:
        with base.ProcessRunner(processes, prepare) as runner:
            yield AnchoredRunner(runner)
