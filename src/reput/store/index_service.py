"""All IndexFiles of a store (`IndexService`, tag rocketmq-all-4.9.3, the reading side).

`index/` holds files named by their time of creation, read in order of their names; a name that is
no number is left alone. A file that cannot be read as an IndexFile is left out, and `problems`
says which and why.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from os import PathLike, fspath
from typing import NamedTuple

from reput.errors import FormatError, StoreAccessError, StoreNotFoundError
from reput.files.reader import FileReader
from reput.files.watch import FolderWatch
from reput.format.file_names import is_index_file_name
from reput.format.index_file import HEADER_BYTES, index_key, key_hash
from reput.store.index_file_reader import IndexFileReader
from reput.store.index_geometry import GeometryFinder, IndexGeometry

_HEAD_BYTES = 4096
_COUNTS_AT = HEADER_BYTES - 8  # two counts end the header, the slots follow


class _Listed(NamedTuple):
    """A file as found; another one of the same name is another file."""

    path: str
    inode: int
    size: int


class IndexService:
    """The IndexFiles of one folder, which may be missing or empty.

    files     readers, oldest name first
    problems  one line for each file left out

    Raises StoreAccessError, and UsageError where the numbers of slots and items are not given and
    cannot be worked out.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        hash_slots: int | None = None,
        index_items: int | None = None,
    ) -> None:
        self.folder = fspath(folder)
        self._finder = GeometryFinder(hash_slots, index_items)
        self._watch = FolderWatch(self.folder)
        self._open_files: dict[_Listed, IndexFileReader] = {}
        self._is_unsettled = False  # by a file so new that nothing tells its numbers
        self.files: list[IndexFileReader] = []
        self.problems: list[str] = []
        self.refresh()

    def refresh(self) -> bool:
        """Look again which files there are; whether they changed."""
        if not self._watch.changed() and not self._is_unsettled:
            return False
        before, found = self.files, self._list()
        self._close_all_but(found)
        geometries = self._finder.find([(file.path, file.size) for file in found])
        self.problems, self._is_unsettled = [], False
        opened = [self._open(file, geometries.get(file.size)) for file in found]
        self.files = [file for file in opened if file is not None]
        return self.files != before

    def _list(self) -> list[_Listed]:
        """Each file, in order of names."""
        try:
            with os.scandir(self.folder) as entries:
                return sorted(
                    _Listed(entry.path, entry.inode(), entry.stat().st_size)
                    for entry in entries
                    if is_index_file_name(entry.name) and entry.is_file()
                )
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StoreAccessError(f"{self.folder}: cannot be read: {error.strerror}") from error

    def _open(self, listed: _Listed, geometry: IndexGeometry | None) -> IndexFileReader | None:
        if listed in self._open_files:
            return self._open_files[listed]
        path, _, size = listed
        try:
            if geometry is None:
                self._is_unsettled = True
                if _is_fresh(path):
                    return None
                reason = f"{size} bytes are not the size of an IndexFile with entries"
                raise FormatError(path, size, reason)
            file = self._open_files[listed] = IndexFileReader(path, *geometry)
        except StoreNotFoundError:  # expired since the files were listed
            return None
        except FormatError as error:
            self.problems.append(str(error))
            return None
        return file

    def _close_all_but(self, files: Iterable[_Listed]) -> None:
        for gone in self._open_files.keys() - set(files):
            self._open_files.pop(gone).close()

    def close(self) -> None:
        self._close_all_but(())
        self.files = []

    def offsets(self, topic: str, key: str) -> list[int]:
        """Physical offsets of all items with the hash of this key, newest file and item first.

        Collisions of the hash and duplicates are among them. Raises BrokenChainError.
        """
        wanted = key_hash(index_key(topic, key))
        return [offset for file in reversed(self.files) for offset in file.offsets(wanted)]


def _is_fresh(path: str) -> bool:
    """Whether a file was made and nothing was put into it yet; its header may have been seeded."""
    with FileReader(path) as reader:
        head = reader.read(0, min(_HEAD_BYTES, os.path.getsize(path)))
    return not head or (len(head) > _COUNTS_AT and not any(head[_COUNTS_AT:]))
