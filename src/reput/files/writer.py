"""Writing, syncing, renaming: each step that a crash or a full disk can interrupt, in one place."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from reput.errors import ReputError, StoreAccessError

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_SYNC_FILE_RANGE_WRITE = 2
# A container's system call filter says EPERM for what it does not know.
_CANNOT_EXCHANGE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM}


@contextmanager
def explained(path: str | os.PathLike[str], action: str) -> Iterator[None]:
    """Turn an OSError of the body into a StoreAccessError that says which file and what to do."""
    try:
        yield
    except OSError as error:
        if isinstance(error, ReputError):  # some are an OSError too, and say more
            raise
        hint = {
            28: "; free some space and run it again",
            13: "; check its permissions",
            30: "; choose another place",
        }.get(error.errno or 0, "")
        raise StoreAccessError(
            f"{os.fspath(path)}: cannot {action}: {error.strerror or error}{hint}"
        ) from error


class FileWriter:
    """A file that is written by position. Bytes are durable only after `sync`. A context manager that closes it."""

    def __init__(self, path: Path, size: int | None = None) -> None:
        """Open or create `path`, not a link; `size` makes it that long, zeros where nothing was written."""
        self.path = path
        with explained(path, "be created"):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(path, flags, 0o644)
        try:
            if size is not None and os.fstat(self._fd).st_size != size:
                with explained(path, "be given its size"):
                    os.ftruncate(self._fd, size)
        except BaseException:
            FileWriter.close(self)
            raise

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def fileno(self) -> int:
        return self._fd

    def write(self, data: bytes | memoryview, position: int) -> None:
        """Write all of `data` at byte `position`."""
        view = memoryview(data).cast("B")
        with explained(self.path, "be written"):
            while view:
                count = os.pwrite(self._fd, view, position)
                view, position = view[count:], position + count

    def start_writeback(self) -> None:
        """Have the kernel begin to write what is dirty, so that `sync` finds less to wait for."""
        with suppress(AttributeError):  # not every C library has it, and nothing depends on it
            start = _libc().sync_file_range
            start(self._fd, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_WRITE)

    def sync(self) -> None:
        with explained(self.path, "be synced"):
            os.fdatasync(self._fd)

    def close(self) -> None:
        """Close the file; one that is closed stays so."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def write_durable(path: Path, data: bytes | memoryview) -> None:
    """A new file with this content, synced."""
    with FileWriter(path, size=0) as file:
        file.write(data, 0)
        file.sync()


def create_durable(path: Path, data: bytes | memoryview) -> None:
    """A file with this content, which it has from the moment when it is there.

    Raises StoreAccessError, also where it is there already.
    """
    attempt = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        write_durable(attempt, data)
        with explained(path, "be created"):
            os.link(attempt, path)
    finally:
        with suppress(OSError):  # the error that led here says more
            attempt.unlink(missing_ok=True)


def rename(path: Path, name: Path) -> None:
    """Rename; durable after `sync_folder`."""
    with explained(path, "be renamed"):
        os.rename(path, name)


def put_in_place(path: Path, name: Path) -> None:
    """Give a file the name of another, which it replaces; durable after `sync_folder`."""
    with explained(name, "be replaced"):
        os.replace(path, name)


def link(path: Path, name: Path) -> None:
    """A further name for a file."""
    with explained(name, "be linked"):
        os.link(path, name)


@contextmanager
def appending(path: Path, size: int, buffer_bytes: int) -> Iterator[BinaryIO]:
    """The file, to be written from `size` on; what it has after that is cut off. Durable at the end."""
    with explained(path, "be written"), open(path, "r+b", buffering=buffer_bytes) as file:
        file.truncate(size)
        file.seek(size)
        yield file
        file.flush()
        os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    """Make the content of a file durable that others wrote."""
    with explained(path, "be synced"):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name of this attempt's own to write to; when the body succeeds it is renamed to `path`."""
    attempt = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield attempt
        with explained(path, "be renamed into place"):
            os.replace(attempt, path)
    finally:
        with suppress(OSError):  # the error that led here says more
            attempt.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    with explained(path, "be created"):
        path.mkdir(parents=True, exist_ok=True)


def remove_tree(path: Path) -> None:
    """Delete a folder or file if it is there."""
    with explained(path, "be deleted"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    with explained(path, "be synced"):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def sync_tree(path: Path) -> None:
    """Make the names in a folder and all below it durable."""
    for folder, _, _ in os.walk(path):
        sync_folder(Path(folder))


def exchange(left: Path, right: Path) -> None:
    """Swap two names in one step where the file system can, so that neither is ever missing."""
    with explained(left, "be swapped"):
        if exchange_at_once(left, right):
            return
        aside = left.with_name(f"{left.name}.{uuid.uuid4().hex}.swap")
        os.rename(left, aside)
        os.rename(right, left)
        os.rename(aside, right)


def exchange_at_once(left: Path, right: Path) -> bool:
    """Swap two names in one step (renameat2); False where this system or file system cannot, and nothing is done.

    Raises OSError, as for a mount point or a name that is not there.
    """
    try:
        renameat2 = _libc().renameat2
    except AttributeError:
        return False
    names = (os.fsencode(left), os.fsencode(right))
    result: int = renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
    code = ctypes.get_errno() if result else 0
    if code and code not in _CANNOT_EXCHANGE:
        raise OSError(code, os.strerror(code), str(left))
    return result == 0


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
