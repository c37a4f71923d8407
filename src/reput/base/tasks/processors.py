"""Count the processors that this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

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
