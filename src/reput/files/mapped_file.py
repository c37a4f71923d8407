"""Files mapped into memory, to be read only: nothing here can write a byte of them.

A map shows what another process writes into the file, and outlives the file's deletion. What it
cannot bear is a file that is cut shorter while it is mapped; no broker does that, and whoever
copies over a store must not.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress

from reput.errors import FormatError, StoreAccessError, StoreNotFoundError
from reput.files.anchors import open_anchored


class MappedFile:
    """One whole file as it was sized when it was opened.

    data       its bytes
    scattered  reading it here and there brings in no more than is read: nothing of what lies around
    Raises StoreNotFoundError, StoreAccessError, and FormatError for a file that is empty.
    """

    __slots__ = ("_map", "data", "path", "size")

    def __init__(self, path: str, scattered: bool = False) -> None:
        self.path = path
        try:
            # A pipe or a device would keep us waiting.
            descriptor = open_anchored(path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            raise StoreNotFoundError(f"{path}: not there any more") from None
        except StoreAccessError:  # it is a link
            raise
        except OSError as error:
            raise StoreAccessError(f"{path}: cannot be opened: {error.strerror}") from error
        try:
            self._map = _map(path, descriptor)
        finally:
            os.close(descriptor)
        if scattered and hasattr(mmap, "MADV_RANDOM"):
            self._map.madvise(mmap.MADV_RANDOM)
        self.size = len(self._map)
        self.data = memoryview(self._map)

    def close(self) -> None:
        """Close the map, or leave that to the last array over it: the traceback of an error may hold one."""
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
    """Maps by path, opened when asked for, the least recently used closed when there are too many.

    A map takes a file descriptor; a CommitLog may have more files than a process may open. What
    `get` returns is good until the next call.
    """

    def __init__(self, limit: int = 64, scattered: bool = False) -> None:
        self._limit, self._scattered = limit, scattered
        self._files: OrderedDict[str, MappedFile] = OrderedDict()

    def get(self, path: str) -> MappedFile:
        """Raises what MappedFile raises."""
        file = self._files.get(path)
        if file is None:
            if len(self._files) >= self._limit:
                self._files.popitem(last=False)[1].close()
            file = self._files[path] = MappedFile(path, self._scattered)
        else:
            self._files.move_to_end(path)
        return file

    def keep_only(self, paths: Iterable[str]) -> None:
        """Close the maps of all other files: a deleted file's space is freed with its last map."""
        for path in self._files.keys() - set(paths):
            self._files.pop(path).close()

    def close(self) -> None:
        self.keep_only(())
