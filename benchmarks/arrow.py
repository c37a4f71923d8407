"""Measure `reput.to_arrow` on one core, with one log file in the page cache, and compare it with its own kernels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import reput
from benchmarks.kernels import walk
from benchmarks.result import Figure, best_of
from reput.core.log.files import CommitLogFile
from reput.core.log.scan import ScanBuffers
from reput.core.log.sources import StoreLog
from reput.engine.tables.log_paths import find_logs
from reput.engine.tables.plan import plan_reading
from reput.engine.tables.read import RangeBatches
from reput.io.reader import FileReader

_GROUP = "reput.to_arrow, one core"
HEADER = (
    "queue_id", "queue_offset", "physical_offset", "size", "flag", "sys_flag", "born_timestamp",
    "store_timestamp", "reconsume_times",
)  # fmt: skip


def measure(store: Path, runs: int) -> Iterator[Figure]:
    file = StoreLog(store).list().files[0]
    buffers = ScanBuffers()
    messages = walk(file, buffers)
    # These first reads also load the kernels, and make the system map new memory, which is slow.
    for columns in (None, HEADER):
        if _read(file, columns) != messages:
            raise RuntimeError("to_arrow returned another number of messages than the scan")
    unit = "million messages/s"
    scan = messages / best_of(runs, lambda: walk(file, buffers)) / 1e6
    decode = messages / best_of(runs, lambda: _decode(file)) / 1e6
    every = messages / best_of(runs, lambda: _read(file, None)) / 1e6
    header = messages / best_of(runs, lambda: _read(file, HEADER)) / 1e6
    yield Figure(_GROUP, "all columns", every, unit)
    yield Figure(
        _GROUP, "all columns, of what decoding reaches", every / decode * 100, "%", least=80
    )
    yield Figure(_GROUP, "header columns", header, unit)
    yield Figure(
        _GROUP, "header columns, share of the scan's speed", header / scan * 100, "%", least=60
    )


def _read(file: CommitLogFile, columns: tuple[str, ...] | None) -> int:
    return sum(len(batch) for batch in reput.to_arrow(file.path, columns))


def _decode(file: CommitLogFile) -> int:
    """Decode all columns, range by range, without keeping the result. Return the number of rows."""
    tasks = plan_reading(find_logs([file.path])).tasks
    return sum(
        len(batch) for task in tasks for batch in RangeBatches(task.part, open_file=FileReader)
    )
