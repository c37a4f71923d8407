"""Expiry, check and proofs: the cost of each grows in proportion to the store."""

from __future__ import annotations

from pathlib import Path

import reput
from tests.growth.counts import MOST, Counts, count, exponents
from tests.growth.stores import config


def _expire(folder: Path, files: int) -> Counts:
    with reput.open_store(
        folder, mode="rw", config=config(items=100), clean_resource_interval_s=3600
    ) as store:
        store.put_many(reput.Message("T", bytes(3300)) for _ in range(files))
        store.wait_dispatched(timeout_s=60)
        cost = count(lambda _: store.expire(1 << 60), threads=False)
        assert len(list((folder / "commitlog").iterdir())) == 1
    return cost


def test_an_expiry_costs_each_file_the_same(tmp_path: Path) -> None:
    sizes = (50, 100, 200)
    costs = [_expire(tmp_path / str(files), files) for files in sizes]
    assert max(exponents(sizes, costs).values()) <= MOST, costs
