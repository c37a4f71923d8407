"""Runs of a rebuild keep out of each other's files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reput.errors import StoreChangedError, StoreError
from reput.pipeline.driver import rebuild_store
from reput.pipeline.staging import STAGING_FOLDER
from reput.tasks import SerialRunner
from tests.golden.stores import GoldenStore
from tests.pipeline.rebuilding import assert_golden, golden_config

Golden = Callable[[str], GoldenStore]


class _Stopping(SerialRunner):
    """Runs some tasks, then ends as a killed process would; keeps what it would have run next."""

    def __init__(self, tasks: int) -> None:
        self._left, self.cut_off = tasks, list[Callable[[], object]]()

    def run(self, function, tasks, weights, progress):  # type: ignore[no-untyped-def]
        def counted(task):  # type: ignore[no-untyped-def]
            self._left -= 1
            if self._left < 0:
                self.cut_off.append(lambda: function(task))
                raise KeyboardInterrupt
            return function(task)

        return super().run(counted, tasks, weights, progress)


class _BesideCutOff(SerialRunner):
    """Lets a task of an earlier run go on in the middle of each phase of this one."""

    def __init__(self, cut_off: Callable[[], object]) -> None:
        self._cut_off, self.errors = cut_off, list[str]()

    def run(self, function, tasks, weights, progress):  # type: ignore[no-untyped-def]
        results = super().run(function, tasks, weights, progress)
        with pytest.raises(StoreChangedError) as caught:
            self._cut_off()
        self.errors.append(str(caught.value))
        return results


@pytest.mark.every_case
@pytest.mark.parametrize("tasks", [0, 2, 6, 8])
def test_a_task_of_an_earlier_run_writes_nothing_into_the_next(
    golden: Golden, tmp_path: Path, tasks: int
) -> None:
    store = golden("lmq")
    config = golden_config(store)
    killed = _Stopping(tasks)
    with pytest.raises(KeyboardInterrupt):
        rebuild_store(killed, store.path, config=config, output=tmp_path, split_size=100_000)
    runner = _BesideCutOff(killed.cut_off[0])
    rebuild_store(runner, store.path, config=config, output=tmp_path, split_size=100_000)
    assert_golden(tmp_path, store)
    assert runner.errors
    assert all("another rebuild works there now" in error for error in runner.errors)
    with pytest.raises(StoreError):
        killed.cut_off[0]()
    assert not (tmp_path / STAGING_FOLDER).exists()


def test_what_a_killed_run_scanned_is_used_by_the_next(golden: Golden, tmp_path: Path) -> None:
    store = golden("lmq")
    config = golden_config(store)
    scanned: list[dict[str, int]] = []
    for tasks in (2, 4):
        with pytest.raises(KeyboardInterrupt):
            rebuild_store(
                _Stopping(tasks), store.path, config=config, output=tmp_path, split_size=100_000
            )
        staged = (tmp_path / STAGING_FOLDER).glob("[0-9a-f]*/*")
        scanned.append({path.name: path.stat().st_ino for path in staged})
    assert len(scanned[0]) == 2
    assert len(scanned[1]) == 4
    assert scanned[0].items() <= scanned[1].items()
