"""Concurrent runs of a rebuild never write each other's files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reput.engine.rebuild.driver import rebuild_store
from reput.engine.rebuild.staging import STAGING_FOLDER
from reput.errors import StoreError
from tests.golden.stores import GoldenStore
from tests.rebuild.cut_off import BesideCutOff, Stopping
from tests.rebuild.rebuilding import assert_golden, golden_config

Golden = Callable[[str], GoldenStore]


@pytest.mark.every_case
@pytest.mark.parametrize("tasks", [0, 2, 6, 8])
def test_a_task_of_an_earlier_run_writes_nothing_into_the_next(
    golden: Golden, tmp_path: Path, tasks: int
) -> None:
    store = golden("lmq")
    config = golden_config(store)
    killed = Stopping(tasks)
    with pytest.raises(KeyboardInterrupt):
        rebuild_store(killed, store.path, config=config, output=tmp_path, split_size=100_000)
    runner = BesideCutOff(killed.cut_off[0])
    rebuild_store(runner, store.path, config=config, output=tmp_path, split_size=100_000)
    assert_golden(tmp_path, store)
    assert runner.errors
    assert all("another rebuild is running there now" in error for error in runner.errors)
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
                Stopping(tasks), store.path, config=config, output=tmp_path, split_size=100_000
            )
        staged = (tmp_path / STAGING_FOLDER).glob("[0-9a-f]*/*")
        scanned.append({path.name: path.stat().st_ino for path in staged})
    assert len(scanned[0]) == 2
    assert len(scanned[1]) == 4
    assert scanned[0].items() <= scanned[1].items()
