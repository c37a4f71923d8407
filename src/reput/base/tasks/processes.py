"""Run tasks in several processes of this machine, as Spark's `local[*]` does, but without Spark."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, get_context, parent_process

from reput.base.closing import Closing
from reput.base.tasks import Result, Task, TaskProgress, retried
from reput.base.tasks.processors import usable_cpus
from reput.errors import UsageError, WorkerLostError


class ProcessRunner(Closing):
    """Runs tasks in processes, which the first run starts and `close` ends. It is a context manager and thread-safe.

    The processes are spawned, not forked. A program that uses them must therefore guard its main part with `if __name__
    == "__main__":`, as `multiprocessing` requires. The processes end when this process ends, even if it is killed.
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
                    self.parallelism, mp_context=get_context("spawn"), initializer=_begin
                )
            return self._pool


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
