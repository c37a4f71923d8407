"""Measure queues in RocksDB (5.x): the time to read them, and to rebuild them in comparison with queues in files."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.generate import write_store
from benchmarks.result import Figure
from reput.base.config import StoreConfig
from reput.base.tasks import SerialRunner
from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import StoreLog
from reput.core.queues.store_queues import open_queues
from reput.engine.rebuild.driver import rebuild_store
from reput.format.consume_queue import ENTRY_BYTES

_GROUP = "queues in RocksDB, one core"
_LOG_BYTES = 300 << 20
_RUNS = 3


def measure(folder: Path) -> Iterator[Figure]:
    """Measure on stores in `folder`, and delete them."""
    store = folder / "rocksdb"
    kinds: tuple[str, str] = ("files", "rocksdb")
    try:
        messages = write_store(store, _LOG_BYTES)
        rebuilt = {kind: float("inf") for kind in kinds}
        # Alternate between the kinds of queues, because the speed of the machine changes.
        for _ in range(_RUNS):
            for kind in kinds:
                rebuilt[kind] = min(
                    rebuilt[kind], _rebuild(store, folder / f"rocksdb-{kind}", kind)
                )
        for kind, seconds in rebuilt.items():
            yield Figure(_GROUP, f"rebuild, {kind}", seconds, "s")
        slower = rebuilt["rocksdb"] / rebuilt["files"]
        yield Figure(_GROUP, "rebuild, of that of files", slower, "x", most=2)
        read = min(_read(store, folder / "rocksdb-rocksdb", messages) for _ in range(_RUNS))
        rate = messages / read / 1e6
        yield Figure(_GROUP, "entries read", rate, "million/s", least=2)
    finally:
        for path in (store, *(folder / f"rocksdb-{kind}" for kind in kinds)):
            shutil.rmtree(path, ignore_errors=True)


def _rebuild(store: Path, output: Path, kind: str) -> float:
    shutil.rmtree(output, ignore_errors=True)
    begun = time.perf_counter()
    rebuild_store(SerialRunner(), store, config=StoreConfig(), output=output, queues=kind)
    return time.perf_counter() - begun


def _read(store: Path, output: Path, messages: int) -> float:
    """Return the processor time (seconds) to read all entries of all queues."""
    begun = time.process_time()
    with (
        closing(CommitLogReader(StoreLog(store))) as log,
        closing(open_queues(output, open_log=lambda: log)) as queues,
    ):
        size = 0
        for topic, queue_id in queues.list():
            queue = queues.queue(topic, queue_id)
            size += sum(map(len, queue.entry_bytes(0, queue.max_queue_offset())))
    if size != messages * ENTRY_BYTES:
        raise RuntimeError(f"read {size} bytes of entries for {messages} messages")
    return time.process_time() - begun
