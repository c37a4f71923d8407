"""Compare the speed of `reput archive` with the slowest of its parts, each measured alone in the same run.

The parts are: reading the log from the disk, compressing it on all processors, and uploading the compressed objects to
an S3 server on the loopback interface. The server shares the processors, and so does everything else that the archiver
does: checksums, the scan and the indexes.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.generate import MESSAGE_BYTES, write_store
from benchmarks.result import Figure
from reput import archive
from reput.format.seekable_zstd import FRAME_BYTES
from reput.io.archive import Archive
from reput.io.bucket import Bucket
from reput.io.reader import FileReader
from reput.wings.archive.copying import LEVEL, LogFrames

_FILES, _FILE_BYTES = 2, 1 << 30
_LOG_BYTES = _FILES * _FILE_BYTES
_GROUP = "archive, speed of 2 log files of 1 GiB, by their bytes"
_CHUNK = 1 << 20
_WORDS, _LETTERS = 4096, 7


def measure(folder: Path) -> Iterator[Figure]:
    """Measure, and leave nothing in `folder`."""
    from tests.remote.s3_server import make_bucket, s3_process

    store, place = folder / "speed-store", folder / "speed-archive"
    try:
        _write(store)
        files = sorted((store / "commitlog").iterdir())[:_FILES]
        archive(store, place)  # also loads the kernels
        with s3_process() as options:
            make_bucket("archives", options)
            parts = {
                "read from the disk": _rate(lambda: _read(files), files),
                "compress": _rate(lambda: _compress(files)),
                "upload": _rate(lambda: _upload(place, Bucket("s3://archives/parts", options))),
            }
            url, log = "s3://archives/archive", Bucket("s3://archives/log", options)
            whole = {
                "copy the log": _rate(lambda: _copy_log(files, log), files),
                "archive": _rate(lambda: archive(store, url, storage_options=options), files),
            }
    finally:
        shutil.rmtree(store, ignore_errors=True)
        shutil.rmtree(place, ignore_errors=True)
    for name, (rate, processor) in (parts | whole).items():
        yield Figure(_GROUP, name, rate / 1e6, "MB/s")
        yield Figure(_GROUP, f"{name}: processor time", processor, "ms/MB")
    slowest = min(rate for rate, _ in parts.values())
    for name, (rate, _) in whole.items():
        yield Figure(_GROUP, f"{name}, of the slowest part", rate / slowest, "", least=0.8)


def _write(store: Path) -> None:
    """Write a store whose bodies have random words, so that the log compresses as real ones do."""
    # The last file has one message, because it is not archived.
    size = (_FILES * (_FILE_BYTES // MESSAGE_BYTES) + 1) * MESSAGE_BYTES
    write_store(store, size, _FILE_BYTES)
    random = np.random.default_rng(0)
    words = random.integers(ord("a"), ord("z") + 1, (_WORDS, _LETTERS), np.uint8)
    for path in sorted((store / "commitlog").iterdir())[:_FILES]:
        log = np.memmap(path, np.uint8, "r+")
        rows = log[: len(log) // MESSAGE_BYTES * MESSAGE_BYTES].reshape(-1, MESSAGE_BYTES)
        first = bytes(rows[0])
        begin, count = first.index(b"x" * _LETTERS), first.count(b"x") // _LETTERS
        rows[:, begin : begin + count * _LETTERS] = words[
            random.integers(0, _WORDS, (len(rows), count))
        ].reshape(len(rows), -1)
        log.flush()


def _rate(call: Callable[[], object], cold: list[Path] | None = None) -> tuple[float, float]:
    """Return bytes of the log per second, and this process's milliseconds of processor time per megabyte.

    The files in `cold` are dropped from the page cache first.
    """
    os.sync()
    for path in cold or ():
        with FileReader(str(path)) as reader:
            os.posix_fadvise(reader.fileno, 0, 0, os.POSIX_FADV_DONTNEED)
    began, used = time.perf_counter(), time.process_time()
    call()
    seconds, processor = time.perf_counter() - began, time.process_time() - used
    return _LOG_BYTES / seconds, processor * 1e9 / _LOG_BYTES


def _read(files: list[Path]) -> None:
    buffer = np.empty(_CHUNK, np.uint8)
    for path in files:
        with FileReader(str(path)) as reader:
            for position in range(0, _FILE_BYTES, _CHUNK):
                reader.read_into(buffer, position)


def _compress(files: list[Path]) -> None:
    """Compress the files as the archiver does, but one after another from memory."""

    def compressed(data: memoryview) -> int:
        codec = pa.Codec("zstd", compression_level=LEVEL)
        frames = range(0, len(data), FRAME_BYTES)
        return sum(len(codec.compress(data[at : at + FRAME_BYTES], asbytes=True)) for at in frames)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for path in files:
            data = memoryview(path.read_bytes())
            pieces = (data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK))
            list(pool.map(compressed, pieces))


def _upload(place: Path, bucket: Bucket) -> None:
    for name in Archive(str(place)).manifest.objects():
        with FileReader(str(place / name)) as reader:
            starts = range(0, reader.size, _CHUNK)
            bucket.upload(name, (reader.read(at, min(_CHUNK, reader.size - at)) for at in starts))


def _copy_log(files: list[Path], bucket: Bucket) -> None:
    """Do what the archiver does with log files, but write no indexes."""
    for path in files:
        with FileReader(str(path)) as reader:
            bucket.upload(f"{path.name}.zst", LogFrames(reader, _FILE_BYTES).chunks())
