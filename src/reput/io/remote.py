"""Read remote files through a `reput.io.storage.Storage`, for readers with scattered reads.

Every request costs milliseconds, so results are cached. One listing of everything below the root is cached for a
second. Blocks of files are cached in bounded memory. Consecutive blocks are read in ever larger steps.
"""

from __future__ import annotations

import mmap
import posixpath
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow.fs

from reput.errors import FormatError, StoreChangedError, StoreNotFoundError
from reput.io.file_systems import FileSystem, RemoteFiles, RemoteReader, resolve
from reput.io.reader import OpenFile

BLOCK_BYTES = 64 << 10
_MOST_AHEAD_BYTES = 4 << 20
_KEPT_BYTES = 256 << 20
_AT_ONCE = 16
_MOST_ANNOUNCED_BYTES = 32 << 20
_NEAR_BLOCKS = 4
_LISTED_S = 1.0
_FOLDER = pyarrow.fs.FileType.Directory


class RemoteFile:
    """One remote file, whose blocks are loaded on demand.

    `data` is address space for the whole file. Only loaded blocks take memory.
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
        self._first = self._next = 0
        self._step = 1

    def load(self, position: int, length: int) -> None:
        number = max(position, 0) // BLOCK_BYTES
        stop = -(-min(position + length, self.size) // BLOCK_BYTES)
        # All blocks of this call must stay loaded until the caller has read them.
        least = max(stop - number, 0)
        while number < stop:
            if self._blocks.touch(self, number):
                number += 1
                continue
            end = number + 1
            # Adjacent missing blocks are fetched with one request.
            while end < stop and not self._blocks.has(self, end):
                end += 1
            number = self._fetch(number, end, least)

    def _fetch(self, number: int, end: int, least: int) -> int:
        """Load blocks from `number` to `end`, and more if reads are sequential; return the end of the loaded blocks.

        Small steps backwards also count as sequential: the chain of a frequent key has such steps. `least` is the
        number of most recently used blocks that must stay loaded.
        """
        most_ahead = _MOST_AHEAD_BYTES // BLOCK_BYTES
        is_backwards = self._first - _NEAR_BLOCKS <= number < self._first
        is_sequential = number == self._next or is_backwards
        # Each sequential read fetches twice as much as the previous one.
        self._step = min(2 * self._step, most_ahead) if is_sequential else 1
        first, last = number, -(-self.size // BLOCK_BYTES)
        if is_backwards:
            while first > max(end - self._step, 0) and not self._blocks.has(self, first - 1):
                first -= 1
        else:
            while end < min(number + self._step, last) and not self._blocks.has(self, end):
                end += 1
        self._read(first, end)
        self._blocks.take(self, first, end, least)
        self._first, self._next = first, end
        return end

    def load_each(self, numbers: Iterable[int]) -> None:
        """Load scattered blocks at the same time, up to a limit in bytes."""
        missing = [number for number in numbers if not self._blocks.has(self, number)]
        del missing[_MOST_ANNOUNCED_BYTES // BLOCK_BYTES :]
        if len(missing) < 2:
            return
        self.reader()  # Open the file once, before the threads start.
        with ThreadPoolExecutor(min(_AT_ONCE, len(missing))) as threads:
            for number, _ in zip(missing, threads.map(self._read, missing), strict=True):
                self._blocks.take(self, number, number + 1, 1)

    def _read(self, first: int, end: int | None = None) -> None:
        """Read the blocks from `first` to before `end`, or one block if `end` is missing."""
        start, stop = first * BLOCK_BYTES, (first + 1 if end is None else end) * BLOCK_BYTES
        self.reader().read_into(np.frombuffer(self._memory[start:stop], np.uint8), start)

    def reader(self) -> RemoteReader:
        if self._reader is None:
            self._reader = RemoteReader(self._system, self._path_there)
            # `size` comes from a listing, and the file may have been replaced since.
            if self._reader.size < self.size:
                raise StoreChangedError(
                    f"{self.path}: now ends at {self._reader.size}; run the command again"
                )
        return self._reader

    def forget(self, number: int) -> None:
        """Free the memory of a block."""
        start = number * BLOCK_BYTES
        # The address space stays reserved. Only its memory is returned to the system.
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, start, min(BLOCK_BYTES, self.size - start))

    def close(self) -> None:
        """Release the loaded blocks. The file can still be read."""
        self._blocks.forget(self)
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class LoadedBlocks:
    """The loaded blocks of all files. The least recently used blocks are dropped above a limit."""

    def __init__(self) -> None:
        self._loaded: OrderedDict[tuple[RemoteFile, int], None] = OrderedDict()

    def has(self, file: RemoteFile, number: int) -> bool:
        return (file, number) in self._loaded

    def touch(self, file: RemoteFile, number: int) -> bool:
        """Return whether a block is loaded, and mark it as the most recently used."""
        if (file, number) not in self._loaded:
            return False
        self._loaded.move_to_end((file, number))
        return True

    def take(self, file: RemoteFile, number: int, end: int, least: int) -> None:
        """Add the blocks `number` to `end` - 1, and drop the least recently used blocks above the limit.

        Even above the limit, the added blocks and `least` other blocks stay loaded.
        """
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
    """A `reput.io.reader.SparseReader` that keeps blocks of a remote file in memory, and loads missing ones.

    Large reads do not use these blocks, but go directly to the file.
    """

    def __init__(self, file: RemoteFile) -> None:
        self._file, self.path = file, file.path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        """Do nothing: the blocks stay for the next reader of the file."""

    def stop_read_ahead(self) -> None:
        """Do nothing: read-ahead does harm only in a file with holes, and remote files have none."""

    def announce(self, positions: Sequence[int], length: int) -> None:
        blocks = {
            number
            for position in positions
            if 0 <= position < self.size
            for number in (
                position // BLOCK_BYTES,
                (min(position + length, self.size) - 1) // BLOCK_BYTES,
            )
        }
        self._file.load_each(sorted(blocks))

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
                f"{self.path}: ends at {file.size}, but was longer when the job began"
            )
        # A large read would displace the blocks of other reads.
        if len(buffer) > _MOST_AHEAD_BYTES // 2:
            file.reader().read_into(buffer, position)
            return
        file.load(position, len(buffer))
        buffer[:] = np.frombuffer(file.data[position:end], np.uint8)

    def next_run(self, position: int) -> tuple[int, int] | None:
        """Return the rest of the file as one run: remote file systems do not report holes."""
        return (position, self._file.size) if position < self._file.size else None

    def last_nonzero(self, size: int) -> int | None:
        """Return the position of the last nonzero byte below `size`; None if all are zero.

        A binary search by blocks assumes that no block before the last nonzero byte is all zeros.
        """
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
        """Return whether a byte in [position, stop) is not zero."""
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


class RemoteStatus(NamedTuple):
    """The part of os.stat_result that is known for a remote file. `st_blocks` assumes that the file has no holes."""

    st_size: int

    @property
    def st_blocks(self) -> int:
        return -(-self.st_size // 512)


class RemoteEntry(NamedTuple):
    """A file or folder of a listing; see `reput.io.storage.FolderEntry`."""

    path: str
    name: str
    is_folder: bool
    size: int
    modified_ns: int

    def is_dir(self) -> bool:
        return self.is_folder

    def is_file(self) -> bool:
        return not self.is_folder

    def inode(self) -> int:
        # A remote file has no inode. A replaced file has another time of change.
        return self.modified_ns

    def stat(self) -> RemoteStatus:
        return RemoteStatus(self.size)


class RemoteStorage:
    """The file system of one store. Paths are URLs. Only one thread at a time may use it."""

    is_local = False
    is_archive = False
    is_joined = False

    def __init__(self, system: FileSystem, root: str) -> None:
        """Prepare to list everything below `root`, a URL without its options, in one request.

        An empty `root` means that folders are listed one by one.
        """
        self._system, self.root = system, root.rstrip("/")
        self._folders: dict[str, dict[str, RemoteEntry]] = {}
        self._listed_at = -_LISTED_S
        self.listings = 0
        self._files: dict[str, tuple[RemoteEntry, RemoteFile]] = {}
        self._blocks = LoadedBlocks()

    def __reduce__(self) -> tuple[type[RemoteStorage], tuple[FileSystem, str]]:
        # Caches of blocks are not sent to other processes.
        return type(self), (self._system, self.root)

    @classmethod
    def of(
        cls, url: str, options: Mapping[str, str], *, lists_all: bool = True
    ) -> tuple[RemoteStorage, str]:
        """See `reput.io.storage.storage_of`."""
        system, path = resolve(url, options)
        place = system.prefix + path
        return cls(system, place if lists_all else ""), place

    @property
    def open_file(self) -> OpenFile:
        return RemoteFiles(self._system)

    def list(self, folder: str) -> Sequence[RemoteEntry]:
        folder = folder.rstrip("/")
        if not self._is_below_root(f"{folder}/"):
            return [self._entry(info) for info in self._system.entries(self._in_system(folder))]
        return list(self._tree().get(folder, {}).values())

    def entry(self, path: str) -> RemoteEntry | None:
        path = path.rstrip("/")
        if not self._is_below_root(path):
            return self._lookup(path)
        folder, _, name = path.rpartition("/")
        return self._tree().get(folder, {}).get(name)

    def _is_below_root(self, path: str) -> bool:
        return bool(self.root) and path.startswith(f"{self.root}/")

    def open(self, path: str) -> CachedReader:
        return CachedReader(self._file(path))

    def _file(self, path: str) -> RemoteFile:
        entry = self.entry(path)
        if entry is None or entry.is_folder:
            raise StoreNotFoundError(f"{path}: no longer exists")
        if entry.size == 0:
            raise FormatError(path, 0, "the file is empty")
        previous, file = self._files.get(path, (None, None))
        if file is None or previous != entry:
            # The file was replaced, so its loaded blocks are outdated.
            if file is not None:
                self._blocks.forget(file)
            file = RemoteFile(self._system, self._in_system(path), path, entry.size, self._blocks)
            self._files[path] = entry, file
        return file

    def watch(self, folder: str) -> RemoteWatch:
        return RemoteWatch(self)

    def refresh(self) -> int:
        """List again if the last listing is too old. Return the number of listings made so far, to detect a new one."""
        self._tree()
        return self.listings

    def _in_system(self, url: str) -> str:
        return url.removeprefix(self._system.prefix)

    def _lookup(self, path: str) -> RemoteEntry | None:
        info = self._system.info(self._in_system(path))
        return None if info.type == pyarrow.fs.FileType.NotFound else self._entry(info)

    def _entry(self, info: pyarrow.fs.FileInfo) -> RemoteEntry:
        url = self._system.prefix + info.path
        is_folder = info.type == _FOLDER
        modified_ns = 0 if is_folder else info.mtime_ns or 0
        return RemoteEntry(url, posixpath.basename(url), is_folder, info.size or 0, modified_ns)

    def _tree(self) -> dict[str, dict[str, RemoteEntry]]:
        """Return the entries below the root, by folder. The listing is at most one second old."""
        if time.monotonic() - self._listed_at >= _LISTED_S:
            tree: dict[str, dict[str, RemoteEntry]] = {}
            for info in self._system.entries(self._in_system(self.root), recursive=True):
                entry = self._entry(info)
                while entry.path.startswith(f"{self.root}/"):
                    folder, _, name = entry.path.rpartition("/")
                    tree.setdefault(folder, {}).setdefault(name, entry)
                    # An object store may have files without entries for their folders.
                    entry = RemoteEntry(folder, posixpath.basename(folder), True, 0, 0)
            if tree != self._folders:
                self._folders = tree
            self._listed_at = time.monotonic()
            self.listings += 1
        return self._folders


class RemoteWatch:
    """A `reput.io.storage.Watch` of everything below a storage's root."""

    def __init__(self, storage: RemoteStorage) -> None:
        self._storage = storage
        self._listings = -1

    def changed(self) -> bool:
        listings = self._storage.refresh()
        changed, self._listings = listings != self._listings, listings
        return changed
