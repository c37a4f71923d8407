"""Sparse files: their allocated bytes, and copies that preserve holes."""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_STAT_BLOCK_BYTES = 512
_COPY_BYTES = 1 << 20


def allocated_bytes(path: Path) -> int:
    """Return the bytes that a file, or all files of a folder, occupy on disk."""
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sum(p.stat().st_blocks * _STAT_BLOCK_BYTES for p in files)


def data_ranges(path: Path) -> Iterator[tuple[int, int]]:
    """The (start, end) of the parts of a file that are not holes, ascending.

    A file system without holes answers with the whole file.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        position = 0
        while position < size:
            try:
                start = os.lseek(file.fileno(), position, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                raise
            position = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            yield start, position


def copy_file(source: str | Path, target: str | Path) -> Path:
    """Copy a file and keep its holes. Returns the target."""
    source, target = Path(source), Path(target)
    with source.open("rb") as reader, target.open("wb") as writer:
        for start, end in data_ranges(source):
            reader.seek(start)
            writer.seek(start)
            while chunk := reader.read(min(_COPY_BYTES, end - start)):
                writer.write(chunk)
                start += len(chunk)
        writer.truncate(source.stat().st_size)
    return target


def copy_store(source: Path, target: Path) -> Path:
    """Copy a store directory to `target`, which must not exist. Returns the target."""
    shutil.copytree(source, target, copy_function=copy_file)
    return target
