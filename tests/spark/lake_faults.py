"""Exports into buckets on a cluster with faults: `python -m tests.spark.lake_faults KIND MASTER STORE FOLDER RUNS`.

Each run exports a golden store into a table of one format while something happens to executors, compares every row with
the store, and prints a line.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from reput.base.config import StoreConfig
from reput.wings.inspect.comparing.tables import diff_export
from reput.wings.lakes.driver import export_sources
from reput.wings.lakes.planning import open_stores
from reput.wings.lakes.request import ExportRequest, ExportSettings
from tests.lakes.exporting import offsets
from tests.remote.lake_buckets import Lake
from tests.remote.s3_server import s3_process, upload_whole
from tests.spark import faults
from tests.spark.faults import DisturbedRunner, Runs

LAYOUTS = ("parquet", "delta", "iceberg")
_STEP, _SPLIT = 1_500_000, 300_000


class Exports(Runs):
    """Exports with one kind of fault, into the table `lake`."""

    lake: Lake

    def work(self, disturb: Callable[..., Any], output: Path) -> None:
        """Export new messages. `output` is not used: the table is in a bucket."""
        export_sources(
            open_stores([str(self.store)]), self.lake.open(), ExportRequest(partition_by=("topic",)),
            lambda size: DisturbedRunner(self.spark, disturb),
            ExportSettings(incremental=True, split_bytes=_SPLIT, commit_every=_STEP),
        )  # fmt: skip


def check(lake: Lake, store: Path, expected: list[int]) -> None:
    """Compare every row with the store. A slow task may have left staged objects: the next run deletes them."""
    assert not lake.export(store, incremental=True, partition_by=("topic",)).committed
    found = diff_export(str(store), lake.open())
    assert found.is_same, str(found)
    assert offsets(lake.rows()) == expected
    assert lake.is_tidy(), lake.names()


def main() -> None:
    """Run the exports."""
    cloudpickle.register_pickle_by_value(faults)  # type: ignore[no-untyped-call]  # executors have no tests
    kind, master, store, folder, count = sys.argv[1:]
    import reput

    rows = reput.dataset(store, ["physical_offset"]).to_table()
    expected = sorted(rows["physical_offset"].to_pylist())
    with s3_process() as options:
        empty = Path(folder, "empty")
        empty.mkdir()
        upload_whole(empty, "faults", options)
        runs = Exports(kind, master, Path(store), StoreConfig())
        for number in range(int(count)):
            layout, begun = LAYOUTS[number % len(LAYOUTS)], time.monotonic()
            url = f"s3://faults/{number}/messages"
            runs.lake = Lake(url, options, layout, Path(folder, f"{number}.db"))
            runs.one(number, Path(folder))
            check(runs.lake, Path(store), expected)
            print(f"{kind} {number} {layout} {time.monotonic() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
