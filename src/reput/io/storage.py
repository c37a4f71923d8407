"""Define storages: the local machine, or a file system that `reput.io.file_systems` opens.

Code that reads a store uses a `Storage` to list the store's files and to open them. So this code reads a store on S3
like a local store. Paths of a storage that is not local are whole URLs.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from errno import ELOOP, ENOENT, ENOTDIR
from os import PathLike, fspath
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from reput.errors import StoreAccessError, StoreNotFoundError
from reput.format.file_names import ARCHIVE_MANIFEST
from reput.io.places import LOCAL_ARCHIVE, is_archive, is_pattern, is_url, local_path, split_joined
from reput.io.reader import FileReader, OpenFile, RangeReader, SparseReader

if TYPE_CHECKING:
    from reput.io.archive_storage import ArchiveStorage

# This is longer than a tick of any file system's clock. Within a tick, a second change may leave the time unchanged.
_SETTLED_NS = 2_000_000_000
_Stamp = tuple[int, int] | None
_Listing = TypeVar("_Listing")


class FolderWatch:
    """Reports whether the entries of a folder may have changed since the last call."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._stamp: _Stamp = (0, 0)

    def changed(self) -> bool:
        """Return True at the first call and after every change of the folder's entries.

        Also return True for two seconds after a change, because a second change within this time may leave the folder's
        modification time unaltered.
        """
        # Each read of a store asks this several times, so it calls nothing but `stat`.
        stamp: _Stamp
        try:
            status = os.stat(self._folder)
        except OSError:
            stamp = None
        else:
            stamp = status.st_ino, status.st_mtime_ns
        if stamp == self._stamp:
            return False
        fresh = stamp is not None and time.time_ns() - stamp[1] < _SETTLED_NS
        self._stamp = (0, 0) if fresh else stamp
        return True


class FileStatus(Protocol):
    """The part of os.stat_result that readers use."""

    @property
    def st_size(self) -> int: ...

    @property
    def st_blocks(self) -> int: ...


class FolderEntry(Protocol):
    """A listed file or folder: the part of os.DirEntry that readers use.

    A new file of the same name has another `inode`.
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
    """Reports whether the entries of a folder may have changed since the last call."""

    def changed(self) -> bool: ...


class GrowthWatch:
    """A Watch of a folder that also reports when a listed file has another size than when it was listed.

    A file that is copied into the folder grows without a change of the folder's entries.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._counts: list[tuple[str, int]] = []
        self._unit = 1

    def follow(self, files: Sequence[tuple[str, int]], whole: int = 0, unit: int = 1) -> None:
        """Follow the listed files that may still be incomplete.

        Args:
            files: Paths and sizes, in order. Files of other machines are ignored, because their listings are never
                older than a second.
            whole: The size of a complete file; 0 if unknown. Then the files that are shorter than the longest one,
                and the last file, may be incomplete: at the end of a copy, all files but the last have one size.
            unit: The number of bytes that sizes are stated in.
        """
        local = [file for file in files if not is_url(file[0])]
        least = whole or max((count for _, count in local), default=0)
        self._counts = [
            file for file in local if file[1] < least or (not whole and file == local[-1])
        ]
        self._unit = unit

    def changed(self) -> bool:
        """Return True at the first call, and if entries of the folder or sizes of files may have changed."""
        if self._watch.changed():
            return True
        for path, count in self._counts:
            try:
                if os.stat(path).st_size // self._unit != count:
                    return True
            # The folder's watch reports a deleted file.
            except OSError:
                continue
        return False


class Watched(Generic[_Listing]):
    """The result of reading a folder. The folder is read again after each change of its entries. Not thread-safe."""

    def __init__(self, watch: Watch, read: Callable[[], _Listing], first: _Listing) -> None:
        self._watch, self._read, self._listing = watch, read, first
        self._is_unread = True

    def get(self) -> _Listing:
        """Return the current result. Raises the errors of the reading function."""
        if self._watch.changed() or self._is_unread:
            # The watch reports a change only once. `_is_unread` makes the next call read again if this one fails.
            self._is_unread = True
            self._listing = self._read()
            self._is_unread = False
        return self._listing


class Storage(Protocol):
    """A file system, for one thread at a time. It can be sent to another process.

    Attributes:
        is_local: whether its files are local
        is_archive: whether it is an archived store, which has a key index instead of IndexFiles
        is_joined: whether it is a `JoinedStorage` of a store and its archive
    """

    is_local: bool
    is_archive: bool
    is_joined: bool

    @property
    def open_file(self) -> OpenFile:
        """Return a function that opens a file for one sequential read; it can be sent to another process."""

    def list(self, folder: str) -> Sequence[FolderEntry]:
        """List a folder, unordered; empty if the folder is missing. Raises StoreAccessError."""

    def entry(self, path: str) -> FolderEntry | None:
        """Return a file or folder, or None if it is missing. Raises StoreAccessError."""

    def open(self, path: str) -> SparseReader:
        """Open a file. Raises StoreNotFoundError, StoreAccessError."""

    def watch(self, folder: str) -> Watch: ...


class LocalStorage:
    """The files of the local machine."""

    is_local = True
    is_archive = False
    is_joined = False
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


