"""The steps by which a writable store changes its files, each of which a crash or a full disk can interrupt.

A store changes its files only through one `Disk` and the writers that this returns. Tests replace it by a disk that
fails, or that loses unsynced data.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from reput.errors import StoreFailedError
from reput.files.mapped_writer import MappedWriter
from reput.files.open_files import Pooled
from reput.files.own_place import check_in_place, displaced
from reput.files.reader import FileReader, Identity, identity_of
from reput.files.writer import (
    FileWriter,
    delete,
    explained,
    make_folder,
    rename,
    replacing,
    sync_folder,
    write_durable,
)


class PooledWriter(Pooled[FileWriter]):
    """A file that is written by position, as by FileWriter. `sync` makes the writes of all descriptors durable."""

    __slots__ = ("_check", "_open_file", "identity")

    def __init__(
        self, path: Path, open_file: Callable[[], FileWriter], check: Callable[[Identity], None]
    ) -> None:
        """Open the file, or create it. `check` raises if another file has the name when the file is reopened."""
        super().__init__(os.fspath(path))
        self._open_file, self._check = open_file, check
        self.identity: Identity = (0, 0)  # No file is open yet.
        self._pins.append(None)
        try:
            self._taken()
        finally:
            self._pins.pop()

    def _open(self) -> FileWriter:
        if self.identity != (0, 0):
            # Noted before the file is created in place of a deleted one.
            self._check(self.identity)
        file = self._open_file()
        identity = identity_of(file.fileno)
        if self.identity == (0, 0):
            self.identity = identity
        # The file was deleted after the check, and is created anew.
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
        """See FileWriter; a file that is closed is left to `sync`."""
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


class Disk:
    """The file system. Every method raises StoreAccessError if the operating system refuses.

    deleted  files deleted through this disk and not created again; other threads of the owner may have them open
    """

    def __init__(self) -> None:
        self.deleted: set[Path] = set()

    def open(self, path: Path, size: int) -> FileWriter:
        """Return a writer for a file of `size` bytes, created if missing; its name is durable after `sync_folder`."""
        self.deleted.discard(path)
        return FileWriter(path, size=size)

    def open_pooled(self, path: Path, size: int) -> PooledWriter:
        """Return a writer like that of `open`, for one of very many files: it has a descriptor only during use.

        Also raises StoreFailedError, if another file has its name when it is reopened.
        """
        return PooledWriter(
            path, lambda: self.open(path, size), lambda own: self.check_in_place(path, own)
        )

    def map(self, path: Path, size: int) -> MappedWriter:
        """Return a writer like that of `open`, preallocated and mapped."""
        self.deleted.discard(path)
        return MappedWriter(path, size)

    def make_folder(self, path: Path) -> None:
        """Create a folder and its missing parents, and make their names durable."""
        missing = [path]
        while not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for folder in reversed(missing):
            make_folder(folder)
            self.sync_folder(folder.parent)

    def create_folder(self, path: Path) -> None:
        """Create a folder and its missing parents; durable after `sync_folder`."""
        make_folder(path)

    def sync_folder(self, path: Path) -> None:
        """Make the names in a folder durable."""
        sync_folder(path)

    def delete(self, path: Path) -> None:
        """Delete a file if it is there; durable after `sync_folder`."""
        self.deleted.add(path)
        delete(path)

    def rename(self, path: Path, name: Path) -> None:
        """Rename; durable after `sync_folder`."""
        rename(path, name)

    def check_in_place(self, path: Path, identity: Identity) -> None:
        """Check that an open file still has its name, unless it was deleted through this disk.

        Raises StoreFailedError, StoreAccessError.
        """
        try:
            check_in_place(path, identity)
        except StoreFailedError:
            if path not in self.deleted:
                raise

    def usage(self, path: Path) -> tuple[int, int]:
        """Return the used bytes of the file system, and the total that this user could use."""
        with explained(path, "be looked at"):
            status = os.statvfs(path)
        used = (status.f_blocks - status.f_bfree) * status.f_frsize
        return used, status.f_bavail * status.f_frsize

    def clear(self, path: Path, keep: int, size: int) -> int:
        """Zero a file from byte `keep` on and set its size to `size`, durably, unless it already is in this state.

        Returns the position after its last byte that was not zero, or 0.
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
