"""Tasks judge many IndexFiles, and find the same as the driver would without them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from reput.base.tasks import SerialRunner
from reput.core.store.store_reader import StoreReader
from reput.engine.lookup.driver import look_up
from reput.engine.lookup.index_task import IndexTask
from reput.engine.lookup.judging import JudgeTask, judged, run_judge_tasks
from reput.engine.lookup.key_parts import stage_parts
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.lookup.looking_up import batch_of, bulk

Golden = Callable[[str], GoldenStore]


class _Cluster(SerialRunner):
    """Claims to run two tasks at a time, and records the names of the functions that it ran."""

    parallelism = 2

    def __init__(self) -> None:
        self.ran: list[str] = []

    def run(self, function, tasks, weights, progress):  # type: ignore[no-untyped-def]
        self.ran.append(getattr(function, "__name__", ""))
        return super().run(function, tasks, weights, progress)


def test_tasks_and_the_driver_believe_the_same(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.engine.lookup.judging._MANY_FILES", 1)
    stores = [golden("basic").path, golden("lmq").path]
    asked = [
        (message.topic, message.uniq_key or "", None, None)
        for message in golden("basic").messages[::50]
    ]
    cluster = _Cluster()
    by_tasks = bulk(tmp_path / "tasks", stores, asked, runner=cluster)
    assert "run_judge_tasks" in cluster.ran
    assert by_tasks == bulk(tmp_path / "driver", stores, asked)
    assert any(found.offsets for found in by_tasks)
    assert by_tasks[0].indexed_bytes > 0


def test_many_stores_search_each_index_file_once(golden: Golden, tmp_path: Path) -> None:
    store = golden("basic").path
    copies = [tmp_path / f"store{number}" for number in range(2)]
    for copy in copies:
        copy_store(store, copy)
    indexes = len(list((store / "index").iterdir()))
    keys = [
        (message.topic, message.uniq_key or "", None, None)
        for message in golden("basic").messages[:2]
    ]
    parts = [
        part
        for number, key in enumerate(keys)
        for part in stage_parts([batch_of([key])], tmp_path / f"keys{number}")
    ]
    searched: list[int] = []

    class Cluster(SerialRunner):
        parallelism = 2 * indexes

        def run(self, function, tasks, weights, progress):  # type: ignore[no-untyped-def]
            searched.append(sum(isinstance(task, IndexTask) for task in tasks))
            return super().run(function, tasks, weights, progress)

    def search(paths: list[Path]) -> int:
        searched.clear()
        folder = tmp_path / f"of {len(paths)}"
        folder.mkdir()
        with ExitStack() as stack:
            stores = [stack.enter_context(StoreReader(path)) for path in paths]
            look_up(Cluster(), stores, parts, str(folder), ("store",))
        return sum(searched)

    assert search(copies) == 2 * indexes
    assert search(copies[:1]) == 2 * indexes  # for one store, each task has a part of the keys


def test_few_files_are_judged_by_the_driver(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.engine.lookup.judging._MANY_FILES", 1000)
    with StoreReader(golden("basic").path) as store:
        cluster = _Cluster()
        assert judged(cluster, [store], lambda done, total: None) == [None]
        assert cluster.ran == []


def test_a_verdict_is_that_of_its_file(golden: Golden) -> None:
    with StoreReader(golden("basic").path) as store:
        for file in store.index.current():
            task = JudgeTask(
                store.path, store.storage, store.commit_log.source,
                file.path, file.hash_slots, file.index_items, 1,
            )  # fmt: skip
            (verdict,) = run_judge_tasks([task])
            assert verdict.last == file.next_item - 1
            assert verdict.proof is not None
            assert verdict.proof.ranges
