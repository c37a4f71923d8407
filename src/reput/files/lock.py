"""Locks that processes hold on a file's first byte, as Java's FileChannel.tryLock(0, 1, false) takes them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from reput.errors import StoreLockedError
from reput.files.writer import explained

# The system's locks are a process's: it would get the same one twice, and lose it when it closes either file.
_held: set[str] = set()
_held_guard = Lock()


@contextmanager
def locked(path: Path, owner: str) -> Iterator[None]:
    """Hold the lock for the body; the file is made if it is not there and stays.

    Raises StoreLockedError, which says that `owner` has it, and StoreAccessError.
    """
    name = os.path.realpath(path)
    with _held_guard:
        if name in _held:
            raise StoreLockedError(f"{path}: {owner}")
        _held.add(name)
    try:
        with _locked_for_others(path, owner):
            yield
    finally:
        with _held_guard:
            _held.remove(name)


@contextmanager
def _locked_for_others(path: Path, owner: str) -> Iterator[None]:
    with explained(path, "be opened for its lock"):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError:
            raise StoreLockedError(f"{path}: {owner}") from None
        yield
    finally:
        os.close(fd)
