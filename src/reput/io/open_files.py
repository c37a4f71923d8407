"""Manage this process's descriptors for files of stores: files are opened on use, within a limit.

A store may have more files than a process may have open, and a process may read many stores. So readers and writers of
CommitLog, ConsumeQueue and IndexFiles do not own a descriptor. `PooledReader` and `PooledWriter` take one from the pool
for each call. The descriptor stays open for later calls until another file needs it.
"""

from __future__ import annotations

import errno
import os
import resource
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from reput.base import Closing
from reput.errors import StoreAccessError, StoreNotFoundError
from reput.io.reader import FileReader, Identity, SparseReader, identity_of

# Imported only for typing: NumPy takes longer to import than a query by key takes.
if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_MOST_FILES = 1 << 16
# The pool never takes all descriptors of a process; see `_most_pooled`.
_LEAST_POOLED, _MOST_POOLED = 16, 4096
_NO_MORE = {errno.EMFILE, errno.ENFILE}


def allow_files(count: int = _MOST_FILES) -> None:
    """Raise this process's limit of open files to `count`, or to its hard limit if that is lower."""
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = count if most == resource.RLIM_INFINITY else min(count, most)
    if least != resource.RLIM_INFINITY and limit > least:
        # If the system allows fewer open files than `wanted`, the limit of the process stays as it is.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


class _Closable(Protocol):
    def close(self) -> None: ...


_File = TypeVar("_File", bound=_Closable)
_Result = TypeVar("_Result")


