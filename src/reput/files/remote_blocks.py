"""Remote files in memory, block by block: what was read is kept, in memory of bounded size.

Blocks that follow each other are read in ever larger steps.
"""

from __future__ import annotations

import mmap
from collections import OrderedDict
from typing import Self

import numpy as np
import numpy.typing as npt

from reput.errors import StoreChangedError
from reput.files.file_systems import FileSystem, RemoteReader

BLOCK_BYTES = 64 << 10
_MOST_AHEAD_BYTES = 4 << 20
_KEPT_BYTES = 256 << 20


class RemoteFile:
    """One remote file, whose bytes are loaded block by block.

    `data` is memory reserved for the whole file, of which only loaded blocks take any.
    """

    def __init__(
        self, system: FileSystem, path_there: str, path: str, size: int, blocks: LoadedBlocks
    ) -> None:
        self.path, self.size = path, size
        self._system, self._path_there, self._blocks = system, path_there, blocks
        self._reader: RemoteReader | None = None
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        self._map = mmap.mmap(-1, size, flags=flags)
        self._memory = memoryview(self._map)
        self.data = self._memory.toreadonly()
        self._next = 0
        self._step = 1

    def load(self, position: int, length: int) -> None:
        number = max(position, 0) // BLOCK_BYTES
        stop = -(-min(position + length, self.size) // BLOCK_BYTES)
        least = max(stop - number, 0)
        while number < stop:
            if self._blocks.touch(self, number):
                number += 1
                continue
            end = number + 1
            while end < stop and not self._blocks.has(self, end):
                end += 1
            number = self._fetch(number, end, least)

    def _fetch(self, number: int, end: int, least: int) -> int:
        """Load blocks from `number` to `end`, and more where runs follow each other; returns where that ends.

        At least the newest `least` blocks of all are kept.
        """
        most_ahead = _MOST_AHEAD_BYTES // BLOCK_BYTES
        self._step = min(2 * self._step, most_ahead) if number == self._next else 1
        last = -(-self.size // BLOCK_BYTES)
        ahead = number + self._step
        while end < min(ahead, last) and not self._blocks.has(self, end):
            end += 1
        start, stop = number * BLOCK_BYTES, min(end * BLOCK_BYTES, self.size)
        self.reader().read_into(np.frombuffer(self._memory[start:stop], np.uint8), start)
        self._blocks.take(self, number, end, least)
        self._next = end
        return end

    def reader(self) -> RemoteReader:
        if self._reader is None:
            self._reader = RemoteReader(self._system, self._path_there)
            if self._reader.size < self.size:
                raise StoreChangedError(f"{self.path}: ends at {self._reader.size} now")
        return self._reader

    def forget(self, number: int) -> None:
        """Give back the memory of a block."""
        start = number * BLOCK_BYTES
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, start, min(BLOCK_BYTES, self.size - start))

    def close(self) -> None:
        """Give back what is loaded; the file may still be read."""
        self._blocks.forget(self)
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class LoadedBlocks:
    """Which blocks of which files are loaded; the least recently used go where there are too many."""

    def __init__(self) -> None:
        self._loaded: OrderedDict[tuple[RemoteFile, int], None] = OrderedDict()

    def has(self, file: RemoteFile, number: int) -> bool:
        return (file, number) in self._loaded

    def touch(self, file: RemoteFile, number: int) -> bool:
        """Whether a block is loaded, which is then the last to go."""
        if (file, number) not in self._loaded:
            return False
        self._loaded.move_to_end((file, number))
        return True

    def take(self, file: RemoteFile, number: int, end: int, least: int) -> None:
        """These blocks were loaded; at least the newest `least` are kept."""
        for its in range(number, end):
            self._loaded[file, its] = None
        while len(self._loaded) > max(_KEPT_BYTES // BLOCK_BYTES, least + end - number):
            (old, gone), _ = self._loaded.popitem(last=False)
            old.forget(gone)

    def forget(self, file: RemoteFile) -> None:
        for key in [key for key in self._loaded if key[0] is file]:
            del self._loaded[key]
            file.forget(key[1])


class CachedReader:
    """A `reput.files.reader.SparseReader` through the loaded blocks of a file; what is large goes past them."""

    def __init__(self, file: RemoteFile) -> None:
        self._file, self.path = file, file.path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        """Nothing to do: the blocks stay, for the next reader of the file."""

    def stop_read_ahead(self) -> None:
        """Nothing to do: reading a remote file changes none of its holes."""

    @property
    def size(self) -> int:
        return self._file.size

    def read(self, position: int, length: int) -> bytes:
        buffer = np.empty(length, np.uint8)
        self.read_into(buffer, position)
        return buffer.tobytes()

    def read_into(self, buffer: npt.NDArray[np.uint8], position: int) -> None:
        file, end = self._file, position + len(buffer)
        if end > file.size:
            raise StoreChangedError(
                f"{self.path}: ends at {file.size}, was longer when the job began"
            )
        if len(buffer) > _MOST_AHEAD_BYTES // 2:
            file.reader().read_into(buffer, position)
            return
        file.load(position, len(buffer))
        buffer[:] = np.frombuffer(file.data[position:end], np.uint8)

    def next_run(self, position: int) -> tuple[int, int] | None:
        """No remote file system says where its holes are."""
        return (position, self._file.size) if position < self._file.size else None

    def last_nonzero(self, size: int) -> int | None:
        """Position of the last byte below `size` that is not zero, or None; found as if all before it were data."""
        low, high = 0, -(-min(size, self._file.size) // BLOCK_BYTES)
        while low < high:
            middle = (low + high) // 2
            if any(self._block(middle, size)):
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return None
        return (low - 1) * BLOCK_BYTES + len(self._block(low - 1, size).rstrip(b"\0")) - 1

    def has_data(self, position: int, stop: int) -> bool:
        """Whether a byte in [position, stop) is not zero."""
        stop = min(stop, self._file.size)
        while position < stop:
            length = min(stop - position, _MOST_AHEAD_BYTES // 2)
            if any(self.read(position, length)):
                return True
            position += length
        return False

    def _block(self, number: int, size: int) -> bytes:
        start = number * BLOCK_BYTES
        return self.read(start, min(BLOCK_BYTES, min(size, self._file.size) - start))
