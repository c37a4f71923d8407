"""Lock a file's first byte, as Java's FileChannel.tryLock(0, 1, false) does.

Java takes POSIX record locks. A process loses these when any code in it opens and closes the file, for example to copy
the folder. Open-file-description locks conflict with them but belong to the descriptor. They are used if the system has
them (Linux since 3.15). Otherwise POSIX locks are used, and the process must not open the file elsewhere.
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

from reput.errors import StoreLockedError
from reput.files.anchors import explained, open_anchored
from reput.files.own_place import check_in_place
from reput.files.reader import identity_of

_DESCRIPTION_LOCK: int | None = getattr(fcntl, "F_OFD_SETLK", None)
# struct flock: type, whence, start, length, process id, which is 0 for these locks.
_FLOCK = struct.Struct("hhqqi4x")
_FIRST_BYTE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
_IS_HELD = {errno.EACCES, errno.EAGAIN}

# Without such locks: device and inode of files locked by this process, which could lock the same file twice.
_held: set[tuple[int, int]] = set()
_held_guard = Lock()


@contextmanager
def locked(path: Path, owner: str, arguments: Iterable[str] = ()) -> Iterator[Callable[[], None]]:
    """Hold the lock for the body; the file is created if it is missing, and stays.

    The body gets a function that raises StoreFailedError if the file was deleted or replaced: another process can then
    take the lock as well. A forked child does not hold it.

    Raises:
        StoreLockedError: another process has it; the message names the `owner` and these `arguments` of the caller.
        StoreAccessError: the file cannot be opened or locked.
    """
    with _held_guard:
        if _identity(path) in _held:  # Opening and closing the file would end the lock.
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
    """Return whether another, or this process, holds the lock; the file is only read, and not created.

    Raises StoreAccessError.
    """
    with _held_guard:
        if _identity(path) in _held:
            return True
        with explained(path, "be opened to test its lock"):
            try:
                fd = open_anchored(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except FileNotFoundError:
                return False
            try:
                command = getattr(fcntl, "F_OFD_GETLK", fcntl.F_GETLK)
                found = fcntl.fcntl(fd, command, _FIRST_BYTE)
            finally:
                os.close(fd)
    return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode; None if the file is missing."""
    try:
        status = os.stat(path)
    except OSError:  # Opening it reports the reason.
        return None
    return status.st_dev, status.st_ino


class _LockFile:
    """The open file whose byte is locked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: tuple[int, int] | None = None
        with explained(path, "be opened for its lock"):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            self._fd = open_anchored(path, flags, 0o644)
        self._opened = identity_of(self._fd)
        _open_files.add(self)

    def check_in_place(self) -> None:
        """Raise StoreFailedError if the lock file was replaced; StoreAccessError."""
        check_in_place(self._path, self._opened)

    def try_lock(self) -> bool:
        """Return whether the lock is held now. Raises StoreAccessError."""
        with explained(self._path, "be locked"):
            try:
                if _DESCRIPTION_LOCK is None or not self._lock_description(_DESCRIPTION_LOCK):
                    fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
                    self._held = _identity(self._path)
            except OSError as error:
                if error.errno in _IS_HELD:
                    return False
                raise
        if self._held is not None:
            _held.add(self._held)
        return True

    def _lock_description(self, command: int) -> bool:
        """Return whether the system knows such locks. Raises OSError where another holds one."""
        try:
            fcntl.fcntl(self._fd, command, _FIRST_BYTE)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return False
        return True

    def close(self) -> None:
        """Release the lock; a released lock stays released."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        held, self._held = self._held, None
        if held is not None:
            _held.discard(held)


_open_files: WeakSet[_LockFile] = WeakSet()


def _forget_in_child() -> None:
    """Close a forked child's copies of the parent's descriptors, so that only the parent has the lock."""
    global _held_guard
    _held_guard = Lock()
    for file in list(_open_files):
        file.close()
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)
