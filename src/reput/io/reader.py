"""Read ranges of files with pread. If a file shrinks, this raises an error, whereas a map would kill the process."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from reput.base import Closing
from reput.errors import (
    FormatError,
    StoreAccessError,
    StoreChangedError,
    StoreNotFoundError,
    displaced,
    explained,
)
from reput.io.anchors import open_anchored

# Imported only for typing: NumPy takes longer to import than a query by key takes.
if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


_ZEROS = bytes(1 << 20)
_MOST_TEXT_BYTES = 1 << 30
_SMALL_BYTES = 1 << 16


Identity = tuple[int, int]
"""Device and inode of a file."""


def identity_of(descriptor: int) -> Identity:
    """Return device and inode of an open file."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def check_in_place(path: Path, identity: Identity) -> None:
    """Raise StoreFailedError if the path does not lead to this open file any more. Raises StoreAccessError.

    A lock keeps other writers out of a store. But a starting broker deletes and renames files before it takes the lock.
    Without the check, the process that has the lock would continue to write into a file without a name. Such a file
    vanishes when it is closed.
    """
    with explained(path, "be looked at"):
        try:
            named = os.stat(path, follow_symlinks=False)
        except FileNotFoundError:
            raise displaced(path, "deleted or renamed") from None
    if (named.st_dev, named.st_ino) != identity:
        raise displaced(path, "replaced")


