"""Write folders of part-* files, and rename the part-* files that Spark has written."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from reput.io.anchors import at, open_anchored, writing_to
from reput.io.writer import explained, make_folder, remove_tree


def rename_parts(folder: Path, suffix: str, new_suffix: str) -> None:
    """Give part-* files another suffix. Raises OSError.

    Hadoop's checksum files are deleted, because their names contain the old suffix.
    """
    for path in folder.glob(f"part-*{suffix}"):
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        path.rename(path.with_suffix(new_suffix))


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to `path` when the with block succeeds.

    Raises StoreAccessError, also if `path` exists and is not an empty folder.
    """
    attempt = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    with writing_to(path):
        try:
            make_folder(attempt)
            yield attempt
            with (
                explained(path, "be created"),
                at(attempt) as (old, there),
                at(path) as (new, here),
            ):
                os.rename(there, here, src_dir_fd=old, dst_dir_fd=new)
        finally:
            # If the with block failed, its error must not be replaced by an error of this clean-up.
            with suppress(OSError):
                remove_tree(attempt)


def write_chunks(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write a file piece by piece. Raises StoreAccessError."""
    with explained(path, "be written"), open_part(path) as file:
        file.writelines(chunks)


def open_part(path: Path) -> BinaryIO:
    """Create a file.

    Raises OSError. If this process runs as root, raises StoreAccessError for a link that another user may have created.
    """
    return open(path, "wb", opener=open_anchored)
