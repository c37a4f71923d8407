"""Exports of so many stores that tasks instead of the driver find the end of each log."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from reput.base.tasks import Runner, TaskProgress
from reput.base.tasks.processes import ProcessRunner
from reput.engine.tables import plan
from reput.errors import StoreChangedError
from reput.wings.lakes import driver, planning
from reput.wings.lakes.driver import export_sources
from reput.wings.lakes.planning import open_stores
from reput.wings.lakes.report import ExportReport
from reput.wings.lakes.request import ExportRequest, ExportSettings
from reput.wings.lakes.tables.opening import open_table
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import export, grow_to, read_table

Golden = Callable[[str], GoldenStore]
TOPIC = "payments"


class Counted:
    """A Runner of two processes, which counts the tasks of each job."""

    def __init__(self, runner: Runner) -> None:
        self._runner, self.parallelism = runner, runner.parallelism
        self.jobs: list[int] = []

    def run(
        self,
        function: Callable[[Any], Any],
        tasks: Sequence[Any],
        weights: Sequence[int],
        progress: TaskProgress,
    ) -> list[Any]:
        """See Runner."""
        self.jobs.append(len(tasks))
        return self._runner.run(function, tasks, weights, progress)


@pytest.fixture
def stores(golden: Golden, tmp_path: Path) -> list[Path]:
    made = [tmp_path / f"store{number}" for number in range(3)]
    for store, size in zip(made, (700_000, 900_000, 1_200_000), strict=True):
        grow_to(golden("orders").path, store, size)
    return made


def test_the_driver_opens_no_log(
    stores: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = tmp_path / "expected"
    export(stores, expected, topics=(TOPIC,))

    def run(runner: Runner) -> ExportReport:
        return export_sources(
            open_stores([str(store) for store in stores]), open_table(str(tmp_path / "out"), "parquet"),
            ExportRequest(topics=(TOPIC,)), lambda size: runner, ExportSettings(incremental=True),
        )  # fmt: skip

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("this is the driver")

    monkeypatch.setattr(driver, "_MANY_STORES", len(stores))
    with ProcessRunner(2) as processes:
        runner = Counted(processes)
        # Start the processes before functions are patched, so that only the driver's functions refuse to run.
        processes.run(abs, [1], [1], lambda done, total: None)
        for module, name in (
            (planning, "find_log_end"), (planning, "ReadMark"), (plan, "find_log_end"), (plan, "IndexBesideLog"),
        ):  # fmt: skip
            monkeypatch.setattr(module, name, refuse)
        report = run(runner)
        assert runner.jobs[:2] == [3, 3]  # tasks that find the ends of logs, then tasks that plan
        assert read_table(tmp_path / "out", "parquet").equals(read_table(expected, "parquet"))
        assert report.rows > 0
        assert not run(runner).committed  # the table already has all messages of these logs

        data = (stores[1] / "commitlog" / f"{0:020d}").read_bytes()
        (stores[1] / "commitlog" / f"{0:020d}").write_bytes(data[:400_000].ljust(len(data), b"\0"))
        with pytest.raises(StoreChangedError, match=r"store1: .* it was truncated or replaced"):
            run(runner)


def test_a_log_that_is_replaced_while_it_is_exported_is_refused_later(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, store, out = golden("orders"), tmp_path / "store", tmp_path / "out"
    copy_store(source.path, store)
    data = (store / "commitlog" / f"{2 << 20:020d}").read_bytes()

    def replace(phase: str, done: int, total: int) -> None:
        if phase == "written":
            last = max((store / "commitlog").iterdir())
            last.write_bytes(data[: last.stat().st_size].ljust(last.stat().st_size, b"\0"))

    export(store, out, incremental=True, progress=replace)
    with pytest.raises(StoreChangedError, match="not the log"):
        export(store, out, incremental=True)
