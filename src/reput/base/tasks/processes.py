"""Run tasks in several processes of this machine, as Spark's `local[*]` does, but without Spark."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from reput.base.machine import usable_cpus
from reput.base.python import Closing
from reput.base.tasks import Result, Task, TaskProgress, retried
from reput.errors import UsageError, WorkerLostError


class ProcessRunner(Closing):
    """Runs tasks in processes, which the first run starts and `close` ends. It is a context manager and thread-safe.

    The processes are spawned, not forked, and run functions of reput only: they never import the user's script, so it
    needs no guard `if __name__ == "__main__":`. They end when this process ends, even if it is killed.
    """

    def __init__(
        self, processes: int | None = None, prepare: Callable[[], None] = lambda: None
    ) -> None:
        """Prepare a runner.

        Args:
            processes: The number of processes; None for the number of processors.
            prepare: Called in this process before the others start, for example to compile kernels only once.
        """
        if processes is not None and processes < 1:
            raise UsageError(f"processes must be at least 1, not {processes}")
        self.parallelism = processes or usable_cpus()
        self._prepare = prepare
        self._pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Drop waiting tasks, wait for running ones, and end the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        weights: Sequence[int],
        progress: TaskProgress,
    ) -> list[Result]:
        """Run tasks as `Runner.run` does. Raises the error of a task, or WorkerLostError."""
        futures: list[Future[Result]] = []
        pool = self._started()
        try:
            futures += [pool.submit(retried, function, task) for task in tasks]
            weight_of = dict(zip(futures, weights, strict=True))
            done, total = 0, sum(weights)
            progress(done, total)
            for future in as_completed(futures):
                future.result()
                done += weight_of[future]
                progress(done, total)
        except BrokenProcessPool as error:
            with self._lock:
                # A broken pool stays broken. The next run starts a new one, unless another thread already did.
                if self._pool is pool:
                    self._pool = None
            raise WorkerLostError(
                "a worker process ended before its task, perhaps because memory ran out; run it again"
                " with fewer processes or smaller splits"
            ) from error
        except BaseException:
            # Drop the waiting tasks. Running ones cannot be cancelled, and their results are ignored.
            for future in futures:
                future.cancel()
            raise
        return [future.result() for future in futures]

    def _started(self) -> ProcessPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._prepare()
                self._pool = ProcessPoolExecutor(
                    self.parallelism, mp_context=WITHOUT_SCRIPT, initializer=_begin
                )
            return self._pool


_starting = threading.Lock()


@contextmanager
def _hidden_script() -> Iterator[None]:
    """Hide the file of `__main__`, which a spawned process would import under another name."""
    main = vars(sys.modules["__main__"])
    with _starting:
        hidden: dict[str, Any] = {
            name: main.pop(name) for name in ("__spec__", "__file__") if name in main
        }
        main["__spec__"] = None
        try:
            yield
        finally:
            main.update({"__spec__": None, **hidden})


class _Process(SpawnProcess):
    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        with _hidden_script():
            return SpawnProcess._Popen(process_obj)


class _Context(SpawnContext):
    Process = _Process


WITHOUT_SCRIPT = _Context()
"""Starts processes that do not import the user's script. Their functions and arguments come from other modules."""


def _begin() -> None:
    """Let this worker end immediately when it is interrupted, or when its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        # The sentinel becomes readable when the parent ends, even if it is killed.
        connection.wait([parent.sentinel])
        os._exit(1)
