"""Rebuilds from files that sometimes fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reput.base.tasks import SerialRunner
from reput.engine.rebuild.driver import rebuild_store
from reput.testing.faulty_files import FaultyFiles
from tests.golden.stores import GoldenStore
from tests.rebuild.rebuilding import assert_golden, golden_config

Golden = Callable[[str], GoldenStore]


class _Faulty(SerialRunner):
    """Runs each task over its own files, some calls of which fail."""

    def __init__(self, seed: int) -> None:
        self._seed, self.failed = seed, 0

    def run(self, function, tasks, weights, progress):  # type: ignore[no-untyped-def]
        return [
            super(_Faulty, self).run(self._over_files(function), [task], [1], progress)[0]
            for task in tasks
        ]

    def _over_files(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        self._seed += 1
        files = FaultyFiles(self._seed, slowest_s=0.001)

        def disturbed(task: Any) -> Any:
            before = files.failed
            try:
                with files.installed():
                    return function(task)
            finally:
                self.failed += files.failed - before

        return disturbed


@pytest.mark.parametrize("name", ["lmq", "basic", "orders", "tricky"])
@pytest.mark.parametrize("seed", range(8))
def test_a_rebuild_of_files_that_fail_has_the_brokers_own_bytes(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, seed: int
) -> None:
    monkeypatch.setattr("reput.base.tasks.time.sleep", lambda seconds: None)
    store = golden(name)
    runner = _Faulty(1000 * seed)
    rebuild_store(
        runner, store.path, config=golden_config(store), output=tmp_path, split_size=100_000
    )
    assert_golden(tmp_path, store)
    assert runner.failed > 3
