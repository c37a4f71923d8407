"""A `reput.files.storage.Storage` of files that are not local, for readers that read here and there.

Every request costs milliseconds, so what was listed and read is kept: one listing of everything below the root for a
moment, and blocks of files (`reput.files.remote_blocks`).
"""

from __future__ import annotations

import posixpath
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow.fs

from reput.errors import FormatError, StoreNotFoundError
from reput.files.file_systems import FileSystem, RemoteFiles, resolve
from reput.files.reader import OpenFile
from reput.files.remote_blocks import CachedReader, LoadedBlocks, RemoteFile

_LISTED_S = 1.0
_FOLDER = pyarrow.fs.FileType.Directory


class RemoteStatus(NamedTuple):
    """The part of os.stat_result that is known of a remote file; nothing says how much of it is a hole."""

    st_size: int

    @property
    def st_blocks(self) -> int:
        return -(-self.st_size // 512)


class RemoteEntry(NamedTuple):
    """A file or folder of a listing; see `reput.files.storage.FolderEntry`."""

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
        return self.modified_ns

    def stat(self) -> RemoteStatus:
        return RemoteStatus(self.size)


class RemoteStorage:
    """The file system of one store. Paths are URLs. Not for use from several threads at once."""

    is_local = False

    def __init__(self, system: FileSystem, root: str) -> None:
        """`root` is the URL below which everything is listed at once, of a path as the system tells it; "" is none."""
        self._system, self.root = system, root.rstrip("/")
        self._listed: dict[str, dict[str, RemoteEntry]] = {}
        self._listed_at = -_LISTED_S
        self.listings = 0
        self._files: dict[str, tuple[RemoteEntry, RemoteFile]] = {}
        self._blocks = LoadedBlocks()

    def __reduce__(self) -> tuple[type[RemoteStorage], tuple[FileSystem, str]]:
        return type(self), (self._system, self.root)  # what was read stays here

    @classmethod
    def of(
        cls, url: str, options: Mapping[str, str], *, lists_all: bool = True
    ) -> tuple[RemoteStorage, str]:
        """See `reput.files.storage.storage_of`."""
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
            return self._asked(path)
        folder, _, name = path.rpartition("/")
        return self._tree().get(folder, {}).get(name)

    def _is_below_root(self, path: str) -> bool:
        return bool(self.root) and path.startswith(f"{self.root}/")

    def open(self, path: str) -> CachedReader:
        return CachedReader(self._file(path))

    def _file(self, path: str) -> RemoteFile:
        entry = self.entry(path)
        if entry is None or entry.is_folder:
            raise StoreNotFoundError(f"{path}: not there any more")
        if entry.size == 0:
            raise FormatError(path, 0, "the file is empty")
        known, file = self._files.get(path, (None, None))
        if file is None or known != entry:
            if file is not None:
                self._blocks.forget(file)
            file = RemoteFile(self._system, self._in_system(path), path, entry.size, self._blocks)
            self._files[path] = entry, file
        return file

    def watch(self, folder: str) -> RemoteWatch:
        return RemoteWatch(self)

    def refresh(self) -> int:
        """How often was listed until now, once more if the last listing is not of this moment."""
        self._tree()
        return self.listings

    def _in_system(self, url: str) -> str:
        return url.removeprefix(self._system.prefix)

    def _asked(self, path: str) -> RemoteEntry | None:
        info = self._system.info(self._in_system(path))
        return None if info.type == pyarrow.fs.FileType.NotFound else self._entry(info)

    def _entry(self, info: pyarrow.fs.FileInfo) -> RemoteEntry:
        url = self._system.prefix + info.path
        is_folder = info.type == _FOLDER
        modified_ns = 0 if is_folder else info.mtime_ns or 0
        return RemoteEntry(url, posixpath.basename(url), is_folder, info.size or 0, modified_ns)

    def _tree(self) -> dict[str, dict[str, RemoteEntry]]:
        """What is below the root, by folder: listed now, or a moment ago."""
        if time.monotonic() - self._listed_at >= _LISTED_S:
            tree: dict[str, dict[str, RemoteEntry]] = {}
            for info in self._system.entries(self._in_system(self.root), recursive=True):
                entry = self._entry(info)
                while entry.path.startswith(f"{self.root}/"):
                    folder, _, name = entry.path.rpartition("/")
                    tree.setdefault(folder, {}).setdefault(name, entry)
                    # An object store may have a file without having its folder.
                    entry = RemoteEntry(folder, posixpath.basename(folder), True, 0, 0)
            if tree != self._listed:
                self._listed = tree
            self._listed_at = time.monotonic()
            self.listings += 1
        return self._listed


class RemoteWatch:
    """A `reput.files.storage.Watch` of all that is below a storage's root."""

    def __init__(self, storage: RemoteStorage) -> None:
        self._storage = storage
        self._seen = -1

    def changed(self) -> bool:
        listings = self._storage.refresh()
        changed, self._seen = listings != self._seen, listings
        return changed
