"""The machine's own limits, measured in the same run as the rest."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from reput.bench.figure import Figure, best_of
from reput.files.writer import write_durable
from reput.log.files import CommitLogFile
from reput.log.sources import LogListing

_MEMORY_BYTES = 256 << 20
_WRITTEN_BYTES = 256 << 20
_MOST_READ_BYTES = 1 << 30
_READ_BYTES = 4 << 20
_RUNS = 3


def limits(scratch: Path, listing: LogListing) -> Iterator[Figure]:
    """Of memory, of the disk of `scratch`, and of the one that the log lies on; one core.

    Raises StoreAccessError, StoreChangedError.
    """
    yield Figure("machine", "cores", float(len(os.sched_getaffinity(0))), "")
    source = np.ones(_MEMORY_BYTES // 8, np.int64)
    target = np.empty_like(source)
    copied = best_of(_RUNS, lambda: np.copyto(target, source))
    yield Figure("machine", "memory copy", _MEMORY_BYTES / 1e9 / copied, "GB/s")
    data = source[: _WRITTEN_BYTES // 8].tobytes()
    written = best_of(1, lambda: write_durable(scratch / "written", data))
    yield Figure("machine", "write with sync, scratch", len(data) / 1e9 / written, "GB/s")
    size_bytes = min(sum(file.size for file in listing.files), _MOST_READ_BYTES)
    for name in ("read of the log, as it was cached", "read of the log, again"):
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
