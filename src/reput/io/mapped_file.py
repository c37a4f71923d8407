"""Map files into memory for reading only.

A map shows the writes of other processes, and remains valid after the file is deleted. A mapped file must not be
truncated, because reading beyond its end kills the process (SIGBUS). Brokers do not truncate files, and neither may a
process that copies files over a store.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections import OrderedDict
from contextlib import suppress
from threading import Lock

import numpy as np
import numpy.typing as npt

from reput.errors import FormatError, StoreAccessError
from reput.io.reader import open_to_read


class MappedFile:
    """A mapped file, with its size at the time of opening.

    data       the bytes of the file
    scattered  whether the system loads only the pages that are read, without read-ahead

    Raises StoreNotFoundError, StoreAccessError, and FormatError for an empty file.
    """

    __slots__ = ("_map", "data", "path", "size")

    def __init__(self, path: str, scattered: bool = False) -> None:
        self.path = path
        descriptor = open_to_read(path)
        try:
            self._map = _map(path, descriptor)
        finally:
            os.close(descriptor)
        if scattered and hasattr(mmap, "MADV_RANDOM"):
            self._map.madvise(mmap.MADV_RANDOM)
        self.size = len(self._map)
        self.data = memoryview(self._map)

    def close(self) -> None:
        """Close the map. If arrays over it still exist, for example in a traceback, the last of them closes it."""
        with suppress(BufferError):
            self.data.release()
            self._map.close()


def _map(path: str, descriptor: int) -> mmap.mmap:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise StoreAccessError(f"{path}: cannot be read: not a regular file")
    if status.st_size == 0:
        raise FormatError(path, 0, "the file is empty")
    try:
        return mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise StoreAccessError(f"{path}: cannot be mapped into memory: {error}") from error


class MappedFiles:
    """Caches maps by path, for any thread. Above a limit, the least recently used maps are closed.

    A map keeps a descriptor open, and a store may have more files than a process may have open.
    """

    def __init__(self, limit: int = 64) -> None:
        self._limit, self._lock = limit, Lock()
        self._files: OrderedDict[str, MappedFile] = OrderedDict()

    def array(self, path: str) -> npt.NDArray[np.uint8]:
        """Return the bytes of a file. Its map remains open while the array exists. Raises the errors of MappedFile."""
        with self._lock:
            file = self._files.pop(path, None)
            if file is None:
                while len(self._files) >= self._limit:
                    self._files.popitem(last=False)[1].close()
                file = MappedFile(path)
            self._files[path] = file
            return np.frombuffer(file.data, np.uint8)

    def close(self, path: str) -> None:
        """Close the map of a file. The space of a deleted file is freed only when its last map is closed."""
        with self._lock:
            if file := self._files.pop(path, None):
                file.close()
