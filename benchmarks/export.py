"""Measure `reput export` of the benchmark store to Parquet on local[2], and the time of its steps."""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

import reput
import reput.wings.lakes.api
from benchmarks.memory import MemoryWatch
from benchmarks.own_process import in_own_process
from benchmarks.result import Figure
from reput.engine.tables.log_paths import find_logs
from reput.engine.tables.read import LogRange, RangeBatches
from reput.io.writer import sync_file
from reput.wings.lakes.data_file import read_back, tally_of
from reput.wings.lakes.parquet_files import writer_options
from reput.wings.lakes.partitions import sorted_slices
from reput.wings.lakes.request import ExportRequest
from reput.wings.lakes.task import warm_up, with_key

_GROUP = "export to Parquet on local[2]"
_PRICE = "export to Parquet: the price of guarantees"
_BASE = "pyarrow"
_PROFILED_BYTES = 64 << 20
_SLOTS = 2
_ALONE = "only pyarrow, of batches as they are decoded"
# The first round is slower, because the system maps new memory.
_ROUNDS = 4
Result = TypeVar("Result")


def measure(store: Path) -> Iterator[Figure]:
    """Export all columns of `store` to a table without partitions beside it. Files are read back and synced.

    The table is deleted afterwards.
    """
    output = store.parent / "exported"
    try:
        result = in_own_process("benchmarks.export", store, output)
        parts = _parts(str(store), output)
    finally:
        shutil.rmtree(output, ignore_errors=True)
    yield from _prices(store, output)
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


def _prices(store: Path, output: Path) -> Iterator[Figure]:
    """Measure an export of the log's first file: with each profile, and step by step.

    The profiles are compared with pyarrow's own writer, with zstd.
    """
    file = find_logs([str(store)])[0].files[0].path
    used = {
        name: in_own_process("benchmarks.export", file, output, name)
        for name in (_BASE, "safe", "fast")
    }
    rows = used[_BASE]["rows"]
    base = used[_BASE]["cpu_s"]
    yield Figure(_PRICE, "a dataset into pyarrow's writer", 1e6 * base / rows, "us per message")
    for name, most in (("safe", 2.0), ("fast", 1.3)):
        of_base = used[name]["cpu_s"] / base
        yield Figure(_PRICE, f"profile {name}", of_base, "times pyarrow", most=most)
        yield Figure(_PRICE, f"profile {name}: memory", used[name]["memory_bytes"] / 1e6, "MB")
    yield Figure(_PRICE, "pyarrow: memory", used[_BASE]["memory_bytes"] / 1e6, "MB")
    output.mkdir(exist_ok=True)
    rounds = [_steps(str(store), output / "steps.parquet") for _ in range(_ROUNDS)]
    for step in rounds[0]:
        seconds = min(found[step] for found in rounds)
        yield Figure(_PRICE, f"step: {step}", 1e6 * seconds, "us per message")


def _steps(store: str, path: Path) -> dict[str, float]:
    """Return the processor time per message of each step of an export, except decoding."""
    file = find_logs([store])[0].files[0]
    batches = list(RangeBatches(LogRange(file, file.start, file.start + _PROFILED_BYTES, store)))
    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Result]) -> Result:
        begun = time.process_time()
        result = work()
        seconds[name] = time.process_time() - begun
        return result

    timed("sums of sizes and CRCs", lambda: [tally_of(batch) for batch in batches])
    table = pa.Table.from_batches([with_key(batch) for batch in batches])
    ((_, rows),) = timed("sorting", lambda: list(sorted_slices(table, ())))
    data = timed("Parquet", lambda: _encoded(rows))
    timed("Parquet without Bloom filters", lambda: _encoded(rows, bloom_filter_options=None))
    path.write_bytes(data)
    timed("syncing", lambda: sync_file(path))
    timed("reading back", lambda: read_back(str(path)))
    seconds["Bloom filters"] = max(
        seconds["Parquet"] - seconds.pop("Parquet without Bloom filters"), 0.0
    )
    return {name: value / len(table) for name, value in seconds.items()}


def _used(store: str, output: str, name: str) -> dict[str, Any]:
    """Return the processor time and the memory of one export in this process."""
    warm_up()
    begun = time.process_time()
    if name == _BASE:
        batches = reput.dataset(store).scanner().to_reader()
        path = Path(output, "alone.parquet")
        path.parent.mkdir(exist_ok=True)
        with pq.ParquetWriter(path, batches.schema, compression="zstd") as writer:
            for batch in batches:
                writer.write_batch(batch)
        rows = pq.read_metadata(path).num_rows
    else:
        request = ExportRequest(profile="fast" if name == "fast" else "safe")
        rows = reput.wings.lakes.api.export(
            store, f"{output}-{name}", request=request, runner="serial"
        ).rows
        for folder in (f"{output}-{name}", f"{output}-{name}.reput"):
            shutil.rmtree(folder)
    cpu_s = time.process_time() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return {"rows": rows, "cpu_s": cpu_s, "memory_bytes": peak}


def _parts(store: str, folder: Path) -> dict[str, float]:
    """Return the elapsed seconds per message of each part of a task's work.

    The parts run one after the other in this process. For each part, the fastest of some rounds counts.
    """
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


def _encoded(table: pa.Table, **others: Any) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    options = {**writer_options(table.schema, len(table)), **others}
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
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
    print(json.dumps((_export if len(sys.argv) == 3 else _used)(*sys.argv[1:])))
