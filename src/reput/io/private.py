"""Create temporary folders and files for message bodies, which no other user can read or change.

Only its owner can enter such a folder (mode 0700, files 0600). If tasks run as other users of the owner's Unix group,
the folder is shared with this group (mode 2770, files 0660). No other user may be able to replace the folder.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Literal, get_args

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