@dataclass(frozen=True)
class JoinedFiles:
    """A function that opens files of a store and its archive. It can be sent to another process."""

    archive: str
    newer: OpenFile
    older: OpenFile

    def __call__(self, path: str) -> RangeReader:
        return (self.older if path.startswith(f"{self.archive}/") else self.newer)(path)


class JoinedStorage:
    """A Storage with the files of a store and of its archive.

    Files keep their own paths: the files of the store below `root`, the archived ones below the archive's root.
    `reput.wings.archive.log_files` decides which archived log files precede the store's log. Readers join the queue
    entries and the keys of store and archive themselves (`reput.wings.archive.joined_queues` and `key_search`).

    Attributes:
        root: the path that names both (`reput.io.places.joined_place`)
        newer: the storage of the store
        store: path of the store in `newer`
        older: the archive, as it was when it was opened
        joined_at: physical offset at which the store's own log began when it was last compared with the archive; None
            before the first comparison
    """

    is_local = False
    is_archive = False
    is_joined = True

    def __init__(self, root: str, newer: Storage, store: str, older: ArchiveStorage) -> None:
        self.root, self.newer, self.store, self.older = root, newer, store, older
        self.joined_at: int | None = None

    @property
    def open_file(self) -> OpenFile:
        return JoinedFiles(self.older.root, self.newer.open_file, self.older.open_file)

    def list(self, folder: str) -> Sequence[FolderEntry]:
        """See `Storage.list`."""
        storage, path = self._place(folder)
        return storage.list(path)

    def entry(self, path: str) -> FolderEntry | None:
        """See `Storage.entry`."""
        storage, path = self._place(path)
        return storage.entry(path)

    def open(self, path: str) -> SparseReader:
        storage, path = self._place(path)
        return storage.open(path)

    def watch(self, folder: str) -> Watch:
        storage, path = self._place(folder)
        return storage.watch(path)

    def is_archived(self, path: str) -> bool:
        """Return whether a file is in the archive."""
        return path.startswith(f"{self.older.root}/")

    def reopen_archive(self) -> None:
        """Replace the archive by its current state. Raises StoreNotFoundError, StoreAccessError, FormatError."""
        archive = self.older.archive
        self.older, _ = _archive(archive.place, archive.options)

    def _place(self, path: str) -> tuple[Storage, str]:
        if path == self.root or path.startswith(f"{self.root}/"):
            return self.newer, self.store + path.removeprefix(self.root)
        return (self.older if self.is_archived(path) else self.newer), path


LOCAL: LocalStorage = LocalStorage()


def storage_of(
    path: str | PathLike[str],
    options: Mapping[str, str] | None = None,
    *,
    lists_all: bool = True,
) -> tuple[Storage, str]:
    """Return the storage of a path or URL, and the path in it.

    Args:
        path: path of a store, or a pattern.
        options: options of file systems, see `reput.io.file_systems.resolve`.
        lists_all: whether to list everything below a remote path in one request, for callers that read most of it.

    Raises:
        UsageError: no library can open the URL.
        StoreAccessError: the path cannot be opened.
    """
    text = fspath(path)
    if is_url(text):
        # Import these late, because pyarrow takes longer to import than a local query takes.
        from reput.io.archive import is_known as is_known_archive
        from reput.io.remote import RemoteStorage

        if (parts := split_joined(text)) is not None:
            archive, _ = _archive(parts[0], options)
            return JoinedStorage(text, *storage_of(parts[1], options), archive), text
        if text.startswith(LOCAL_ARCHIVE):
            return _archive(text, options)
        if is_known_archive(text, options or {}):
            # The archive may have been deleted since the last read, and a store may be in its place.
            with suppress(StoreNotFoundError):
                return _archive(text, options)
        # This user has not read an archive at this URL before. So send a request to find out whether the URL is an
        # archive.
        if not is_pattern(text):
            storage, place = RemoteStorage.of(text, options or {}, lists_all=False)
            if storage.entry(f"{place}/{ARCHIVE_MANIFEST}") is not None:
                return _archive(text, options)
        return RemoteStorage.of(text, options or {}, lists_all=lists_all)
    text = local_path(text)
    if is_archive(text):
        return _archive(text)
    return LOCAL, text


def _archive(place: str, options: Mapping[str, str] | None = None) -> tuple[ArchiveStorage, str]:
    # Import this late, as above.
    from reput.io.archive_storage import ArchiveStorage

    return ArchiveStorage.of(place, options)


def size_of(path: str, storage: Storage) -> int:
    """Return the size of a file in bytes. Raises StoreNotFoundError, StoreAccessError."""
    entry = storage.entry(path)
    if entry is None:
        raise StoreNotFoundError(f"{path}: no longer exists")
    return entry.stat().st_size


def listed_size(entry: FolderEntry) -> int | None:
    """Return the size of a listed file; None if it is not a regular file, or was deleted since it was listed.

    Raises OSError.
    """
    try:
        return entry.stat().st_size if entry.is_file() else None
    except OSError as error:
        # ELOOP: a link that leads to itself.
        if error.errno in (ENOENT, ENOTDIR, ELOOP):
            return None
        raise


class _Stated:
    """An entry that was requested by path, not taken from a listing."""

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
