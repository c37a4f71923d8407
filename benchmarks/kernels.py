"""Measure kernels on one core: scan, insertion, and look-up of many keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.result import Figure, best_of
from reput.base.config import StoreConfig
from reput.core.log.files import CommitLogFile
from reput.core.log.scan import FileScan, ScanBuffers
from reput.core.log.sources import StoreLog
from reput.core.log.verdict import ScanMode
from reput.format.dtypes import MESSAGE_DTYPE
from reput.kernels.index_chains import INDEX_COUNT, look_up_keys, put_keys

_LOOK_UPS = 2_000_000
_FAR = 1 << 62


def measure(store: Path) -> Iterator[Figure]:
    yield from _scan(store)
    yield from _index()


def _scan(store: Path) -> Iterator[Figure]:
    file = StoreLog(store).list().files[0]
    buffers = ScanBuffers()

    messages = walk(file, buffers)
    seconds = best_of(5, lambda: walk(file, buffers))
    yield Figure(
        "kernels", "scan, page cache warm", messages / seconds / 1e6, "million messages/s", least=5
    )
    yield Figure("kernels", "scan", file.size / seconds / 1e9, "GB/s")


def walk(file: CommitLogFile, buffers: ScanBuffers) -> int:
    """Scan a file. Return the number of its messages."""
    scan = FileScan(file, file.start, file.end, ScanMode.BROKER, buffers=buffers)
    return sum(len(batch) for batch in scan.batches())


def _index() -> Iterator[Figure]:
    config = StoreConfig()
    entries = config.index_items - 1
    random = np.random.default_rng(1)
    key_hash = random.integers(0, 1 << 31, entries).astype(np.int32)
    key_row = np.repeat(np.arange(entries // 2 + 1, dtype=np.int32), 2)[:entries]
    messages = np.zeros(entries // 2 + 1, MESSAGE_DTYPE)
    messages["physical_offset"] = np.arange(len(messages)) * 380
    messages["store_timestamp"] = 1_700_000_000_000 + np.arange(len(messages)) // 10
    slots = np.zeros(config.hash_slots, np.uint32)
    items = np.zeros((config.index_items, 5), np.uint32)
    header = np.zeros(6, np.int64)

    def put() -> None:
        slots[:], header[:] = 0, 0
        header[INDEX_COUNT] = 1
        put_keys(
            header, slots, items, 0, config.index_items, key_hash, key_row, messages, 0, entries
        )

    seconds = best_of(4, put)
    yield Figure(
        "kernels",
        "insertion of a full IndexFile",
        entries / seconds / 1e6,
        "million keys/s",
        least=30,
    )
    present = key_hash[random.integers(0, entries, _LOOK_UPS // 2)]
    absent = random.integers(0, 1 << 31, _LOOK_UPS // 2).astype(np.int32)
    wanted = random.permutation(np.concatenate((present, absent)))
    seconds = _look_up(slots, items, int(header[INDEX_COUNT]), wanted)
    yield Figure(
        "kernels",
        "look-up in a full IndexFile, half present",
        len(wanted) / seconds / 1e6,
        "million keys/s",
        least=6,
    )


def _look_up(
    slots: npt.NDArray[np.uint32],
    items: npt.NDArray[np.uint32],
    count: int,
    wanted: npt.NDArray[np.int32],
) -> float:
    hits_key, hits_offset = np.empty(2 * len(wanted), np.int32), np.empty(2 * len(wanted), np.int64)
    broken = np.zeros(len(wanted), np.uint8)

    def look_up() -> None:
        done, _ = look_up_keys(
            slots, items, count - 1, 0, _FAR, wanted, 0, hits_key, hits_offset, broken
        )
        if done != len(wanted) or broken.any():
            raise RuntimeError("look-up did not finish")

    look_up()
    return best_of(4, look_up)
