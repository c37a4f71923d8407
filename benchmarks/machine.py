"""Measure the limits of the machine, with which the other figures of the same run can be compared."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.result import Figure, best_of

_BYTES = 1 << 30
_CHUNK = 4 << 20


def measure(folder: Path) -> Iterator[Figure]:
    """Measure on one core: reading memory, writing and syncing a file in `folder`, reading it from the page cache."""
    data = np.ones(_BYTES // 8, np.int64)
    gigabytes = _BYTES / 1e9
    yield Figure("machine", "memory read", gigabytes / best_of(5, data.max), "GB/s")
    half = len(data) // 2
    seconds = best_of(5, lambda: np.copyto(data[:half], data[half:]))
    yield Figure("machine", "memory copy", gigabytes / 2 / seconds, "GB/s")
    path = folder / "machine-write"
    chunk = data[: _CHUNK // 8].tobytes()
    write_s, sync_s = [], []
    for _ in range(3):
        written, synced = _write(path, chunk)
        write_s.append(written)
        sync_s.append(synced)
    yield Figure("machine", "file write, page cache", gigabytes / min(write_s), "GB/s")
    yield Figure("machine", "file write with fdatasync", gigabytes / min(sync_s), "GB/s")
    yield Figure(
        "machine", "file read, page cache", gigabytes / best_of(3, lambda: _read(path)), "GB/s"
    )
    path.unlink()


def _write(path: Path, chunk: bytes) -> tuple[float, float]:
    """Write the file, and sync it. Return the seconds of the write, and the seconds of write and sync together."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        written = best_of(1, lambda: [os.write(fd, chunk) for _ in range(_BYTES // _CHUNK)])
        return written, written + best_of(1, lambda: os.fdatasync(fd))
    finally:
        os.close(fd)


def _read(path: Path) -> None:
    buffer = bytearray(_CHUNK)
    fd = os.open(path, os.O_RDONLY)
    try:
        for position in range(0, _BYTES, _CHUNK):
            os.preadv(fd, [buffer], position)
    finally:
        os.close(fd)