class Pooled(Generic[_File]):
    """A file that is opened when a method is called, and stays open until another file needs its descriptor.

    Any thread may call the methods. The list `_pins` has one item per call in progress. A list needs no lock, because
    appending and popping are atomic. A count would need a lock.
    """

    __slots__ = ("_file", "_pins", "_was_used", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: _File | None = None
        self._pins: list[None] = []
        self._was_used = False

    def _open(self) -> _File:
        raise NotImplementedError

    def _taken(self) -> _File:
        """Return the open file. The caller must have added an item to `_pins`. Raises the errors of `_open`."""
        file = self._file
        if file is None:
            file = _POOL.open(self)
        self._was_used = True
        return file

    def close(self) -> None:
        """Close the descriptor. The next call reopens the file."""
        _POOL.close(self)


class _Pool:
    """The open files of all stores, in the order of opening.

    When files must be closed, the pool examines its first file. If a call uses the file, or has used it since its
    last examination, the file moves to the end. Otherwise, the file is closed.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: OrderedDict[int, Pooled[Any]] = OrderedDict()

    def open(self, pooled: Pooled[_File]) -> _File:
        """Open a file. Close other files first if too many are open. Raises the errors of the file's `_open`."""
        with self._lock:
            # The caller has read None from `_file`. If `_file` is set now, another thread has opened the file, or
            # `_closed` had set `_file` to None for a moment, found the file in use, and put it back.
            if pooled._file is not None:
                return pooled._file
            self._make_room(_most_pooled() - 1)
        # Opening may take long on a network file system, so it happens outside the lock.
        return self._kept(pooled, self._opened(pooled))

    def _opened(self, pooled: Pooled[_File]) -> _File:
        try:
            return pooled._open()
        except StoreAccessError as error:
            if getattr(error.__cause__, "errno", None) not in _NO_MORE:
                raise
        # Sockets and mappings have used more descriptors than expected, so close files and try again.
        with self._lock:
            self._make_room(len(self._open) // 2)
        return pooled._open()

    def _kept(self, pooled: Pooled[_File], file: _File) -> _File:
        """Keep `file` open, and return it.

        If another thread has opened the same file in the meantime, close `file`, and return that thread's open file.
        """
        with self._lock:
            if (oldest := pooled._file) is None:
                pooled._file = file
                self._open[id(pooled)] = pooled
                return file
        file.close()
        return oldest

    def _make_room(self, most: int) -> None:
        # The clock algorithm. The first round clears the marks of use (`_was_used`). The second round closes files,
        # except those that a call uses.
        turns = 2 * len(self._open)
        while len(self._open) > max(most, 0) and turns > 0:
            turns -= 1
            _, oldest = self._open.popitem(last=False)
            if oldest._was_used or not self._closed(oldest):
                oldest._was_used = False
                self._open[id(oldest)] = oldest

    def _closed(self, pooled: Pooled[Any]) -> bool:
        """Close a file if no call uses it; return whether it is closed."""
        file, pooled._file = pooled._file, None
        # From now on, a thread that begins a call finds `_file` to be None, and waits for the lock. A thread that read
        # `_file` earlier has already added an item to `_pins`, so the next line detects that the file is in use.
        if pooled._pins:
            pooled._file = file
            return False
        if file is not None:
            file.close()
        return True

    def close(self, pooled: Pooled[Any]) -> None:
        with self._lock:
            self._open.pop(id(pooled), None)
            file, pooled._file = pooled._file, None
        if file is not None:
            file.close()

    def forget_in_child(self) -> None:
        """Replace the lock in a forked child, because a thread of the parent may hold it."""
        self._lock = Lock()


_POOL = _Pool()
os.register_at_fork(after_in_child=_POOL.forget_in_child)


def _most_pooled() -> int:
    """Return how many files the pool may keep open: half of this process's limit, within fixed bounds.

    The other half of the descriptors is for sockets, mappings and other files.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return _MOST_POOLED
    return min(max(allowed // 2, _LEAST_POOLED), _MOST_POOLED)


class PooledReader(Pooled[SparseReader], Closing):
    """A SparseReader of one file.

    Reading raises StoreNotFoundError if another file has taken the name of the file.
    """

    __slots__ = ("_identity", "_inode", "_is_scattered", "_open_file")

    def __init__(
        self, path: str, open_file: Callable[[str], SparseReader] = FileReader, inode: int = 0
    ) -> None:
        """Describe a file.

        Args:
            path: the file.
            open_file: opens the file.
            inode: the file's inode when it was listed; 0 accepts any file at the first open.
        """
        super().__init__(path)
        self._open_file, self._inode = open_file, inode
        self._identity: Identity | None = None
        self._is_scattered = False

    def _open(self) -> SparseReader:
        file = self._open_file(self.path)
        if isinstance(file, FileReader):
            identity = identity_of(file.fileno)
            if self._identity is None and self._inode in (0, identity[1]):
                self._identity = identity
            if identity != self._identity:
                file.close()
                raise StoreNotFoundError(f"{self.path}: no longer exists")
        if self._is_scattered:
            file.stop_read_ahead()
        return file

    @property
    def size(self) -> int:
        self._pins.append(None)
        try:
            return self._taken().size
        finally:
            self._pins.pop()

    def read(self, position: int, length: int) -> bytes:
        pins = self._pins
        pins.append(None)
        # This is the code of `_taken`, inlined for speed: a query by key calls `read` hundreds of times.
        try:
            file = self._file
            if file is None:
                file = _POOL.open(self)
            self._was_used = True
            return file.read(position, length)
        finally:
            pins.pop()

    def read_into(self, buffer: npt.NDArray[np.uint8], position: int) -> None:
        self._pins.append(None)
        try:
            self._taken().read_into(buffer, position)
        finally:
            self._pins.pop()

    def read_each(self, positions: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        self._pins.append(None)
        try:
            file = self._taken()
            if isinstance(file, FileReader):
                return file.read_each(positions, lengths)
            return list(map(file.read, positions, lengths))
        finally:
            self._pins.pop()

    def announce(self, positions: Sequence[int], length: int) -> None:
        self._pins.append(None)
        try:
            self._taken().announce(positions, length)
        finally:
            self._pins.pop()

    def use_descriptor(self, use: Callable[[int], _Result]) -> _Result | None:
        """Return the result of `use` for the file's descriptor; None if the file is not local."""
        self._pins.append(None)
        try:
            file = self._taken()
            return use(file.fileno) if isinstance(file, FileReader) else None
        finally:
            self._pins.pop()

    def next_run(self, position: int) -> tuple[int, int] | None:
        self._pins.append(None)
        try:
            return self._taken().next_run(position)
        finally:
            self._pins.pop()

    def last_nonzero(self, size: int) -> int | None:
        self._pins.append(None)
        try:
            return self._taken().last_nonzero(size)
        finally:
            self._pins.pop()

    def has_data(self, position: int, stop: int) -> bool:
        self._pins.append(None)
        try:
            return self._taken().has_data(position, stop)
        finally:
            self._pins.pop()

    def stop_read_ahead(self) -> None:
        self._pins.append(None)
        try:
            self._is_scattered = True
            self._taken().stop_read_ahead()
        finally:
            self._pins.pop()


class OpenFiles:
    """Readers by path and inode. A new file of the same name gets a new reader.

    In RocketMQ: ReferenceResource.
    """

    allow = staticmethod(allow_files)

    def __init__(self, open_file: Callable[[str], SparseReader] = FileReader) -> None:
        self._open = open_file
        self._readers: dict[tuple[str, int], PooledReader] = {}

    def get(self, path: str, inode: int) -> PooledReader:
        """Return the reader of a listed file. Reading raises StoreNotFoundError, StoreAccessError."""
        reader = self._readers.get((path, inode))
        if reader is None:
            reader = self._readers[path, inode] = PooledReader(path, self._open, inode)
            reader._is_scattered = True
        return reader

    def drop(self, files: Iterable[tuple[str, int]]) -> None:
        """Close these files if they are open, because a deleted file's space is freed only after its last close."""
        for file in files:
            if reader := self._readers.pop(file, None):
                reader.close()

    def close(self) -> None:
        self.drop(list(self._readers))
