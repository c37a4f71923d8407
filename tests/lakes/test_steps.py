"""Exports that commit in steps: a driver that dies loses one step, and each row is written once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from reput.errors import RejectedRowsError, UsageError
from reput.wings.lakes.steps import CommitEvery
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import FORMATS, export, offsets, read_table
from tests.slow import slow_from

Golden = Callable[[str], GoldenStore]
STEP = "400000"


class Stopped(Exception):
    """The simulated death of the driver."""


class _DiesAfter:
    """Raises after some commits."""

    def __init__(self, commits: int) -> None:
        self._left = commits

    def __call__(self, phase: str, done: int, total: int) -> None:
        self._left -= phase == "finished"
        if self._left == 0 and phase == "export":
            raise Stopped


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
def test_a_driver_that_dies_between_steps_loses_one_step(
    golden: Golden, tmp_path: Path, layout: str
) -> None:
    store, out = golden("orders"), tmp_path / "out"
    with pytest.raises(Stopped):
        export(
            store.path, out, layout, commit_every=STEP, split_bytes=100_000, progress=_DiesAfter(3)
        )
    done = offsets(read_table(out, layout))
    expected = [message.physical_offset for message in store.messages]
    assert done == expected[: len(done)]
    assert 1_200_000 <= done[-1] < 2_000_000
    report = export(
        store.path, out, layout, commit_every=STEP, split_bytes=100_000, incremental=True
    )
    assert offsets(read_table(out, layout)) == expected
    assert report.rows + len(done) == len(expected)
    assert report.commits == pytest.approx((6_549_067 - done[-1]) / 400_000, abs=2)
    assert not export(store.path, out, layout, incremental=True).committed


def test_steps_of_several_stores_and_of_time(golden: Golden, tmp_path: Path) -> None:
    stores = [golden(name).path for name in ("orders", "lmq", "tricky")]
    names = ["a", "b", "c"]
    given: dict[str, Any] = {"names": names, "split_bytes": 500_000, "partition_by": ("day",)}
    with pytest.raises(Stopped):
        export(stores, tmp_path / "out", commit_every=3_000_000, progress=_DiesAfter(2), **given)
    export(stores, tmp_path / "out", commit_every="1s", incremental=True, **given)
    found = read_table(tmp_path / "out", "parquet")
    for name, store in zip(names, ("orders", "lmq", "tricky"), strict=True):
        own = found.filter(found["store"].cast("string").to_numpy(zero_copy_only=False) == name)
        assert offsets(own) == [message.physical_offset for message in golden(store).messages]


@pytest.mark.parametrize("topics", slow_from(1, [(), ("orders",)]))
def test_every_end_of_a_step_is_a_record(
    golden: Golden, tmp_path: Path, topics: tuple[str, ...]
) -> None:
    """Each run makes one step and dies."""
    store, out = golden("orders"), tmp_path / "out"
    expected = [m.physical_offset for m in store.messages if not topics or m.topic in topics]
    for _ in range(40):
        try:
            export(
                store.path, out, commit_every=1, split_bytes=400_000, incremental=True, topics=topics,
                progress=_DiesAfter(1),
            )  # fmt: skip
        except Stopped:
            continue
        break
    assert offsets(read_table(out, "parquet")) == expected


@pytest.mark.slow
@pytest.mark.parametrize("on_corrupt", ["skip", "row"])
def test_damage_at_the_end_of_a_step_is_reported_once(
    golden: Golden, tmp_path: Path, on_corrupt: str
) -> None:
    source, store = golden("orders"), tmp_path / "store"
    damage(source, store)
    whole = export(store, tmp_path / "whole", split_bytes=100_000, on_corrupt=on_corrupt)
    stepped = export(
        store, tmp_path / "out", split_bytes=100_000, on_corrupt=on_corrupt, commit_every=1
    )
    assert stepped.commits > 20
    assert [*map(str, stepped.damage)] == [*map(str, whole.damage)] != []
    assert (stepped.rows, stepped.messages) == (whole.rows, whole.messages)
    places = [
        read_table(tmp_path / name, "parquet")["physical_offset"] for name in ("whole", "out")
    ]
    assert places[0].equals(places[1])


def damage(source: GoldenStore, store: Path) -> None:
    """Copy a log. Damage the last record that begins before each multiple of 100,000 bytes."""
    shutil.copytree(source.path / "commitlog", store / "commitlog")
    for before, after in pairwise(source.messages):
        if before.physical_offset // 100_000 != after.physical_offset // 100_000:
            files = sorted((store / "commitlog").iterdir())
            file = max(file for file in files if int(file.name) <= before.physical_offset)
            data = bytearray(file.read_bytes())
            data[before.physical_offset - int(file.name) + 4] ^= 0xFF  # a byte of the magic code
            file.write_bytes(data)


@pytest.mark.slow
def test_rejects_are_limited_over_all_steps(golden: Golden, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"order": "string", "amount": "string"}')
    given: dict[str, Any] = {"json_body": str(schema), "split_bytes": 200_000, "commit_every": STEP}
    whole = export(golden("orders").path, tmp_path / "whole", **given)
    assert whole.commits > 5
    with pytest.raises(RejectedRowsError):
        export(golden("orders").path, tmp_path / "out", max_rejects=whole.rejects - 1, **given)
    assert (
        export(
            golden("orders").path, tmp_path / "other", max_rejects=whole.rejects, **given
        ).rejects
        == whole.rejects
    )


def test_what_a_step_is_given_as() -> None:
    assert CommitEvery.of("10GB").log_bytes == 10_000_000_000
    assert CommitEvery.of("10 min").seconds == 600
    assert CommitEvery.of(1 << 20) == CommitEvery(1 << 20, None)
    assert CommitEvery.of(None) == CommitEvery()
    for wrong in ("", "0", "0s", "10 days", "soon", "-1"):
        with pytest.raises(UsageError, match="commit_every"):
            CommitEvery.of(wrong)
