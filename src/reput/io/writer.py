"""Write, sync and rename files. A crash or a full disk can interrupt these steps at any point."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from reput.base import Closing
from reput.errors import StoreAccessError, StoreChangedError, explained
from reput.io.anchors import at, make_folders, open_anchored, writing_to
from reput.io.reader import Identity, identity_of

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_SYNC_FILE_RANGE_WRITE = 2
# Flags to inspect a file without permission to read it.
_LOOK = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)
# Errors of systems and file systems that lack the call renameat2. Container runtimes return EPERM for unknown calls.
_CANNOT_EXCHANGE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM}
_ZEROS = memoryview(bytes(1 << 20))


class FileWriter(Closing):
    """A file that is written by position. Bytes are durable only after `sync`. A context manager closes it."""

    def __init__(self, path: Path, size: int | None = None) -> None:
        """Open or create a file, which must not be a symbolic link.

        With `size`, its length is set; unwritten parts read as zeros.
        """
        self.path = path
        with explained(path, "be created"):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            self._fd = open_anchored(path, flags, 0o644)
        try:
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise StoreAccessError(f"{path}: cannot be written: not a regular file")
            # Skip an unnecessary ftruncate, because it would change the file's ctime.
            if size is not None and os.fstat(self._fd).st_size != size:
                with explained(path, "be given its size"):
                    os.ftruncate(self._fd, size)
        except BaseException:
            FileWriter.close(self)
            raise

    @property
    def fileno(self) -> int:
        return self._fd

    @property
    def identity(self) -> Identity:
        return identity_of(self._fd)

    def write(self, data: bytes | memoryview, position: int) -> None:
        """Write all of `data` at byte `position`."""
        view = memoryview(data).cast("B")
        with explained(self.path, "be written"):
            while view:
                count = os.pwrite(self._fd, view, position)
                view, position = view[count:], position + count

    def write_zeros(self, begin: int, stop: int) -> None:
        """Write zeros from byte `begin` to `stop`. Raises StoreAccessError."""
        for position in range(begin, stop, len(_ZEROS)):
            self.write(_ZEROS[: stop - position], position)

    def start_writeback(self) -> None:
        """Start writing dirty pages, so that a later `sync` has fewer to wait for."""
        # Some C libraries lack sync_file_range. It is only an optimization, so do nothing then.
        with suppress(AttributeError):
            start = _libc().sync_file_range
            start(self._fd, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_WRITE)

    def sync(self) -> None:
        with explained(self.path, "be synced"):
            # fdatasync does not write the file's times, but it writes the size, without which data would be lost.
            os.fdatasync(self._fd)

    def close(self) -> None:
        """Close the file. Further calls do nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def write_durable(path: Path, data: bytes | memoryview) -> None:
    """Create a file with this content, and sync it."""
    with FileWriter(path, size=0) as file:
        file.write(data, 0)
        file.sync()


def create_durable(path: Path, data: bytes | memoryview) -> None:
    """Create a file whose name appears only when its content is complete and durable.

    Raises StoreAccessError, also if the file exists already.
    """
    attempt = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        write_durable(attempt, data)
        # Unlike rename, link fails if the name exists.
        link(attempt, path)
    finally:
        # If a step above failed, its error must not be replaced by an error of this clean-up.
        with suppress(OSError):
            delete(attempt)


def delete(path: Path) -> None:
    """Delete a file if it exists; durable after `sync_folder`. Raises StoreAccessError."""
    with explained(path, "be deleted"), suppress(FileNotFoundError), at(path) as (folder, name):
        os.unlink(name, dir_fd=folder)


def rename(path: Path, name: Path) -> None:
    """Rename a file; durable after `sync_folder`."""
    with explained(path, "be renamed"), at(path) as (old, there), at(name) as (new, here):
        os.rename(there, here, src_dir_fd=old, dst_dir_fd=new)


def put_in_place(path: Path, name: Path) -> None:
    """Rename a file, replacing an existing one; durable after `sync_folder`."""
    with explained(name, "be replaced"), at(path) as (old, there), at(name) as (new, here):
        os.replace(there, here, src_dir_fd=old, dst_dir_fd=new)


def link(path: Path, name: Path, inode: int | None = None) -> None:
    """Create a hard link to a file.

    Args:
        path: path of the file, which must not be a symbolic link.
        name: the new name.
        inode: inode of the file, if the caller knows it.

    Raises:
        StoreChangedError: the file was replaced meanwhile; the new name is removed again.
        StoreAccessError: the file cannot be linked, for example because it is a symbolic link, or because
            `open_anchored` refuses it.
    """
    with explained(name, "be linked"), at(path) as (old, there), at(name) as (new, here):
        source = open_anchored(path, _LOOK)
        try:
            status = os.fstat(source)
            # `os.link` takes a name, not the descriptor, and another file may have this name by now. So the new link is
            # compared with the file that was opened.
            os.link(there, here, src_dir_fd=old, dst_dir_fd=new, follow_symlinks=False)
            linked = os.stat(here, dir_fd=new, follow_symlinks=False)
            is_same = os.path.samestat(status, linked) and inode in (None, linked.st_ino)
            if not (is_same and stat.S_ISREG(linked.st_mode)):
                os.unlink(here, dir_fd=new)
                raise StoreChangedError(f"{path}: was replaced meanwhile; run the command again")
        finally:
            os.close(source)


