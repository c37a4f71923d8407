"""Create temporary folders and files of this process, which are deleted when it ends."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from reput.errors import explained
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


def view_of_links(name: str, entries: Mapping[str, str]) -> str:
    """Return a folder named `name` with the given links, in a temporary folder of this process.

    The folder and its links are deleted when the process ends, but not the targets of the links. Raises
    StoreAccessError.
    """
    temporary = tempfile.TemporaryDirectory(prefix="reput-view-")
    atexit.register(temporary.cleanup)
    folder = os.path.join(temporary.name, name)
    with explained(folder, "be created"):
        os.mkdir(folder)
        for link, path in entries.items():
            os.symlink(os.path.abspath(path), os.path.join(folder, link))
    return folder


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


class Scratch:
    """Temporary files and folders, and where programs of this user are kept."""

    file = staticmethod(scratch_file)
    folder = staticmethod(scratch_folder)
    folder_until_exit = staticmethod(folder_until_exit)
    private_folder = staticmethod(new_private_folder)
    unnamed_file = staticmethod(unnamed_file)
    view_of_links = staticmethod(view_of_links)
    discard = staticmethod(discard_tree)
