"""`reput export` of the benchmark store to Parquet on local[2], and where its time goes."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.memory import MemoryWatch
from benchmarks.own_process import in_own_process
from benchmarks.result import Figure
from reput.files.writer import sync_file
from reput.lakes.data_file import read_back, tally_of
from reput.lakes.parquet_files import writer_options
from reput.lakes.partitions import sorted_slices
from reput.lakes.task import warm_up, with_key
from reput.log.paths import find_logs
from reput.table.read import LogRange, RangeBatches

_GROUP = "export to Parquet on local[2]"
_PROFILED_BYTES = 64 << 20
_SLOTS = 2
_ALONE = "pyarrow alone, of batches as they are decoded"
_ROUNDS = 4  # the first finds memory that was never touched
Result = TypeVar("Result")


def measure(store: Path) -> Iterator[Figure]:
    """Export `store` beside itself; the table is deleted. All columns, unpartitioned, read back and synced."""
    output = store.parent / "exported"
    try:
        result = in_own_process("benchmarks.export", store, output)
        parts = _parts(str(store), output)
    finally:
        shutil.rmtree(output, ignore_errors=True)
    rate = result["rows"] / 1e6 / result["total_s"]
    yield Figure(_GROUP, "plan to commit", rate, "million messages/s", least=0.4)
    yield Figure(_GROUP, "bytes written", result["file_bytes"] / 1e9, "GB")
    yield Figure(_GROUP, "most memory of a Python worker", result["worker_bytes"] / 1e9, "GB")
    of_cores = _SLOTS * result["total_s"] / result["rows"]
    share = 100 * parts.pop(_ALONE) / of_cores
    yield Figure(_GROUP, "of the same batches written by pyarrow alone", share, "%", least=70)
    for name, seconds in parts.items():
        yield Figure(_GROUP, f"share of the cores: {name}", 100 * seconds / of_cores, "%")
    rest = 100 * (1 - sum(parts.values()) / of_cores)
    yield Figure(_GROUP, "share of the cores: Spark, waiting and the rest", rest, "%")


def _parts(store: str, folder: Path) -> dict[str, float]:
    """Seconds a message of each part of a task's work, one after the other in this process, the best of each."""
    warm_up()
    file = find_logs([store])[0].files[0]
    part = LogRange(file, file.start, file.start + _PROFILED_BYTES, store)
    rounds = [_profile(part, folder) for _ in range(_ROUNDS)]
    return {name: min(found[name] for found in rounds) for name in rounds[0]}


def _profile(part: LogRange, folder: Path) -> dict[str, float]:
    path = folder / "profiled.parquet"
    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Result]) -> Result:
        begun = time.perf_counter()
        result = work()
        seconds[name] = time.perf_counter() - begun
        return result

    batches = timed("decoding", lambda: list(RangeBatches(part)))
    timed("sums", lambda: [tally_of(batch) for batch in batches])
    table = pa.Table.from_batches([with_key(batch) for batch in batches])
    ((_, rows),) = timed("Arrow: sorting", lambda: list(sorted_slices(table, ())))
    data = timed("Arrow: Parquet", lambda: _encoded(rows))
    timed("disk", lambda: _write(path, data))
    timed("reading back", lambda: read_back(str(path)))
    timed(_ALONE, lambda: _write(path, _encoded(table)))
    return {name: value / len(table) for name, value in seconds.items()}


def _encoded(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **writer_options(table.schema, len(table))) as writer:
        writer.write_table(table, row_group_size=len(table))
    return sink.getvalue()


def _write(path: Path, data: pa.Buffer) -> None:
    path.write_bytes(data)
    sync_file(path)


def _export(store: str, output: str) -> dict[str, Any]:
    from reput.spark import export
    from reput.spark.session import create_session

    shutil.rmtree(output, ignore_errors=True)
    warm_up()
    spark = create_session("local[2]", "reput benchmark")
    with MemoryWatch() as memory:
        report = export(spark, store, output)
    spark.stop()
    return {**report.as_dict(), "worker_bytes": memory.workers}


if __name__ == "__main__":
    print(json.dumps(_export(*sys.argv[1:])))
