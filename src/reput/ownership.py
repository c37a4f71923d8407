"""Whether another user could exchange a folder, or one above it, while root works there."""

from __future__ import annotations

import os
import stat

_MOST_LINKS = 40


def is_out_of_reach(path: str | os.PathLike[str]) -> bool:
    """Return whether only root can replace a path, or a folder or link on the way to it.

    For users other than root this is True: their commands give nobody further rights.
    """
    if os.geteuid() != 0:
        return True
    names, place, links = os.path.abspath(path).split("/")[:0:-1], "/", 0
    while names:
        if not _is_closed(os.lstat(place)):
            return False
        place = os.path.normpath(os.path.join(place, names.pop()))
        try:
            status = os.lstat(place)
        except OSError:  # files that root creates there belong to root
            return True
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if status.st_uid != 0 or links > _MOST_LINKS:
                return False
            target = os.readlink(place)
            names += [name for name in target.split("/")[::-1] if name]
            place = "/" if target.startswith("/") else os.path.dirname(place)
        elif names and not stat.S_ISDIR(status.st_mode):
            return False
    return _is_closed(os.lstat(place))


def _is_closed(status: os.stat_result) -> bool:
    """Return whether only root can rename or delete root's entries of a folder."""
    if status.st_uid != 0:
        return False
    is_group_s = status.st_mode & stat.S_IWGRP and status.st_gid != 0
    return not (status.st_mode & stat.S_IWOTH or is_group_s) or bool(status.st_mode & stat.S_ISVTX)
