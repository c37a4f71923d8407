"""Perform the file operations of a writable store. A crash or a full disk can come between any two operations.

A store changes its files only through one `Disk` and the writers that it returns. Tests substitute a disk that fails,
or that loses unsynced data.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from reput.errors import StoreFailedError, displaced, explained
from reput.io.local_disk import LocalDisk
from reput.io.mapped_writer import MappedWriter
from reput.io.open_files import Pooled
from reput.io.reader import FileReader, Identity, check_in_place
from reput.io.writer import FileWriter, delete, make_folder, replacing, write_durable


class PooledWriter(Pooled[FileWriter]):
    """A FileWriter whose descriptor is open only during use.

    `sync` makes all writes durable, also those through a descriptor that has been closed since.
    """

    __slots__ = ("_check", "_open_file", "identity")

    def __init__(
        self, path: Path, open_file: Callable[[], FileWriter], check: Callable[[Identity], None]
    ) -> None:
        """Open the file, or create it.

        Args:
            path: the file.
            open_file: opens or creates the file.
            check: is called before the file is reopened; raises if another file has taken its name.
        """
        super().__init__(os.fspath(path))
        self._open_file, self._check = open_file, check
        # The file's identity (device, inode) is unknown until the file is first opened.
        self.identity: Identity = (0, 0)
        self._pins.append(None)
        try:
            self._taken()
        finally:
            self._pins.pop()

    def _open(self) -> FileWriter:
        if self.identity != (0, 0):
            # Check before opening: if the file was deleted, opening would create a new file of this name.
            self._check(self.identity)
        file = self._open_file()
        identity = file.identity
        if self.identity == (0, 0):
            self.identity = identity
        # If the identity differs, the file was deleted after the check, and `_open_file` has created a new one.
        elif identity != self.identity:
            file.close()
            raise displaced(Path(self.path), "deleted or renamed")
        return file

    def write(self, data: bytes | memoryview, position: int) -> None:
        self._pins.append(None)
        try:
            self._taken().write(data, position)
        finally:
            self._pins.pop()

    def start_writeback(self) -> None:
        """See FileWriter. A file that is not open is skipped; `sync` writes its pages."""
        self._pins.append(None)
        try:
            if (file := self._file) is not None:
                file.start_writeback()
        finally:
            self._pins.pop()

    def sync(self) -> None:
        self._pins.append(None)
        try:
            self._taken().sync()
        finally:
            self._pins.pop()


class Disk(LocalDisk):
    """The disk of a writable store. Every method raises StoreAccessError if the operating system refuses.

    deleted  files that were deleted through this disk and not created again. If another thread still has such a
             file open, `check_in_place` must not report the file
    """

    def __init__(self) -> None:
        self.deleted: set[Path] = set()

    def open(self, path: Path, size: int) -> FileWriter:
        """Return a writer for a file of `size` bytes, created if missing. Its name is durable after `sync_folder`."""
        self.deleted.discard(path)
        return FileWriter(path, size=size)

    def open_pooled(self, path: Path, size: int) -> PooledWriter:
        """Open a file as `open` does, but keep its descriptor only during use: a store may have very many files.

        Writing also raises StoreFailedError if `path` leads to a different file when the file is reopened.
        """
        return PooledWriter(
            path, lambda: self.open(path, size), lambda own: self.check_in_place(path, own)
        )

    def map(self, path: Path, size: int) -> MappedWriter:
        """Open a file as `open` does, then allocate all its blocks and map it into memory."""
        self.deleted.discard(path)
        return MappedWriter(path, size)

    def make_folder(self, path: Path) -> None:
        """Create a folder and its missing parents, and make their names durable."""
        missing = [path]
        # A synced folder could still be lost with an unsynced parent, so each level is synced in turn.
        while not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for folder in reversed(missing):
            make_folder(folder)
            self.sync_folder(folder.parent)

    def delete(self, path: Path) -> None:
        """Delete a file if it exists; durable after `sync_folder`."""
        # Add the path to `deleted` before the deletion. Another thread may call `check_in_place` during the deletion,
        # and must not report the file.
        self.deleted.add(path)
        delete(path)

    def check_in_place(self, path: Path, identity: Identity) -> None:
        """Raise StoreFailedError if an open file was replaced, or was deleted without a call of this object's `delete`.

        Raises StoreFailedError, StoreAccessError.
        """
        try:
            check_in_place(path, identity)
        except StoreFailedError:
            if path not in self.deleted:
                raise

    def usage(self, path: Path) -> tuple[int, int]:
        """Return the used bytes of the file system, and the bytes still available to this user."""
        with explained(path, "be looked at"):
            status = os.statvfs(path)
        used = (status.f_blocks - status.f_bfree) * status.f_frsize
        return used, status.f_bavail * status.f_frsize

    def clear(self, path: Path, keep: int, size: int) -> int:
        """Zero a file from byte `keep` on and set its size to `size`, durably. Write nothing if nothing changes.

        Return the position after the last byte that was not zero before the call; 0 if all bytes were zero.
        """
        with FileReader(str(path)) as reader:
            size_before, last = reader.size, reader.last_nonzero(reader.size)
        stop = 0 if last is None else last + 1
        if stop > keep or size_before != size:
            with self.open(path, size) as file:
                file.write_zeros(keep, stop)
                file.sync()
        return stop

    def replace(self, path: Path, data: bytes) -> None:
        """Replace a file's content, durably: after a crash it has either the old content or the new."""
        with replacing(path) as attempt:
            write_durable(attempt, data)
        self.sync_folder(path.parent)
