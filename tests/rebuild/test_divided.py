"""Tasks that read only the entries of their own queues write the same files as tasks that read all entries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reput.base.config import StoreConfig
from reput.base.tasks import SerialRunner
from reput.engine.rebuild import divided, queue_plan, write_files
from reput.engine.rebuild.driver import rebuild_store
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.rebuild.rebuilding import tree
from tests.rebuild.test_five import assert_same_database, differing, files_below
from tests.rebuild.test_random import check
from tests.slow import slow_from

Golden = Callable[[str], GoldenStore]
_FOLDERS = ("consumequeue", "consumequeue_ext", "batchconsumequeue")


class _Reads:
    """Records reads of staged files.

    dividing   reads of tasks that divide entries among packs (the queues of one task)
    undivided  reads of tasks that write queues from undivided entries
    packs      reads of tasks that write queues from divided entries
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dividing = self._counted(monkeypatch, divided)
        self.undivided = self._counted(monkeypatch, write_files)
        self.packs = self._counted(monkeypatch, divided, "divided_batches")
        monkeypatch.setattr(write_files, "divided_batches", divided.divided_batches)

    def each_staged_file_once(self) -> bool:
        paths = [path for path, *_ in self.dividing]
        return len(paths) > 1 and len(paths) == len(set(paths))

    def _counted(self, monkeypatch: pytest.MonkeyPatch, module, name="read_batches"):  # type: ignore[no-untyped-def]
        calls: list[tuple[object, ...]] = []
        function = getattr(module, name)

        def counted(*arguments: object, **options: object) -> object:
            calls.append(arguments)
            return function(*arguments, **options)

        monkeypatch.setattr(module, name, counted)
        return calls


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> _Reads:
    """Lower the limits, so that entries are divided: a task writes at most two queues. Return the counts of reads."""
    monkeypatch.setattr(queue_plan, "_MOST_UNDIVIDED", 0)
    monkeypatch.setattr(queue_plan, "_MOST_PACKED", 2)
    monkeypatch.setattr(divided, "_MOST_ROWS", 20)
    return _Reads(monkeypatch)


@pytest.mark.every_case
@pytest.mark.parametrize("name", ["five_ext", "five_batch"])
def test_divided_packs_have_the_brokers_own_bytes(
    golden: Golden, tmp_path: Path, reads: _Reads, name: str
) -> None:
    store = golden(name)
    config = StoreConfig.from_broker_settings(store.config)
    rebuild_store(
        SerialRunner(), store.path, config=config, output=tmp_path, split_size=20_000, only="consumequeue"
    )  # fmt: skip
    for folder in _FOLDERS:
        assert differing(files_below(tmp_path / folder), files_below(store.path / folder)) == []
    assert reads.each_staged_file_once()
    assert len(reads.packs) > 1


@pytest.mark.parametrize("seed", slow_from(12, range(300)))
def test_divided_irregular_queues_are_those_of_the_oracle(
    tmp_path: Path, reads: _Reads, seed: int
) -> None:
    check(seed, tmp_path)


def test_tables_of_rocksdb_read_their_own_entries_alone(
    golden: Golden, tmp_path: Path, reads: _Reads
) -> None:
    store, runner = golden("five_rocksdb"), SerialRunner()
    runner.parallelism = 8
    config = StoreConfig.from_broker_settings(store.config)
    rebuild_store(
        runner, store.path, config=config, output=tmp_path, split_size=20_000, only="consumequeue"
    )
    assert_same_database(tmp_path / "consumequeue", store.path / "consumequeue")
    assert reads.each_staged_file_once()
    assert len(reads.packs) > 4
    assert not reads.undivided


@pytest.mark.parametrize("name", ["lmq", "five_rocksdb"])
def test_old_entries_decide_alike_about_divided_packs(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    results = []
    for most in (1 << 20, 0):
        store = copy_store(golden(name).path, tmp_path / str(most))
        log = min((store / "commitlog").iterdir())
        with log.open("r+b") as file:
            file.seek(3000)
            file.write(bytes(2000))
        monkeypatch.setattr(queue_plan, "_MOST_UNDIVIDED", most)
        monkeypatch.setattr(queue_plan, "_MOST_PACKED", 2)
        runner = SerialRunner()
        runner.parallelism = 8
        report = rebuild_store(runner, store, split_size=20_000, salvage=True)
        assert report.damage
        results.append(store)
    if name == "five_rocksdb":
        assert_same_database(*(store / "consumequeue" for store in results))
    else:
        found, expected = (tree(store / "consumequeue") for store in results)
        assert differing(found, expected) == []


def test_few_packs_read_the_staged_files() -> None:
    assert queue_plan.divide_tasks(4, [10, 10], 5) == []
    tasks = queue_plan.divide_tasks(5, [10, 1, 2, 9, 3], 10)
    assert [(task.first, task.stop) for task in tasks] == [(0, 1), (1, 4), (4, 5)]
    assert [task.number for task in tasks] == [0, 1, 2]
