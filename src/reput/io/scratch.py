"""Create temporary folders and files of this process, which are deleted when it ends."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from reput.io.private import Access, new_private_folder


def unnamed_file() -> IO[bytes]:
    """Return a new temporary file without a name. It is deleted when it is closed."""
    return tempfile.TemporaryFile()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new folder, and delete it after the with block."""
    with tempfile.TemporaryDirectory(prefix="reput-") as root:
        yield Path(root)


@contextmanager
def scratch_file(folder: str, name: str, content: bytes) -> Iterator[Path]:
    """Yield a new temporary folder that contains one file, at the relative path `folder`/`name`.

    Delete the temporary folder after the with block.
    """
    with scratch_folder() as root:
        path = root / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        yield root


def folder_until_exit(
    prefix: str, within: str | os.PathLike[str] | None = None, access: Access = "private"
) -> Path:
    """Return a new folder, created by `new_private_folder`. It is deleted when the process ends.

    Raises:
        UsageError, StoreAccessError.
    """
    folder = new_private_folder(prefix, within, access)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def discard_tree(folder: Path) -> None:
    """Delete a folder of this process. Entries that cannot be deleted are left."""
    shutil.rmtree(folder, ignore_errors=True)


def private_folder(folder: Path) -> None:
    """Create a folder that only this user can enter, unless it exists. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_executable(path: Path, content: bytes) -> None:
    """Write a program to a temporary file and rename it, so that no process runs half of it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        # `mkstemp` creates files that only this user can read, and nobody can run.
        os.chmod(temporary, 0o755)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
