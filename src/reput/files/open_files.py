"""A cache of open files, so that repeated reads open a file once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from reput.files.reader import FileReader, SparseReader


class OpenFiles:
    """Readers by path and inode, the least recently used closed when there are too many.

    A store may have more files than a process may have open. Not for use from several threads at once; what `get`
    returns may be closed by the next call.
    """

    def __init__(
        self, open_file: Callable[[str], SparseReader] = FileReader, limit: int = 64
    ) -> None:
        self._limit, self._open = limit, open_file
        self._readers: OrderedDict[tuple[str, int], SparseReader] = OrderedDict()

    def get(self, path: str, inode: int) -> SparseReader:
        """The reader of a file as it was listed: another file of the same name is opened anew.

        Raises StoreNotFoundError, StoreAccessError.
        """
        reader = self._readers.get((path, inode))
        if reader is None:
            if len(self._readers) >= self._limit:
                self._readers.popitem(last=False)[1].close()
            reader = self._readers[path, inode] = self._open(path)
            reader.stop_read_ahead()
        else:
            self._readers.move_to_end((path, inode))
        return reader

    def drop(self, files: Iterable[tuple[str, int]]) -> None:
        """Close these, if they are open: a deleted file's space is free once nobody has it open."""
        for file in files:
            if reader := self._readers.pop(file, None):
                reader.close()

    def close(self) -> None:
        self.drop(list(self._readers))
