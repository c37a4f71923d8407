"""An archive of many log files: the bytes of all its manifests grow in proportion to the log."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import reput
from tests.growth.counts import MOST, Counts, count, exponents
from tests.growth.stores import write


def _archive(store: Path, counts: Counts) -> None:
    assert (
        reput.archive(store, f"{store}-archived{counts.memory}").files
        == len(list((store / "commitlog").iterdir())) - 1
    )


def test_an_archive_writes_its_manifest_in_proportion_to_the_log(tmp_path: Path) -> None:
    sizes = (40, 80, 160)
    costs = []
    for size in sizes:
        store = write(tmp_path / str(size), size)
        costs.append(count(partial(_archive, store), threads=False))
    assert max(exponents(sizes, costs).values()) <= MOST, costs
