"""Where the files of a store lie: on this machine, or on any file system that `reput.files.file_systems` opens.

What reads a store lists and opens its files through a `Storage`, and so reads a store on S3 as it reads one here.
Paths of a storage that is not local are whole URLs.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Protocol

from reput.errors import StoreAccessError, StoreNotFoundError
from reput.files.places import LOCAL_ARCHIVE, is_pattern, local_path
from reput.files.places import is_url as is_url
from reput.files.reader import FileReader, OpenFile, SparseReader
from reput.format.file_names import ARCHIVE_MANIFEST

# Longer than a tick of any file system's clock: a change so soon after another may not show.
_SETTLED_NS = 2_000_000_000
_Stamp = tuple[int, int] | None


class FolderWatch:
    """Tells whether the entries of a folder may have changed since it was last asked."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen: _Stamp = (0, 0)

    def changed(self) -> bool:
        """True at first, after every change, and for as long as another could hide behind it."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        fresh = stamp is not None and time.time_ns() - stamp[1] < _SETTLED_NS
        self._seen = (0, 0) if fresh else stamp
        return True

    def _stamp(self) -> _Stamp:
        try:
            status = os.stat(self._folder)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns


class FileStatus(Protocol):
    """The part of os.stat_result that readers use."""

    @property
    def st_size(self) -> int: ...

    @property
    def st_blocks(self) -> int: ...


class FolderEntry(Protocol):
    """A file or folder as it was listed: the part of os.DirEntry that readers use.

    `inode` tells a file from another one that has its name later.
    """

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    def is_dir(self) -> bool: ...

    def is_file(self) -> bool: ...

    def inode(self) -> int: ...

    def stat(self) -> FileStatus: ...


class Watch(Protocol):
    """Says whether the entries of a folder may have changed since it was last asked."""

    def changed(self) -> bool: ...


class Storage(Protocol):
    """One file system. Not for use from several threads at once; can be sent to another process.

    Attributes:
        is_local: whether its files are this machine's
        is_archive: whether they are those of an archived store, whose keys another index has
    """

    is_local: bool
    is_archive: bool

    @property
    def open_file(self) -> OpenFile:
        """Opens a file that is read once, from one end to the other; can be sent to another process."""

    def list(self, folder: str) -> Sequence[FolderEntry]:
        """What is in a folder, in no order; nothing where there is no folder. Raises StoreAccessError."""

    def entry(self, path: str) -> FolderEntry | None:
        """A file or folder, None where there is none. Raises StoreAccessError."""

    def open(self, path: str) -> SparseReader:
        """Raises StoreNotFoundError, StoreAccessError."""

    def watch(self, folder: str) -> Watch: ...


class LocalStorage:
    """This machine's files."""

    is_local = True
    is_archive = False
    open_file: OpenFile = FileReader

    def list(self, folder: str) -> Sequence[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return list(entries)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StoreAccessError(f"{folder}: cannot be read: {error.strerror}") from error

    def entry(self, path: str) -> FolderEntry | None:
        try:
            return _Stated(path, os.stat(path))
        except (FileNotFoundError, NotADirectoryError, UnicodeEncodeError, ValueError):
            return None
        except OSError as error:
            raise StoreAccessError(f"{path}: cannot be read: {error.strerror}") from error

    def open(self, path: str) -> FileReader:
        return FileReader(path)

    def watch(self, folder: str) -> FolderWatch:
        return FolderWatch(folder)


LOCAL = LocalStorage()


def absolute(path: str | PathLike[str]) -> str:
    """A path that means the same in another process: absolute, or a URL as it is."""
    return fspath(path) if is_url(path) else os.path.abspath(path)


def real_place(path: str | PathLike[str]) -> str:
    """The same for all local paths that lead to one folder; a URL without its last slash."""
    return fspath(path).rstrip("/") if is_url(path) else os.path.realpath(path)


def storage_of(
    path: str | PathLike[str],
    options: Mapping[str, str] | None = None,
    *,
    lists_all: bool = True,
) -> tuple[Storage, str]:
    """The storage of a path or URL, and the path there.

    Args:
        path: of a store, or a pattern of paths.
        options: of file systems, see `reput.files.file_systems.resolve`.
        lists_all: ask a remote file system for everything below the path at once: for who will look at most of it.

    Raises:
        UsageError: nothing opens such a URL.
        StoreAccessError: what opens it fails.
    """
    text = fspath(path)
    if is_url(text):
        # pyarrow takes longer to import than a local query takes
        from reput.files.archive_storage import ArchiveStorage
        from reput.files.remote import RemoteStorage

        if text.startswith(LOCAL_ARCHIVE):
            return ArchiveStorage.of(text, options)
        storage, place = RemoteStorage.of(text, options or {}, lists_all=lists_all)
        is_archive = (
            not is_pattern(text) and storage.entry(f"{place}/{ARCHIVE_MANIFEST}") is not None
        )
        return ArchiveStorage.of(text, options) if is_archive else (storage, place)
    text = local_path(text)
    if os.path.isfile(os.path.join(text, ARCHIVE_MANIFEST)):
        from reput.files.archive_storage import ArchiveStorage

        return ArchiveStorage.of(text)
    return LOCAL, text


def size_of(path: str, storage: Storage) -> int:
    """Bytes of a file. Raises StoreNotFoundError, StoreAccessError."""
    entry = storage.entry(path)
    if entry is None:
        raise StoreNotFoundError(f"{path}: not there any more")
    return entry.stat().st_size


class _Stated:
    """An entry that was not listed but asked for."""

    def __init__(self, path: str, status: os.stat_result) -> None:
        self.path, self.name, self._status = path, os.path.basename(path), status

    def is_dir(self) -> bool:
        return stat.S_ISDIR(self._status.st_mode)

    def is_file(self) -> bool:
        return stat.S_ISREG(self._status.st_mode)

    def inode(self) -> int:
        return self._status.st_ino

    def stat(self) -> os.stat_result:
        return self._status
