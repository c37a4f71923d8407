"""Create temporary folders and files of this process, which are deleted when it ends.

Folders for message bodies are private: only their owner can enter (mode 0700, files 0600). If tasks run as other users
of the owner's Unix group, the folder is shared with this group (mode 2770, files 0660). No other user may be able to
replace the folder.
"""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, get_args

from reput.base import is_out_of_reach
from reput.errors import StoreAccessError, UsageError, explained

Access = Literal["private", "group"]
"""The users of a folder: only its owner, or its owner and the members of its Unix group."""

_FOLDER_MODES: dict[Access, int] = {"private": 0o700, "group": 0o2770}
_GROUP_MAY_ENTER = 0o070


def new_private_folder(
    prefix: str, parent: str | os.PathLike[str] | None = None, access: Access = "private"
) -> Path:
    """Create a folder whose name begins with `prefix`.

    Args:
        parent: an existing folder, or one to create; None for the system's temporary folder.
        access: the users of the new folder.

    Raises:
        UsageError: `access` is neither "private" nor "group".
        StoreAccessError: other users can write to the parent, or the system refuses.
    """
    if access not in get_args(Access):
        raise UsageError(f"access must be private or group, not {access!r}")
    if parent is not None:
        if os.path.isdir(parent):
            _check_parent(Path(parent), access)
        if access == "private" and not is_out_of_reach(os.path.join(parent, prefix)):
            raise _of_another(parent)
        with explained(parent, "be created"):
            Path(parent).mkdir(mode=0o755, parents=True, exist_ok=True)
        # Check again, because the parent may have been missing before.
        _check_parent(Path(parent), access)
    with explained(parent or tempfile.gettempdir(), "hold a private folder"):
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent)).absolute()
        # mkdtemp creates a folder that only its owner can enter.
        folder.chmod(_FOLDER_MODES[access])
    return folder


def _check_parent(parent: Path, access: Access) -> None:
    """Raise StoreAccessError if another user could rename entries of the parent, and so replace our folder."""
    with explained(parent, "be read"):
        status = parent.stat()
    # In a sticky folder like /tmp, only owners can rename entries.
    if status.st_mode & stat.S_ISVTX:
        return
    writers = stat.S_IWOTH if access == "group" else stat.S_IWOTH | stat.S_IWGRP
    if status.st_mode & writers:
        raise StoreAccessError(
            f"{parent}: mode {stat.S_IMODE(status.st_mode):04o} lets other users write, so "
            f"they could replace the folder of staged files; choose a folder of your own, or remove "
            f"that permission"
        )
    if status.st_uid not in (os.geteuid(), 0) and access == "private":
        raise _of_another(parent)


def _of_another(parent: str | os.PathLike[str]) -> StoreAccessError:
    return StoreAccessError(
        f"{os.fspath(parent)}: belongs to another user, who could change staged files; choose a "
        f"folder of your own"
    )


def create_like_folder(path: str | os.PathLike[str]) -> None:
    """Create an empty file. Its Unix group may read and write it only if the folder is shared with this group.

    Raises:
        StoreAccessError: the file exists already, or the system refuses.
    """
    with explained(path, "be created"):
        folder_mode = os.stat(os.path.dirname(path) or ".").st_mode
        # Folders of mode 2770 come from `new_private_folder` with access "group".
        mode = 0o660 if folder_mode & _GROUP_MAY_ENTER and folder_mode & stat.S_ISGID else 0o600
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            # The umask may have removed permissions of the group.
            os.fchmod(fd, mode)
        finally:
            os.close(fd)


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


def first_mark(path: str, text: str) -> str:
    """Set a mark that other processes see, unless it exists: a symbolic link whose target is a text.

    Return the text of the mark. Raises StoreAccessError.
    """
    with explained(path, "be created"):
        try:
            # Creates the mark with its text in one step.
            os.symlink(text, path)
        except FileExistsError:
            return os.readlink(path)
    return text


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
    first_mark = staticmethod(first_mark)
    discard = staticmethod(discard_tree)
