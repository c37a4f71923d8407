"""Lock a file's first byte, as Java's FileChannel.tryLock(0, 1, false) does.

Java takes POSIX record locks. A process loses such a lock as soon as any of its code opens and closes the file, for
example to copy the folder. Open-file-description (OFD) locks conflict with POSIX locks, but belong to the descriptor.
So OFD locks are used if the system has them (Linux since 3.15). Otherwise POSIX locks are used, and the process must
not open the file elsewhere.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from weakref import WeakSet

from reput.errors import StoreLockedError, explained
from reput.io.anchors import open_anchored
from reput.io.reader import check_in_place, identity_of

_DESCRIPTION_LOCK: int | None = getattr(fcntl, "F_OFD_SETLK", None)
# struct flock: type, whence, start, length, process id. The process id must be 0 for OFD locks.
_FLOCK = struct.Struct("hhqqi4x")
_FIRST_BYTE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
# POSIX allows either error for a lock that another process holds.
_IS_HELD = {errno.EACCES, errno.EAGAIN}

# Device and inode of the files that this process has locked. The set is used only with POSIX locks, which let one
# process lock a file twice.
_locked_files: set[tuple[int, int]] = set()
_held_guard = Lock()


@contextmanager
def locked(path: Path, owner: str, arguments: Iterable[str] = ()) -> Iterator[Callable[[], None]]:
    """Hold the lock during the with block. The file is created if it is missing, and is not deleted afterwards.

    The with block gets a function that raises StoreFailedError if the file was deleted or replaced, because another
    process can then lock the new file. A forked child does not hold the lock.

    Raises:
        StoreLockedError: another process has the lock. The error's message contains `owner`. `arguments` are
            passed to the error (see `ReputError`).
        StoreAccessError: the file cannot be opened or locked.
    """
    with _held_guard:
        # Opening and closing the file here would release the POSIX lock of this process.
        if _identity(path) in _locked_files:
            raise StoreLockedError(f"{path}: {owner}", arguments=arguments)
        file = _LockFile(path)
        try:
            if not file.try_lock():
                raise StoreLockedError(f"{path}: {owner}", arguments=arguments)
        except BaseException:
            file.close()
            raise
    try:
        yield file.check_in_place
    finally:
        file.close()


def is_locked(path: Path) -> bool:
    """Return whether this or another process holds the lock. The file is opened only for reading, and not created.

    Raises StoreAccessError.
    """
    with _held_guard:
        if _identity(path) in _locked_files:
            return True
        with explained(path, "be opened to test its lock"):
            try:
                fd = open_anchored(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except FileNotFoundError:
                return False
            try:
                # Only ask who has the lock. Taking the lock, even for a moment, could make a starting broker fail.
                command = getattr(fcntl, "F_OFD_GETLK", fcntl.F_GETLK)
                answer = fcntl.fcntl(fd, command, _FIRST_BYTE)
            finally:
                os.close(fd)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode; None if the file cannot be inspected."""
    try:
        status = os.stat(path)
    # Ignore the error: the callers open the file next, and report why that fails.
    except OSError:
        return None
    return status.st_dev, status.st_ino


class _LockFile:
    """An open file whose first byte is locked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._locked_as: tuple[int, int] | None = None
        with explained(path, "be opened for its lock"):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            self._fd = open_anchored(path, flags, 0o644)
        self._identity = identity_of(self._fd)
        _open_files.add(self)

    def check_in_place(self) -> None:
        """Raise StoreFailedError if the lock file was deleted or replaced. Raises StoreAccessError."""
        check_in_place(self._path, self._identity)

    def try_lock(self) -> bool:
        """Try to lock the file, and return whether it is locked now. Raises StoreAccessError."""
        with explained(self._path, "be locked"):
            try:
                if _DESCRIPTION_LOCK is None or not self._lock_description(_DESCRIPTION_LOCK):
                    fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
                    self._locked_as = _identity(self._path)
            except OSError as error:
                if error.errno in _IS_HELD:
                    return False
                raise
        if self._locked_as is not None:
            _locked_files.add(self._locked_as)
        return True

    def _lock_description(self, command: int) -> bool:
        """Lock the open file description (OFD lock). Return False if the system does not support such locks.

        Raises OSError if another process holds the lock.
        """
        try:
            fcntl.fcntl(self._fd, command, _FIRST_BYTE)
        except OSError as error:
            # Linux before 3.15 does not know the fcntl command for OFD locks.
            if error.errno != errno.EINVAL:
                raise
            return False
        return True

    def close(self) -> None:
        """Release the lock. Further calls do nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        identity, self._locked_as = self._locked_as, None
        if identity is not None:
            _locked_files.discard(identity)


_open_files: WeakSet[_LockFile] = WeakSet()


def _forget_in_child() -> None:
    """Close a forked child's copies of the lock files' descriptors, so that only the parent holds the locks."""
    global _held_guard
    _held_guard = Lock()
    for file in list(_open_files):
        file.close()
    _locked_files.clear()


os.register_at_fork(after_in_child=_forget_in_child)
