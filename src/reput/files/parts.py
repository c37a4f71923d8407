"""Folders of part-* files: those that Spark has written, named after what they hold, and our own."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from reput.files.writer import explained, make_folder


def rename_parts(folder: Path, suffix: str, new_suffix: str) -> None:
    """Rename part-* with that suffix. Their checksums, which Hadoop keeps by name, go. Raises OSError."""
    for path in folder.glob(f"part-*{suffix}"):
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        path.rename(path.with_suffix(new_suffix))


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder of this attempt's own to write into; when the body succeeds it is renamed to `path`.

    Raises StoreAccessError, also where `path` is there already and is not an empty folder.
    """
    attempt = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        make_folder(attempt)
        yield attempt
        with explained(path, "be created"):
            attempt.rename(path)
    finally:
        shutil.rmtree(attempt, ignore_errors=True)


def write_chunks(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write a file piece by piece. Raises StoreAccessError."""
    with explained(path, "be written"), open(path, "wb") as file:
        file.writelines(chunks)
