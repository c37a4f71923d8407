"""Ask this machine: how many processors this process may use, and whether another user could replace a path."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# Linux's limit of links in one path.
_MOST_LINKS = 40
# The period of a quota, if `cpu.max` does not state it.
_PERIOD_US = "100000"


def usable_cpus() -> int:
    """Return the number of processors that this process may use: at least 1, and at most its container's limit.

    On Linux, the limit of a container (`resources.limits.cpu` in Kubernetes) is a quota of processor time in its
    control group. A quota of 1.5 processors counts as 2, as in a JVM.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quotas = _quotas("/proc/self/cgroup", "/sys/fs/cgroup")
    return max(min(-(-quota // period) for quota, period in [(count or 1, 1), *quotas]), 1)


def _quotas(groups: str, mount: str) -> Iterator[tuple[int, int]]:
    """Yield the quotas and periods (us) of this process's control group, and of the groups that contain it.

    A container sees its own group at the root of `mount`, even if `groups` states a longer path.
    """
    try:
        lines = Path(groups).read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        # Each line is a hierarchy of control groups. In cgroup version 2, there is one hierarchy, without controllers:
        # `0::/path`. In version 1, each hierarchy has controllers: `4:cpu,cpuacct:/path`.
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            yield from _along(f"{mount}{path}", mount, ("cpu.max",))
        elif "cpu" in controllers.split(","):
            # The hierarchy's folder in `mount` is called `cpu,cpuacct` or `cpuacct,cpu`. Usually, `mount` also has a
            # symbolic link `cpu` to the folder.
            root = next(filter(os.path.isdir, (f"{mount}/{controllers}", f"{mount}/cpu")), mount)
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            yield from _along(f"{root}{path}", root, names)


def _along(folder: str, root: str, names: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Yield the limits stated by the files `names` in `folder` and in its parents up to `root`."""
    for parent in (Path(folder), *Path(folder).parents):
        if not parent.is_relative_to(root):
            return
        # Without a limit, the quota is `max` (cgroup version 2) or -1 (cgroup version 1).
        with suppress(OSError, ValueError):
            words = " ".join((parent / name).read_text() for name in names).split()
            quota, period = map(int, [*words, _PERIOD_US][:2])
            if quota > 0 and period > 0:
                yield quota, period


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
