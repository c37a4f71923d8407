"""Take stamps of files. A stamp shows whether a file has changed since facts about it were stored.

Facts about a file are stored with its stamp, and are valid while the stamp is unchanged. A stamp is taken before a file
is read, and compared afterwards.

This is not enough for a file that another process has mapped. While a page is dirty, a write to it through an existing
mapping does not change the file's ctime. On a disk, the page is written back about 35 seconds later, and the next write
updates the ctime. So a stamp can be relied on (is settled) only in one of two cases: no process has the file open for
writing, or the file has not changed for a minute.

Both hold only on file systems that report every writer and every change: the local disk file systems of Linux, in the
view of the kernel that has mounted them. These also see writers that use the file through another view, such as an
overlay, FUSE or an NFS server, because those open the file of the disk. The other views do not: on overlay, FUSE, 9p,
virtiofs and NFS, a process that has the file open elsewhere is invisible, and so may be its changes. On tmpfs, a
mapping that has read a page may write to it at any time without a trace. No stamp is settled on any of these.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

_TICK_NS = 20_000_000
"""Twice the longest tick of a file system's clock. This tick takes 10 ms on the slowest kernels.

Two changes within one tick get the same time.
"""
# If a process may be writing a file, the file's stamp can be relied on only if the last change was at least this long
# ago. While a changed page is not on disk yet, further writes to it through a mapping do not change the ctime. By
# default, Linux writes a changed page to disk within 35 seconds.
_SETTLED_NS = 60_000_000_000
# File systems whose kernel knows every writer of a file, and changes the ctime at the first write to a clean page.
_REPORTING = frozenset({"btrfs", "ext2", "ext3", "ext4", "f2fs", "xfs"})
# File systems that change a file's ctime at least when a system call changes the file.
_STAMPING = _REPORTING | {"overlay", "tmpfs"}
_MOUNTS = Path("/proc/self/mountinfo")
_DESCRIPTORS = Path("/proc/self/fdinfo")
_PERIODS = [Path(f"/proc/sys/vm/dirty_{name}_centisecs") for name in ("expire", "writeback")]
_CENTISECOND_NS = 10_000_000
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_EXPLICIT_SIGNAL = getattr(fcntl, "F_SETSIG", 10)


class Stamp(NamedTuple):
    """Inode, size and ctime (ns) of a file. `Stamp()` differs from the stamp of every file."""

    inode: int = 0
    size: int = 0
    changed_ns: int = 0

    @classmethod
    def of(cls, path: str) -> Stamp:
        """Return the current stamp of a file. Raises OSError."""
        return _stamp(os.stat(path))

    @classmethod
    def present(cls, path: str) -> Stamp | None:
        """Return the current stamp of a file, to find out whether facts from an earlier read still hold.

        Return None if the file is missing or has just changed. A further change might then not alter the stamp, because
        two changes within a tick of the clock get the same time.
        """
        try:
            status = os.stat(path)
        except OSError:
            return None
        return _stamp(status) if time.time_ns() - status.st_ctime_ns >= _TICK_NS else None

    @classmethod
    def settled(cls, path: str) -> Stamp | None:
        """Return the stamp of a file, to be compared after reading; None if a later change might not alter it."""
        try:
            status = os.stat(path)
            if not _reports_changes(path):
                return None
            age = time.time_ns() - status.st_ctime_ns
            if 0 <= age < _TICK_NS:
                # Wait until a further change would get a different ctime.
                time.sleep((_TICK_NS - age) / 1e9)
                age = _TICK_NS
            is_settled = age >= _TICK_NS and (
                is_open_for_writing(path) is False or _is_written_back(age)
            )
            stamp = _stamp(status)
            return stamp if is_settled and cls.of(path) == stamp else None
        except OSError:
            return None

    def is_older_than(self, time_ns: int) -> bool:
        """Return whether every change after this time (ns) gives the file another ctime than this stamp has."""
        return self.changed_ns + _TICK_NS <= time_ns

    def is_of(self, path: str) -> bool:
        """Return whether a file still has this settled stamp. Each query asks this about many files, so it is quick."""
        try:
            status = os.stat(path)
        except OSError:
            return False
        inode, size, changed_ns = self
        return (
            status.st_ctime_ns == changed_ns and status.st_size == size and status.st_ino == inode
        )


def has_stamps(path: str) -> bool:
    """Return whether stamps show each change of files that no process has mapped for writing.

    Every change by a system call then changes the ctime of the file. `path` is the file, or a folder of such files.
    """
    try:
        return not hasattr(fcntl, "F_SETLEASE") or _file_system(path) in _STAMPING
    except OSError:
        return False


def is_open_for_writing(path: str) -> bool | None:
    """Return whether any process has a file open or mapped for writing; None if the system does not report it."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return None
    descriptor = os.open(path, _FLAGS)
    try:
        # Linux refuses a read lease while any process has the file open for writing. The lease lasts a few
        # microseconds. If another process opens the file for writing during the lease, its call waits until the lease
        # ends, and Linux sends a signal to our process, the holder of the lease. Choose SIGURG, which is ignored by
        # default. The usual signal, SIGIO, would end our process.
        fcntl.fcntl(descriptor, _EXPLICIT_SIGNAL, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    # The file belongs to another user, or its file system has no leases. So it is unknown who has it open.
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_ino, status.st_size, status.st_ctime_ns)


def _is_written_back(age_ns: int) -> bool:
    """Return whether pages that were changed this long ago have certainly been written to disk.

    Once a page is on disk, the next write to it through a mapping updates the file's ctime.
    """
    return age_ns >= _SETTLED_NS and age_ns >= _longest_dirty_ns()


def _longest_dirty_ns() -> float:
    """Return how long a page may stay dirty, in ns: infinite without automatic write-back, 0 if unknown."""
    try:
        expire, interval = (int(path.read_text()) for path in _PERIODS)
    except (OSError, ValueError):
        return 0
    # The flusher of Linux runs once per `interval`, and writes pages that have been dirty for longer than `expire`. The
    # sum is doubled, because the flusher may be late.
    return 2.0 * _CENTISECOND_NS * (expire + interval) if interval else float("inf")


def _reports_changes(path: str) -> bool:
    """Return whether the file system of a file reports every writer, and every change in the ctime. Raises OSError."""
    # Only Linux reports the kind of file system. On other systems, assume a file system that is not in memory, but
    # writes changed pages to a disk.
    return not hasattr(fcntl, "F_SETLEASE") or _file_system(path) in _REPORTING


def _file_system(path: str) -> str:
    """Return the kind of a file's file system, as /proc/self/mountinfo names it; empty if unknown. Raises OSError."""
    descriptor = os.open(path, _FLAGS)
    try:
        # The device of a file on Btrfs differs from the device of its mount, so find the mount by its number.
        lines = (_DESCRIPTORS / str(descriptor)).read_text().splitlines()
        mounts = [line.split()[1] for line in lines if line.startswith("mnt_id:")]
        return _kind_of_mount(mounts[0], os.fstat(descriptor).st_dev)
    except (OSError, IndexError):
        return ""
    finally:
        os.close(descriptor)


@cache
def _kind_of_mount(number: str, device: int) -> str:
    """Return the kind of a mount. `device` distinguishes mounts that had the same number at different times."""
    for line in _MOUNTS.read_text().splitlines():
        mounted, _, described = line.partition(" - ")
        if mounted.split(" ")[0] == number:
            return described.partition(" ")[0]
    return ""
