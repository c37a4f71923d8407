"""Read all IndexFiles of a store, as the broker's `IndexService` does (tag rocketmq-all-4.9.3).

`index/` contains files named by their time of creation, which are read in order of their names. Files whose name is not
a number are ignored. A file that cannot be read as an IndexFile is excluded and listed in `problems`.
"""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike, fspath
from typing import NamedTuple

from reput.base import Finding, Kind
from reput.core.index.geometry import GeometryFinder, IndexGeometry
from reput.core.index.reader import IndexFileReader
from reput.errors import FormatError, StoreAccessError, StoreNotFoundError
from reput.format.file_names import is_index_file_name
from reput.format.index_file import HEADER, index_key, key_hash
from reput.io import LOCAL, GrowthWatch, Storage, listed_size

# To see whether a new file has entries, at most this many of its first bytes are read.
_HEAD_BYTES = 4096
# Position of the two counts that end the header. The slots follow.
_COUNTS_AT = HEADER.positions["hash_slot_count"]


class _Listed(NamedTuple):
    """A file in the folder. Inode and size distinguish it from a later file of the same name."""

    path: str
    inode: int
    size: int


class IndexFileSetReader:
    """The IndexFiles of one folder, which may be missing or empty.

    The set changes while a broker runs, so callers request the `current()` files for each read.

    problems  one finding for each file that was excluded

    Raises StoreAccessError, and UsageError if the numbers of slots and items are neither given nor derivable.

    In RocketMQ: indexFileList.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        hash_slots: int | None = None,
        index_items: int | None = None,
        storage: Storage = LOCAL,
    ) -> None:
        self.folder, self._storage = fspath(folder), storage
        self._finder = GeometryFinder(hash_slots, index_items, storage)
        self._watch = GrowthWatch(storage.watch(self.folder))
        self._open_files: dict[_Listed, IndexFileReader] = {}
        # True if a file is so new that its numbers of slots and items could not be derived yet.
        self._is_unsettled = False
        self._files: tuple[IndexFileReader, ...] = ()
        self.problems: list[Finding] = []
        self.current()

    def current(self) -> tuple[IndexFileReader, ...]:
        """Return readers of the files as they are now, oldest name first; readers of missing files are closed.

        A call costs two stats if nothing changed. Raises the same errors as the constructor.
        """
        if self._watch.changed() or self._is_unsettled:
            self._refresh()
        return self._files

    def _refresh(self) -> None:
        found = self._list()
        self._watch.follow([(file.path, file.size) for file in found])
        self._close_all_but(found)
        geometries = self._finder.find([(file.path, file.size) for file in found])
        self.problems, self._is_unsettled = [], False
        opened = [self._open(file, geometries.get(file.size)) for file in found]
        self._files = tuple(file for file in opened if file is not None)

    def _list(self) -> list[_Listed]:
        """Return the files in order of names."""
        entries = self._storage.list(self.folder)
        try:
            return sorted(
                _Listed(entry.path, entry.inode(), size)
                for entry in entries
                if is_index_file_name(entry.name) and (size := listed_size(entry)) is not None
            )
        except OSError as error:
            raise StoreAccessError(f"{self.folder}: cannot be read: {error.strerror}") from error

    def _open(self, listed: _Listed, geometry: IndexGeometry | None) -> IndexFileReader | None:
        if listed in self._open_files:
            return self._open_files[listed]
        path, _, size = listed
        try:
            if geometry is None:
                self._is_unsettled = True
                if self._is_fresh(path, size):
                    # A broker has just created this file, so it is not reported as a problem.
                    return None
                reason = f"{size} bytes are not the size of an IndexFile with entries"
                raise FormatError(path, size, reason)
            file = self._open_files[listed] = IndexFileReader(path, *geometry, self._storage)
        except StoreNotFoundError:  # The file expired after the folder was listed.
            return None
        except FormatError as error:
            self.problems.append(Finding.of_error(Kind.INDEX_FILE_SIZE, error))
            return None
        return file

    def _is_fresh(self, path: str, size: int) -> bool:
        """Return whether a new file has no entries yet. Its header may already have been written."""
        with self._storage.open(path) as reader:
            head = reader.read(0, min(_HEAD_BYTES, size))
        return not head or (len(head) > _COUNTS_AT and not any(head[_COUNTS_AT:]))

    def _close_all_but(self, files: Iterable[_Listed]) -> None:
        for gone in self._open_files.keys() - set(files):
            self._open_files.pop(gone).close()

    def close(self) -> None:
        self._close_all_but(())
        self._files = ()

    def offsets(self, topic: str, key: str) -> list[int]:
        """Return physical offsets of all items with the hash of this key, newest file and item first.

        Hash collisions and duplicates are included. Raises BrokenChainError.
        """
        wanted = key_hash(index_key(topic, key))
        return [offset for file in reversed(self.current()) for offset in file.offsets(wanted)]
