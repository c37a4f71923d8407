"""Check whether another user could replace a folder along a path while the superuser (root) uses the path."""

from __future__ import annotations

import os
import stat

_MOST_LINKS = 40


def is_out_of_reach(path: str | os.PathLike[str]) -> bool:
    """Return whether only root can replace the file or folder at a path, and each folder and link along the path.

    If this process does not run as root, return True without a check: nobody gains rights by tricking this process.
    """
    if os.geteuid() != 0:
        return True
    names, place, links = os.path.abspath(path).split("/")[:0:-1], "/", 0
    folder = os.lstat(place)
    while names:
        if not _is_closed(folder):
            return False
        place = os.path.normpath(os.path.join(place, names.pop()))
        try:
            status = os.lstat(place)
        except OSError:  # The rest of the path does not exist yet. Root will create and own it.
            return True
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if status.st_uid != 0 or links > _MOST_LINKS:
                return False
            target = os.readlink(place)
            names += [name for name in target.split("/")[::-1] if name]
            place = "/" if target.startswith("/") else os.path.dirname(place)
            status = os.lstat(place)
        elif names and not stat.S_ISDIR(status.st_mode):
            return False
        folder = status
    return _is_closed(folder)


def _is_closed(status: os.stat_result) -> bool:
    """Return whether only root can rename or delete the files that root owns in a folder."""
    if status.st_uid != 0:
        return False
    is_group_s = status.st_mode & stat.S_IWGRP and status.st_gid != 0
    # In a sticky folder, such as /tmp, an entry can be renamed only by its owner and the owner of the folder.
    return not (status.st_mode & stat.S_IWOTH or is_group_s) or bool(status.st_mode & stat.S_ISVTX)
