"""Measure the machine's limits, then a scan and a rebuild, then queries and a look-up in the rebuilt indexes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from reput.base import Progress, Runner, StoreConfig, silent, usable_cpus
from reput.core import BROKER, CommitLogFile, FileScan, LogListing, MessageStore, StoreLog
from reput.engine.rebuild import rebuild_store
from reput.engine.stores.open_store import open_store
from reput.engine.tables import LogRange, RangeBatches, find, keys_of
from reput.engine.tables.lookup.warm_up import warm_up
from reput.errors import UsageError
from reput.io import DISK

# Larger than the processor's caches, so that memory is measured.
_MEMORY_BYTES = 256 << 20
_WRITTEN_BYTES = 256 << 20
_MOST_READ_BYTES = 1 << 30
_READ_BYTES = 4 << 20
_RUNS = 3
_SCANNED_BYTES = 2 << 30
_SAMPLED_FILES, _SAMPLED_BYTES = 64, 1 << 20
_QUERIES = 1_000
_MOST_KEYS = 100_000
Key = tuple[str, str]
"""What one query asks for: a topic, and a key (a unique key, or one of a message's KEYS)."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value, one line of the output.

    Attributes:
        group: The heading under which it is printed, such as "machine" or "query".
        name: What was measured.
        value, unit: The number and its unit.
    """

    group: str
    name: str
    value: float
    unit: str

    def as_json(self) -> dict[str, str | float]:
        return {"group": self.group, "name": self.name, "value": self.value, "unit": self.unit}


def best_of(runs: int, work: Callable[[], object]) -> float:
    """Return the seconds of the fastest run: other programs can only slow a run down."""
    times = []
    for _ in range(runs):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)


def limits(scratch: Path, listing: LogListing) -> Iterator[Figure]:
    """Yield the speeds of memory, of the disk of `scratch` and of the disk of the log, measured with one core.

    Raises StoreAccessError, StoreChangedError.
    """
    yield Figure("machine", "cores", float(usable_cpus()), "")
    source = np.ones(_MEMORY_BYTES // 8, np.int64)
    target = np.empty_like(source)
    copied = best_of(_RUNS, lambda: np.copyto(target, source))
    yield Figure("machine", "memory copy", _MEMORY_BYTES / 1e9 / copied, "GB/s")
    data = source[: _WRITTEN_BYTES // 8].tobytes()
    # Write only once: a second run would be faster, because the blocks of the file are allocated already.
    written = best_of(1, lambda: DISK.write_durable(scratch / "written", data))
    yield Figure("machine", "write with sync, scratch", len(data) / 1e9 / written, "GB/s")
    size_bytes = min(sum(file.size for file in listing.files), _MOST_READ_BYTES)
    for name in ("first read of the log", "second read of the log (page cache)"):
        read = best_of(1, lambda: _read(listing, listing.files, size_bytes))
        yield Figure("machine", name, size_bytes / 1e9 / read, "GB/s")


def _read(listing: LogListing, files: Sequence[CommitLogFile], size_bytes: int) -> None:
    buffer = np.empty(_READ_BYTES, np.uint8)
    for file in files:
        with listing.open_file(file.path) as reader:
            for position in range(0, min(file.size, size_bytes), _READ_BYTES):
                length = min(_READ_BYTES, file.size - position)
                reader.read_into(buffer[:length], position)
        size_bytes -= file.size
        if size_bytes <= 0:
            return


def bench(
    store: Path,
    scratch: Path,
    runner: Runner,
    config: StoreConfig | None = None,
    progress: Progress = silent,
) -> Iterator[Figure]:
    """Measure a store, and yield figures as they become available. The store is only read.

    Args:
        store: A store directory.
        scratch: An existing folder for the rebuilt indexes, which need about a fifth of the log's size.
        runner: Runs the tasks of the rebuild and of the look-up.
        config: The broker's settings; by default sizes are derived from the store's files.
        progress: Called as the rebuild proceeds.

    Raises:
        UsageError: the log has no message with a key.
        StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    warm_up()  # The first measurement must not include the compilation or loading of kernels.
    listing = StoreLog(store).list()
    yield from limits(scratch, listing)
    keys = sampled_keys(listing)
    if not keys:
        raise UsageError(f"{store}: has no message with a key, so look-ups cannot be measured")
    yield from _scan(listing)
    report = rebuild_store(
        runner, store, config=config, output=scratch / "rebuilt", progress=progress
    )
    group = f"rebuild, {runner.parallelism} at a time"
    yield Figure(group, "messages", float(report.messages), "")
    yield Figure(group, "in all", report.total_s, "s")
    yield Figure(group, "rate", report.messages / report.total_s, "messages/s")
    with open_store(store, index=scratch / "rebuilt", config=report.config) as opened:
        yield from _queries(opened, keys[:_QUERIES])
    yield from _look_up(store, scratch, runner, keys, report.config)


def sampled_keys(listing: LogListing) -> list[Key]:
    """Return keys of messages from the beginnings of log files, evenly spread over the log."""
    files = listing.files
    chosen = files[:: max(len(files) // _SAMPLED_FILES, 1)]
    found: dict[Key, None] = {}
    for file in chosen:
        stop = min(file.start + _SAMPLED_BYTES, file.end)
        part = LogRange(file, file.start, stop, at_record=True)
        columns = ("topic", "unique_key", "keys")
        for batch in RangeBatches(part, columns, on_corrupt="skip", open_file=listing.open_file):
            for topic, unique_key, keys in zip(
                *(c.to_pylist() for c in batch.columns), strict=True
            ):
                if key := unique_key or next(iter(keys or ()), None):
                    found[topic, key] = None
    return list(islice(found, _MOST_KEYS))


def _scan(listing: LogListing) -> Iterator[Figure]:
    """Measure a scan of the log in this process, on one core."""
    messages = size_bytes = 0
    begun = time.perf_counter()
    for file in listing.files:
        if size_bytes < _SCANNED_BYTES:
            scan = FileScan(file, file.start, file.end, BROKER, open_file=listing.open_file)
            messages += sum(len(batch) for batch in scan.batches())
            size_bytes += scan.end.position - file.start
    taken = time.perf_counter() - begun
    yield Figure("scan, one core", "messages", messages / taken, "messages/s")
    yield Figure("scan, one core", "bytes", size_bytes / 1e9 / taken, "GB/s")


def _queries(store: MessageStore, keys: Sequence[Key]) -> Iterator[Figure]:
    """Measure queries of all keys, of all keys again (now with files in the page cache), and of absent keys."""
    for name in ("query, first time, median", "query, again, median"):
        times = []
        for topic, key in keys:
            begun = time.perf_counter()
            store.query(topic, key, limit=1)
            times.append(time.perf_counter() - begun)
        yield Figure("query", name, statistics.median(times) * 1e6, "µs")
    # No index entry has these keys, so a query follows slots and chains, but reads no message.
    absent = [(topic, f"{key}?") for topic, key in keys]
    taken = best_of(1, lambda: [store.query(topic, key) for topic, key in absent])
    yield Figure("query", "query of an absent key, mean", taken / len(absent) * 1e6, "µs")


def _look_up(
    store: Path, scratch: Path, runner: Runner, keys: Sequence[Key], config: StoreConfig | None
) -> Iterator[Figure]:
    topics, texts = zip(*keys, strict=True)
    table = pa.table({"topic": pa.array(topics), "key": pa.array(texts)})
    begun = time.perf_counter()
    options = {"index": scratch / "rebuilt", "config": config, "staging": scratch}
    with find([store], keys_of(table), runner, **options) as found:  # type: ignore[arg-type]
        counts = found.answer.counts()
    taken = time.perf_counter() - begun
    yield Figure("look-up", "keys", float(len(keys)), "")
    yield Figure("look-up", "rows found", float(counts.messages), "")
    yield Figure("look-up", "in all", taken, "s")
    yield Figure("look-up", "rate", len(keys) / taken, "keys/s")
