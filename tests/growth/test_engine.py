"""Expiry, check and proofs: the cost of each grows in proportion to the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import reput
from reput.base import no_progress
from reput.core import StoreReader
from reput.engine.check.run import check_store
from reput.engine.lookup.judging import judged
from reput.engine.rebuild.driver import rebuild_store
from tests.growth.counts import MOST, Counts, PicklingRunner, count, exponents
from tests.growth.stores import config, write


def _expire(folder: Path, files: int) -> Counts:
    with reput.open_store(
        folder, mode="rw", config=config(items=100), clean_resource_interval_s=3600
    ) as store:
        store.put_many(reput.Message("T", bytes(3300)) for _ in range(files))
        store.wait_dispatched()
        cost = count(lambda _: store.expire(1 << 60), threads=False)
        assert len(list((folder / "commitlog").iterdir())) == 1
    return cost


def test_an_expiry_costs_each_file_the_same(tmp_path: Path) -> None:
    sizes = (50, 100, 200)
    costs = [_expire(tmp_path / str(files), files) for files in sizes]
    assert max(exponents(sizes, costs).values()) <= MOST, costs


def _check(store: Path, counts: Counts) -> None:
    assert not list(check_store(store, runner=PicklingRunner(counts)))


def test_a_full_check_sends_a_log_file_only_the_queues_and_indexes_that_lead_into_it(
    tmp_path: Path,
) -> None:
    sizes = (30, 60, 120)
    costs = []
    for size in sizes:
        # As many log files as queues; a fifth as many IndexFiles.
        store = write(tmp_path / str(size), size, queues=size, items=5)
        _check(store, Counts())  # Compile kernels, and keep facts about the log files.
        costs.append(count(partial(_check, store), threads=False))
    assert max(exponents(sizes, costs).values()) <= MOST, costs


def _prove(store: Path, _: Counts) -> None:
    assert reput.prove(store).files


def _judge(store: Path, counts: Counts) -> None:
    with StoreReader(store) as opened:
        (judge,) = judged(PicklingRunner(counts, parallelism=2), [opened], no_progress)
        assert judge is not None


def _rebuild(store: Path, counts: Counts) -> None:
    rebuild_store(PicklingRunner(counts), store, config=config(items=5))


@pytest.mark.parametrize("operation", [_prove, _judge, _rebuild])
def test_proofs_list_the_log_once(
    tmp_path: Path, operation: Callable[[Path, Counts], None]
) -> None:
    sizes = (100, 200, 400)
    costs = []
    for size in sizes:
        store = write(tmp_path / str(size), size, items=5)
        operation(store, Counts())
        costs.append(count(partial(operation, store)))
    assert max(exponents(sizes, costs).values()) <= MOST, costs


def _put(folder: Path, queues: int) -> Counts:
    def put(_: Counts) -> None:
        with reput.open_store(folder, mode="rw") as store:
            store.put(reput.Message("T0", b"x", queue_id=0))

    one_log_file = replace(config(items=1000), commit_log_file_bytes=1 << 20)
    with reput.open_store(folder, mode="rw", config=one_log_file) as store:
        store.put_many(reput.Message(f"T{n}", b"x", queue_id=0) for n in range(queues))
    put(Counts())  # Compile kernels.
    return count(put)


def test_a_put_opens_its_own_queue_alone(tmp_path: Path) -> None:
    few, many = (_put(tmp_path / str(queues), queues) for queues in (20, 200))
    assert many.of_each["open"] == few.of_each["open"]
    # What finds that the other queues have not changed.
    assert (many.calls - few.calls) / 180 <= 12
    assert (many.lines - few.lines) / 180 <= 1000
