"""Write files through a memory map.

They are preallocated, so that a full disk raises an error and does not kill the process.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput.files.writer import FileWriter, explained

_NOTHING: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of Linux


class MappedWriter(FileWriter):
    """A FileWriter whose bytes are also an array; all readers see stores to it at once.

    data  memoryview of the whole file
    array the whole file as uint8 Neither can be used after the file is closed. The map stays as long as a view of
    either exists.
    """

    def __init__(self, path: Path, size: int) -> None:
        """Open or create `path` with `size` bytes, all of them allocated. Raises StoreAccessError."""
        super().__init__(path, size=size)
        try:
            with explained(path, "be allocated"):
                _allocate(self.fileno, size)
            with explained(path, "be mapped into memory"):
                self._map = mmap.mmap(self.fileno, size)
        except BaseException:
            super().close()
            raise
        self.size = size
        self.data = memoryview(self._map)
        self.array: npt.NDArray[np.uint8] = np.frombuffer(self.data, np.uint8)

    def close(self) -> None:
        """Close the file and release its memory; a closed file stays closed."""
        super().close()
        self.array = _NOTHING
        with suppress(BufferError):  # A view still exists: the map is released with it.
            self.data.release()
            self._map.close()

    def prepare(self, begin: int, end: int) -> None:
        """Load the pages of bytes `begin` to `end` for writing.

        Page faults at the first write of each page cost ten times as much.
        """
        begin -= begin % mmap.PAGESIZE
        with suppress(OSError):  # A kernel before 5.14 loads them one by one.
            self._map.madvise(_POPULATE_WRITE, begin, min(end, self.size) - begin)

    def prepare_empty(self, begin: int, end: int) -> None:
        """Load the pages of bytes that are still empty, by writing zeros.

        The system allocates memory in large pieces for writes, but in small ones for mapped bytes.
        """
        end = min(end, self.size)
        self.write_zeros(begin, end)
        self.prepare(begin, end)


def _allocate(descriptor: int, size: int) -> None:
    # Once is enough: the second time would turn reserved pages of tmpfs into data.
    if hasattr(os, "posix_fallocate") and os.fstat(descriptor).st_blocks * 512 < size:
        os.posix_fallocate(descriptor, 0, size)