def _open_file(path: str, flags: int) -> int:
    return open_anchored(path, flags | os.O_NOFOLLOW)


@contextmanager
def appending(path: Path, size: int, buffer_bytes: int) -> Iterator[BinaryIO]:
    """Truncate a file to `size`, and yield it for writing from there. It is synced at the end."""
    with (
        explained(path, "be written"),
        open(path, "r+b", buffering=buffer_bytes, opener=_open_file) as file,
    ):
        file.truncate(size)
        file.seek(size)
        yield file
        file.flush()
        os.fsync(file.fileno())


def append_line(path: str, line: bytes) -> None:
    """Append a line to a file. A new file is readable only by its owner. If `line` is empty, the file is only created.

    Raises StoreAccessError.
    """
    with writing_to(path), explained(Path(path), "be written"):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        # O_APPEND and a single write keep the lines of several processes apart.
        descriptor = open_anchored(path, flags, 0o600)
        try:
            # If the disk becomes full, `write` writes only a part of the line and reports no error.
            if line and os.write(descriptor, line + b"\n") <= len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the content of a file durable, including writes of other processes."""
    with explained(path, "be synced"):
        fd = open_anchored(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name to write to. When the with block succeeds, the file is renamed to `path`."""
    attempt = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield attempt
        put_in_place(attempt, path)
    finally:
        # If the with block failed, its error must not be replaced by an error of this clean-up.
        with suppress(OSError):
            delete(attempt)


def make_folder(path: Path) -> None:
    with explained(path, "be created"):
        make_folders(path)


def remove_tree(path: Path) -> None:
    """Delete a folder or file if it exists."""
    with explained(path, "be deleted"), suppress(FileNotFoundError), at(path) as (folder, name):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    with explained(path, "be synced"):
        fd = open_anchored(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def sync_tree(path: Path) -> None:
    """Make the names in a folder, and in all folders below it, durable."""
    with explained(path, "be synced"), at(path) as (parent, name):
        for _, _, _, folder in os.fwalk(name, dir_fd=parent):
            os.fsync(folder)


def exchange(first: Path, second: Path) -> None:
    """Swap two names. If the file system can do it in one step, neither name is ever missing."""
    with explained(first, "be swapped"):
        if exchange_at_once(first, second):
            return
    # After a crash between these renames, `first` or `second` is missing, and what was `first` has the .swap name.
    aside = first.with_name(f"{first.name}.{uuid.uuid4().hex}.swap")
    rename(first, aside)
    rename(second, first)
    rename(aside, second)


def exchange_at_once(first: Path, second: Path) -> bool:
    """Swap two names in one step (renameat2). Return False without a change if the system cannot do it.

    Raises OSError, for example for a mount point or a missing name.
    """
    try:
        renameat2 = _libc().renameat2
    # Some C libraries have no function renameat2.
    except AttributeError:
        return False
    with at(first) as (one, here), at(second) as (other, there):
        folders = [_AT_FDCWD if folder is None else folder for folder in (one, other)]
        names = os.fsencode(here), os.fsencode(there)
        result: int = renameat2(folders[0], names[0], folders[1], names[1], _RENAME_EXCHANGE)
    code = ctypes.get_errno() if result else 0
    if code and code not in _CANNOT_EXCHANGE:
        raise OSError(code, os.strerror(code), str(first))
    return result == 0


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to `path` when the with block succeeds.

    Raises StoreAccessError, also if `path` exists and is not an empty folder.
    """
    attempt = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    with writing_to(path):
        try:
            make_folder(attempt)
            yield attempt
            with (
                explained(path, "be created"),
                at(attempt) as (old, there),
                at(path) as (new, here),
            ):
                os.rename(there, here, src_dir_fd=old, dst_dir_fd=new)
        finally:
            # If the with block failed, its error must not be replaced by an error of this clean-up.
            with suppress(OSError):
                remove_tree(attempt)


def write_chunks(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write a file piece by piece. Raises StoreAccessError."""
    with explained(path, "be written"), open_part(path) as file:
        file.writelines(chunks)


def open_part(path: Path) -> BinaryIO:
    """Create a file.

    Raises OSError. If this process runs as root, raises StoreAccessError for a link that another user may have created.
    """
    return open(path, "wb", opener=open_anchored)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
