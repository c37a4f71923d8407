"""IndexFiles are judged by tasks where there are many, with the same answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reput.lookup.judging import JudgeTask, judged, run_judge_task
from reput.store.store_reader import StoreReader
from reput.tasks import SerialRunner
from tests.golden.stores import GoldenStore
from tests.lookup.looking_up import bulk

Golden = Callable[[str], GoldenStore]


class _Cluster(SerialRunner):
    """Says that it runs two tasks at a time, and keeps the names of the functions that it ran."""

    parallelism = 2

    def __init__(self) -> None:
        self.ran: list[str] = []

    def run(self, function, tasks, weights, progress):  # type: ignore[no-untyped-def]
        self.ran.append(getattr(function, "__name__", ""))
        return super().run(function, tasks, weights, progress)


def test_tasks_and_the_driver_believe_the_same(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.lookup.judging._MANY_FILES", 1)
    stores = [golden("basic").path, golden("lmq").path]
    asked = [
        (message.topic, message.uniq_key or "", None, None)
        for message in golden("basic").messages[::50]
    ]
    cluster = _Cluster()
    by_tasks = bulk(tmp_path / "tasks", stores, asked, runner=cluster)
    assert "run_judge_task" in cluster.ran
    assert by_tasks == bulk(tmp_path / "driver", stores, asked)
    assert any(found.offsets for found in by_tasks)
    assert by_tasks[0].indexed_bytes > 0


def test_few_files_are_judged_by_the_driver(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.lookup.judging._MANY_FILES", 1000)
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
            verdict = run_judge_task(task)
            assert verdict.last == file.next_item - 1
            assert verdict.proof is not None
            assert verdict.proof.ranges
