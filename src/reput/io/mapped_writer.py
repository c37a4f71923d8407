"""Write files through a memory map.

The files are preallocated. Otherwise a full disk would kill the process with SIGBUS instead of raising an error.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput.errors import explained
from reput.io.writer import FileWriter

_NOTHING: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
# MADV_POPULATE_WRITE of Linux, which Python's mmap module does not define.
_POPULATE_WRITE = 23


class MappedWriter(FileWriter):
    """A FileWriter whose bytes are also mapped. All readers see writes to the map immediately.

    data   the whole file as a memoryview
    array  the whole file as uint8

    Neither can be used after the file is closed. The memory is released when the last view of them is gone.
    """

    @staticmethod
    def is_worth_a_flush(flushed: int, written: int, least_pages: int, file_bytes: int) -> bool:
        """Return whether to flush the bytes from offset `flushed` to offset `written`.

        Both offsets count from the start of a sequence of files, each `file_bytes` long. A full file is always flushed.
        With least_pages 0, any byte is enough. Source: `MappedFile.isAbleToFlush` (tag rocketmq-all-4.9.3).

        In RocketMQ: OS_PAGE_SIZE.
        """
        if written <= flushed or written // file_bytes > flushed // file_bytes:
            return written > flushed
        return written // mmap.PAGESIZE - flushed // mmap.PAGESIZE >= least_pages

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
        """Close the file and release its memory. Further calls do nothing."""
        super().close()
        # Drop our own array first, because a map with views cannot be closed.
        self.array = _NOTHING
        # If a view still exists, it releases the map when it is deleted.
        with suppress(BufferError):
            self.data.release()
            self._map.close()

    def prepare(self, begin: int, end: int) -> None:
        """Load the pages of bytes `begin` to `end` for writing.

        This is ten times as fast as the page faults that the first write to each page would cause otherwise.

        In RocketMQ: warmMappedFile, mlock.
        """
        # madvise accepts only addresses at which a page begins.
        begin -= begin % mmap.PAGESIZE
        # Linux before 5.14 lacks MADV_POPULATE_WRITE. It then loads the pages one by one, each at its first write.
        with suppress(OSError):
            self._map.madvise(_POPULATE_WRITE, begin, min(end, self.size) - begin)

    def prepare_empty(self, begin: int, end: int) -> None:
        """Load the pages of bytes `begin` to `end` for writing. All of these bytes must be zero.

        Zeros are written first, because the system allocates memory in large pieces for a write to the file, but in
        small pieces for page faults of a map.
        """
        end = min(end, self.size)
        self.write_zeros(begin, end)
        self.prepare(begin, end)


def _allocate(descriptor: int, size: int) -> None:
    # Do not allocate the blocks of a file twice: on tmpfs, a second allocation would make SEEK_DATA report reserved
    # pages as data.
    if hasattr(os, "posix_fallocate") and os.fstat(descriptor).st_blocks * 512 < size:
        os.posix_fallocate(descriptor, 0, size)
