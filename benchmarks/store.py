"""Measure the speed of reput with a store of yours: python -m benchmarks.store STORE.

Measures the limits of the machine, a scan of the CommitLog, a rebuild of all indexes into a scratch folder, queries by
key, and a look-up of many keys. The store is only read. The scratch folder needs space for the indexes, about a fifth
of the log. Stop other programs first, and run it twice: the first run may read the log from disk, the second one reads
it from the page cache. To measure a part of a large store, make a folder with hard links to some of its log files.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.result import Figure, best_of, show
from reput.base import Progress, Runner, StoreConfig, silent, usable_cpus
from reput.core import CommitLogFile, FileScan, LogListing, MessageStore, StoreLog
from reput.core.log.verdict import ScanMode
from reput.engine.lookup import Keys, find, warm_up_look_up
from reput.engine.rebuild import rebuild_store
from reput.engine.rebuild.warm_up import warm_up as warm_up_rebuild
from reput.engine.stores import Chosen, open_store, opened_runner
from reput.engine.stores.opening import log_bytes
from reput.engine.tables import LogRange, RangeBatches
from reput.errors import ReputError, UsageError
from reput.io import DISK, Location, Scratch

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
    warm_up_look_up()  # The first measurement must not include the compilation or loading of kernels.
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
            scan = FileScan(
                file, file.start, file.end, ScanMode.BROKER, open_file=listing.open_file
            )
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
    with find([store], Keys.of(table), runner, **options) as found:  # type: ignore[arg-type]
        counts = found.answer.counts()
    taken = time.perf_counter() - begun
    yield Figure("look-up", "keys", float(len(keys)), "")
    yield Figure("look-up", "rows found", float(counts.messages), "")
    yield Figure("look-up", "in all", taken, "s")
    yield Figure("look-up", "rate", len(keys) / taken, "keys/s")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure a store, and print the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.store",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("store", metavar="STORE")
    parser.add_argument(
        "--scratch", metavar="DIR", help="parent of the scratch folder; the system's by default"
    )
    parser.add_argument("--broker-config", metavar="FILE", help="the broker's configuration")
    parser.add_argument("--runner", default="auto", help="auto, serial, processes or spark")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    try:
        figures = measured(options.store, options.scratch, options.broker_config, options.runner)
    except ReputError as error:
        print(error, file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps([asdict(figure) for figure in figures], indent=2))
        return 0
    show(figures)
    return 0


def measured(
    store: str, scratch: str | None, broker_config: str | None, runner: str
) -> list[Figure]:
    """Measure a store with a scratch folder that is deleted at the end. Raises the errors of `bench`."""
    Location.refuse_url(store)
    config = None if broker_config is None else StoreConfig.from_broker_config(broker_config)
    folder = Scratch.private_folder("reput-bench-", scratch)
    try:
        with opened_runner(Chosen.of(runner), log_bytes(store), warm_up_rebuild) as tasks:
            return list(bench(Path(store), folder, tasks, config))
    finally:
        Scratch.discard(folder)


if __name__ == "__main__":
    sys.exit(main())
