"""Rebuilds on a cluster with faults: `python -m tests.spark.faults KIND MASTER STORE CONFIG FOLDER RUNS`.

Each run rebuilds a golden store into a folder of its own while something goes wrong, compares every byte with the
broker's, and prints a line. Only executors of this very application are disturbed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from reput.base.config import StoreConfig
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.rebuild.warm_up import warm_up
from reput.spark.runner import SparkRunner, prepared_runner
from reput.spark.session import create_session
from reput.testing.faulty_files import faulty

_ALWAYS = {
    "spark.executor.memory": "512m",
    "spark.task.maxFailures": "8",
    # A lost executor is noticed in seconds instead of two minutes.
    "spark.network.timeout": "10s",
    "spark.network.timeoutInterval": "2s",
    "spark.executor.heartbeatInterval": "1s",
    "spark.rpc.askTimeout": "10s",
    "spark.rpc.lookupTimeout": "10s",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "1s",
}
SETTINGS = {
    "files": {},
    "killed": {"spark.executor.maxNumFailures": "1000", "spark.deploy.maxExecutorRetries": "-1"},
    "stopped": {"spark.network.timeout": "5s", "spark.network.timeoutInterval": "1s"},
    "decommissioned": {"spark.decommission.enabled": "true"},
    "dynamic": {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.initialExecutors": "0",
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
        "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    },
    "speculation": {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.multiplier": "1",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.minTaskRuntime": "50ms",
    },
}
"""Settings for each kind of fault, by name."""


class DisturbedRunner(SparkRunner):
    """Runs tasks through a function that disturbs them."""

    def __init__(self, spark: SparkSession, disturb: Callable[..., Any]) -> None:
        super().__init__(spark)
        self._disturb = disturb

    def run(
        self,
        function: Callable[[Any], Any],
        tasks: Sequence[Any],
        weights: Sequence[int],
        progress: Callable[[int, int], None],
    ) -> list[Any]:
        return super().run(partial(self._disturb, function), tasks, weights, progress)


def _slowly(seed: int, function: Callable[[Any], Any], task: Any) -> Any:
    """Wait before and after the work, so that a fault hits running tasks. One attempt in five takes long."""
    chosen = random.Random(hash((seed, os.getpid(), time.monotonic_ns())))
    time.sleep(chosen.uniform(0, 0.1))
    result = function(task)
    time.sleep(1.0 if chosen.random() < 0.2 else chosen.uniform(0, 0.1))
    return result


def executors_of(application: str) -> list[int]:
    """Return the processes that are executors of an application."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            arguments = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            is_ours = "--app-id" in arguments and application in arguments
            if is_ours and any("CoarseGrainedExecutorBackend" in each for each in arguments):
                found.append(int(folder.name))
    return found


def _with_children(process: int) -> list[int]:
    """Return a process and its descendants, the process first."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(folder.name))
    found = [process]
    for each in found:
        found += parents.get(each, [])
    return found


def _send(process: int, number: signal.Signals) -> None:
    for each in _with_children(process):
        with suppress(ProcessLookupError):
            os.kill(each, number)


@contextmanager
def _meanwhile(action: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run an action in a thread during the `with` block. An event reports the end of the block to the action."""
    over = threading.Event()
    thread = threading.Thread(target=action, args=(over,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _nothing(over: threading.Event) -> None:
    """Do nothing, for faults that the session's settings cause."""


def _kill_one(application: str, seed: int, over: threading.Event) -> None:
    chosen = random.Random(seed)
    over.wait(chosen.uniform(0.1, 2))
    if found := executors_of(application):
        with suppress(ProcessLookupError):
            os.kill(chosen.choice(found), signal.SIGKILL)


def _decommission_one(spark: SparkSession, seed: int, over: threading.Event) -> None:
    chosen = random.Random(seed)
    over.wait(chosen.uniform(0.1, 2))
    jvm, scala = spark.sparkContext._jvm, spark.sparkContext._jsc.sc()
    assert jvm is not None
    backend = scala.schedulerBackend()
    found = backend.getExecutorIds()
    if found.size() > 1:
        package = jvm.org.apache.spark.scheduler
        why = package.ExecutorDecommissionInfo("test", jvm.scala.Option.empty())
        number = found.apply(chosen.randrange(found.size()))
        backend.decommissionExecutor(number, why, False, False)


class Runs:
    """Rebuilds during which faults of one kind happen."""

    def __init__(self, kind: str, master: str, store: Path, config: StoreConfig) -> None:
        self._kind, self.store, self._config = kind, store, config
        self.spark = create_session(master, conf=_ALWAYS | SETTINGS[kind])
        prepared_runner(self.spark, warm_up)
        self._application = str(self.spark.sparkContext.applicationId)

    def one(self, number: int, output: Path) -> None:
        """Rebuild with a fault. Raises the errors that a user would see."""
        if self._kind == "stopped":
            self._stopped(number, output)
            return
        disturb = partial(faulty, number) if self._kind == "files" else partial(_slowly, number)
        actions: dict[str, Callable[[threading.Event], None]] = {
            "killed": partial(_kill_one, self._application, number),
            "decommissioned": partial(_decommission_one, self.spark, number),
        }
        with _meanwhile(actions.get(self._kind, _nothing)):
            self.work(disturb, output)

    def work(self, disturb: Callable[..., Any], output: Path) -> None:
        """Rebuild once. `disturb` runs in the tasks, and may delay them or let them fail."""
        runner = DisturbedRunner(self.spark, disturb)
        rebuild_store(runner, self.store, config=self._config, output=output, split_size=200_000)

    def _stopped(self, number: int, output: Path) -> None:
        """Run twice: suspend one executor during the first run, and resume it during the second run."""
        disturb = partial(_slowly, number)
        stopped: list[int] = []

        def stop(over: threading.Event) -> None:
            over.wait(random.Random(number).uniform(0.1, 1))
            if found := executors_of(self._application):
                stopped.append(random.Random(number).choice(found))
                _send(stopped[0], signal.SIGSTOP)

        def resume(over: threading.Event) -> None:
            over.wait(random.Random(number).uniform(0.1, 1))
            for process in stopped:
                _send(process, signal.SIGCONT)

        with _meanwhile(stop):
            self.work(disturb, output)
        with _meanwhile(resume):
            self.work(disturb, output)


def main() -> None:
    kind, master, store, config, folder, count = sys.argv[1:]
    # Only these tasks need pytest; executors do not.
    from tests.rebuild.rebuilding import assert_nothing_left, same

    def compare(output: Path) -> None:
        for name in ("consumequeue", "index"):
            ours, theirs = (
                sorted(p for p in (place / name).rglob("*") if p.is_file())
                for place in (output, Path(store))
            )
            assert len(ours) == len(theirs), (len(ours), len(theirs))
            different = [
                one for one, other in zip(ours, theirs, strict=True) if not same(one, other)
            ]
            assert not different, different
        assert_nothing_left(output)

    runs = Runs(kind, master, Path(store), StoreConfig.from_broker_config(config))
    for number in range(int(count)):
        begun = time.monotonic()
        output = Path(folder) / f"out-{number}"
        runs.one(number, output)
        compare(output)
        shutil.rmtree(output)
        print(f"{kind} {number} {time.monotonic() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