class RangeReader(Protocol):
    """A reader of ranges of one open file on any storage. See FileReader for its methods."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def read_into(self, buffer: npt.NDArray[np.uint8], position: int) -> None: ...

    def read(self, position: int, length: int) -> bytes: ...

    def next_run(self, position: int) -> tuple[int, int] | None: ...


OpenFile = Callable[[str], RangeReader]
"""A function that opens a file by its path. It can be sent to another process."""


class SparseReader(RangeReader, Protocol):
    """A RangeReader that also finds the data between holes of a file. Callers close the reader after the last read."""

    @property
    def size(self) -> int: ...

    def last_nonzero(self, size: int) -> int | None: ...

    def has_data(self, position: int, stop: int) -> bool: ...

    def stop_read_ahead(self) -> None: ...

    def announce(self, positions: Sequence[int], length: int) -> None:
        """Prepare reads of `length` bytes at many positions: remote storage then gets all requests at the same time."""

    def close(self) -> None: ...


def data_runs(reader: RangeReader, position: int, stop: int) -> list[tuple[int, int]]:
    """Return all runs of data between `position` and `stop`, as (begin, end), before any of them is read.

    After read-ahead in a preallocated file, the system may report part of the following hole as data. A search after
    each read would find this new data, and so read the file to its end.
    """
    runs = []
    while position < stop and (run := reader.next_run(position)) is not None and run[0] < stop:
        runs.append((run[0], min(run[1], stop)))
        position = run[1]
    return runs


def open_to_read(path: str) -> int:
    """Return the descriptor of a file. Raises StoreNotFoundError, StoreAccessError."""
    try:
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        return open_anchored(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        raise StoreNotFoundError(f"{path}: no longer exists") from None
    # `open_anchored` has refused a link with a StoreAccessError, whose message is complete. This error is also an
    # OSError, so the next clause would otherwise replace its message.
    except StoreAccessError:
        raise
    except OSError as error:
        raise StoreAccessError(f"{path}: cannot be opened: {error.strerror}") from error


class FileReader(Closing):
    """One open file. Its methods raise StoreNotFoundError, StoreAccessError, StoreChangedError."""

    _meter: ClassVar[Callable[[int], None] | None] = None
    """Called with the number of bytes before each read of `read` and `read_into`; None if nothing counts them."""

    @classmethod
    @contextmanager
    def metered(cls, meter: Callable[[int], None]) -> Iterator[None]:
        """In the `with` block, call `meter` with the number of bytes before each read in this process."""
        before, cls._meter = cls._meter, meter
        try:
            yield
        finally:
            cls._meter = before

    @classmethod
    def content_of(cls, path: str | os.PathLike[str], most_bytes: int) -> bytes:
        """Return the first `most_bytes` of a file, or all of a shorter file."""
        with cls(os.fspath(path)) as reader:
            return reader.read(0, min(reader.size, most_bytes))

    @classmethod
    def text_of(cls, path: str | os.PathLike[str]) -> str:
        """Return the content of a text file. Also raises FormatError, for a file above 1 GiB too."""
        data = cls.content_of(path, _MOST_TEXT_BYTES + 1)
        if len(data) > _MOST_TEXT_BYTES:
            raise FormatError(path, _MOST_TEXT_BYTES, "longer than a file of this kind can be")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise FormatError(path, error.start, "not UTF-8") from None

    @staticmethod
    def small_file(path: str, most_bytes: int) -> bytes:
        """Return the first bytes of a small file with one open and one read. Raises OSError."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            return os.read(descriptor, most_bytes)
        finally:
            os.close(descriptor)

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = open_to_read(path)
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            os.close(self._fd)
            raise StoreAccessError(f"{path}: cannot be read: not a regular file")

    def close(self) -> None:
        os.close(self._fd)

    @property
    def fileno(self) -> int:
        return self._fd

    def stop_read_ahead(self) -> None:
        """Turn off read-ahead.

        Read-ahead loads holes of a preallocated file into memory. The system then reports these holes as data.
        """
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)

    def announce(self, positions: Sequence[int], length: int) -> None:
        """Do nothing. Requesting ranges in advance makes only reads of remote files faster."""

    @property
    def size(self) -> int:
        """Return the current size of the file in bytes."""
        return os.fstat(self._fd).st_size

    def read_into(self, buffer: npt.NDArray[np.uint8], position: int) -> None:
        """Fill `buffer` from byte `position` of the file."""
        if FileReader._meter is not None:
            FileReader._meter(buffer.nbytes)
        self._fill(buffer.data, position)

    def _fill(self, view: memoryview, position: int) -> None:
        done = 0
        while done < len(view):
            try:
                count = os.preadv(self._fd, [view[done:]], position + done)
            except OSError as error:
                raise self._unreadable(position + done, error) from error
            if count == 0:
                raise StoreChangedError(
                    f"{self.path}: ends at {position + done}, but was longer when the job began"
                )
            done += count

    def read(self, position: int, length: int) -> bytes:
        """Return the `length` bytes at `position`. Raises StoreAccessError, StoreChangedError."""
        if FileReader._meter is not None:
            FileReader._meter(length)
        try:
            data = os.pread(self._fd, length, position)
        except OSError as error:
            raise self._unreadable(position, error) from error
        if len(data) == length:
            return data
        # Free the incomplete result before reading again: a record may have 2 GiB, and must not be in memory twice.
        del data
        # Too few bytes were read: the file was truncated, or one call cannot read all of them (Linux: at most 2 GiB).
        buffer = bytearray(length)
        self._fill(memoryview(buffer), position)
        return bytes(buffer)

    def read_each(self, positions: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Return the bytes at many places. This is faster than many calls of `read`. Raises as `read` does."""
        descriptor, pread = self._fd, os.pread
        try:
            parts = [
                pread(descriptor, length, position)
                for position, length in zip(positions, lengths, strict=True)
            ]
        except OSError as error:
            raise self._unreadable(positions[0], error) from error
        # If a read returned too few bytes, `read` repeats all reads. It raises an error if the file was truncated.
        if sum(map(len, parts)) == sum(lengths):
            return parts
        return list(map(self.read, positions, lengths))

    def _unreadable(self, position: int, error: OSError) -> StoreAccessError:
        return StoreAccessError(f"{self.path}: offset {position}: cannot be read: {error.strerror}")

    def last_nonzero(self, size: int) -> int | None:
        """Return the position of the last nonzero byte below `size`; None if all are zero.

        A hole at the end is not read.
        """
        # A file may end with a hole. Find the beginning of this hole by a binary search, during which all bytes from
        # `high` on are in the hole. A small file is read without this search, because reading the file takes less time.
        low, high = (0, size) if size > _SMALL_BYTES else (size, size)
        while low < high:
            middle = (low + high) // 2
            if self.next_data(middle) is None:
                high = middle
            else:
                low = middle + 1
        stop = min(high + 1, size)
        while stop > 0:
            start = max(stop - len(_ZEROS), 0)
            data = self.read(start, stop - start)
            # Comparing with zeros is thirty times as fast as stripping them.
            if data != _ZEROS and (data := data.rstrip(b"\0")):
                return start + len(data) - 1
            stop = start
        return None

    def has_data(self, position: int, stop: int) -> bool:
        """Return whether a byte in [position, stop) is not zero. Holes are not read."""
        for begin, end in data_runs(self, position, stop):
            for at in range(begin, end, len(_ZEROS)):
                data = self.read(at, min(end - at, len(_ZEROS)))
                if data != bytes(len(data)):
                    return True
        return False

    def next_data(self, position: int) -> int | None:
        """Return the position of the next byte that is not in a hole; None if only a hole follows."""
        run = self.next_run(position)
        return None if run is None else run[0]

    def next_run(self, position: int) -> tuple[int, int] | None:
        """Return begin and end of the next data at or after `position`; None if only a hole follows.

        Callers must not read beyond this data. Once a hole of a preallocated file was read, even if only by read-ahead,
        the system reports the hole as data. The next search for data would then find the whole rest of the file.
        """
        self.stop_read_ahead()
        size = self.size
        try:
            start = os.lseek(self._fd, position, os.SEEK_DATA)
            return start, os.lseek(self._fd, start, os.SEEK_HOLE)
        except OSError as error:
            # ENXIO: no data follows.
            if error.errno == errno.ENXIO or position >= size:
                return None
            # This file system does not report holes, so all bytes count as data.
            return position, size
