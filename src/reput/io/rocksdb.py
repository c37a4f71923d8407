"""Read a RocksDB database through links in a temporary folder.

The library writes into every folder that it opens, and a running broker holds the lock of the database. So the folder
of the database itself is never opened.
"""

from __future__ import annotations

import ctypes
import os
import struct
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from reput.base import Closing, require
from reput.errors import FormatError, ReputError, explained
from reput.format.file_names import DATABASE_SIGN
from reput.io.reader import FileReader

_READ_AHEAD_BYTES = 2 << 20
LIBRARY_SETTINGS = "rocksdict-config.json"
"""A file with settings that rocksdict writes whenever it opens a database, also only to read it."""
_MOST_AT_ONCE = 256
# A running broker may delete files after they were linked, so that opening fails. Opening is then repeated.
_ATTEMPTS = 3
# The log format of RocksDB (`db/log_format.h`): checksum, length and kind of a part of a record, in blocks of 32 KiB.
# Parts of a recycled file also have the number of the file.
_HEAD, _BLOCK_BYTES = struct.Struct("<4xHB"), 32 << 10
_WHOLE, _LAST, _RECYCLED, _RECYCLED_LAST = 1, 4, 5, 8
_RECYCLED_HEAD_BYTES = 11
_MOST_NAME_BYTES = 64


class FolderView:
    """A temporary folder with symbolic links to the current files of another folder.

    Symbolic links that the other folder itself contains are skipped, because they may lead out of the store.

    path  the temporary folder, which is deleted by `close` or with this object
    """

    def __init__(self, folder: str, without: Collection[str] = ()) -> None:
        """Create a temporary folder with a symbolic link to each file of `folder`, except the files named in `without`.

        Raises StoreAccessError.
        """
        with explained(folder, "be read"), os.scandir(folder) as entries:
            files = [
                entry.path
                for entry in entries
                if entry.is_file(follow_symlinks=False) and entry.name not in without
            ]
        self._temporary = tempfile.TemporaryDirectory(prefix="reput-view-")
        self.path = self._temporary.name
        for path in files:
            os.symlink(os.path.abspath(path), os.path.join(self.path, os.path.basename(path)))

    def close(self) -> None:
        self._temporary.cleanup()


class RocksFolder(Closing):
    """A snapshot of a database's files. It lacks entries that a broker still has only in memory.

    Args:
        folder: Folder of the database.
        families: Column families to read; missing ones are empty.

    Raises:
        MissingExtraError: rocksdict is not installed.
        FormatError: the database cannot be opened.
        StoreAccessError: the folder cannot be read.
    """

    @staticmethod
    def leave_quickly_when_forked() -> None:
        """Let forked children exit without the library's own clean-up, in which they would crash.

        The clean-up waits for threads that exist only in the parent. Python's own clean-up and the exit code do not
        change. Call this function when the library is loaded; further calls do nothing. Systems without `on_exit`, such
        as macOS, are not changed.
        """
        if _leaving:
            return
        _leaving.add("registered")
        libc = ctypes.CDLL(None)
        if hasattr(libc, "on_exit"):
            os.register_at_fork(after_in_child=lambda: libc.on_exit(libc._exit, None))

    def __init__(self, folder: str, families: Sequence[str]) -> None:
        self.folder = folder
        for attempt in range(_ATTEMPTS):
            # The temporary folder gets no link to the database's LOCK file, because a running broker has locked this
            # file, and none to the library's settings, because the library would write through the link. The library
            # creates both files in the temporary folder.
            self._view = FolderView(folder, without=("LOCK", LIBRARY_SETTINGS))
            try:
                self._database, stored_families = _open(self._view.path, families)
                self._families = {
                    name: self._database.get_column_family(name)
                    for name in families
                    if name in stored_families
                }
                return
            except ReputError:
                self._view.close()
                raise
            # rocksdict raises plain Exceptions only.
            except Exception as error:
                self._view.close()
                if attempt == _ATTEMPTS - 1:
                    raise self._broken(error) from None

    def cut_manifest(self) -> str:
        """Return the name of the database's manifest if its last record is incomplete, else an empty text.

        RocksDB syncs each record when it writes it. Raises StoreAccessError, StoreNotFoundError.
        """
        sign = FileReader.content_of(os.path.join(self.folder, DATABASE_SIGN), _MOST_NAME_BYTES)
        name = sign.decode("latin-1").rstrip("\n")
        with FileReader(os.path.join(self.folder, os.path.basename(name))) as reader:
            block_start = max(reader.size - 1, 0) // _BLOCK_BYTES * _BLOCK_BYTES
            block = reader.read(block_start, reader.size - block_start)
        at, part = 0, _WHOLE
        while at + _HEAD.size <= len(block):
            length, part = _HEAD.unpack_from(block, at)
            at += (_HEAD.size if part < _RECYCLED else _RECYCLED_HEAD_BYTES) + length
        # The last bytes of a block have no room for a head.
        has_rest = at < len(block) and len(block) > _BLOCK_BYTES - _HEAD.size
        ends = part in (_WHOLE, _LAST, _RECYCLED, _RECYCLED_LAST)
        return "" if ends and (at == len(block) or has_rest) else name

    def family_items(
        self, family: str, first: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in the order of keys, from key `first` on. Raises FormatError."""
        if family not in self._families:
            return
        with self._explained():
            yield from _all_items(self._families[family], first)

    def family_values(self, family: str, first: bytes, stop: bytes) -> Iterator[bytes]:
        """Yield the values of the keys from `first` to before `stop`. Raises FormatError."""
        value: bytes | None = None
        with self._explained():
            for value in self._families[family].values(from_key=first, read_opt=_bounded(stop)):
                yield value
            # The iterator ends silently at a damaged block. So check that it has returned the last value of the range,
            # which a second iterator finds from the end.
            last = self._families[family].iter(_bounded(stop))
            last.seek_to_last()
            last.status()
            is_there = last.valid() and last.key() >= first
            if (last.value() if is_there else None) != value:
                raise _EndedEarlyError

    def family_item_before(self, family: str, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the item with this key, or else the last item before it; None if no such item exists.

        Raises FormatError.
        """
        with self._explained():
            position = self._families[family].iter()
            position.seek_for_prev(key)
            position.status()
            return (position.key(), position.value()) if position.valid() else None

    def family_value(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key. Raises FormatError."""
        if family not in self._families:
            return None
        with self._explained():
            value: bytes | None = self._families[family].get(key)
        return value

    def close(self) -> None:
        self._database.close()
        self._view.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except ReputError:
            raise
        # rocksdict raises plain Exceptions only.
        except Exception as error:
            raise self._broken(error) from None

    def _broken(self, error: Exception) -> FormatError:
        lines = str(error).splitlines() or [type(error).__name__]
        # The library names files of the view, which nobody knows.
        line = lines[0].replace(self._view.path, self.folder)
        return FormatError(self.folder, 0, f"RocksDB cannot read the database: {line}")


_leaving: set[str] = set()


class _EndedEarlyError(Exception):
    """Raised if an iterator ended at a damaged block although more items follow.

    RocksDB ends an iterator at such a block without an error. Only the iterator's status reports the damage.
    """

    def __str__(self) -> str:
        return "entries after a damaged block"


def _all_items(family: Any, first: bytes | None) -> Iterator[tuple[Any, Any]]:
    """Yield all items from `first` on. Raises _EndedEarlyError at a damaged block after which more items follow."""
    last, is_empty = first, True
    # Reading in batches needs fewer calls into the library. The batches grow, because many callers take only the first
    # items.
    items, step = family.items(from_key=first), 1
    while some := list(islice(items, step)):
        yield from some
        last, is_empty, step = some[-1][0], False, min(4 * step, _MOST_AT_ONCE)
    # The iterator ends silently at a damaged block. To notice this, seek past the last item that the iterator has
    # returned. If another item is there, the iterator has ended too early.
    after = family.iter()
    if last is None:
        after.seek_to_first()
    else:
        after.seek(last)
    if not is_empty and after.valid():
        after.next()
    after.status()
    if after.valid():
        raise _EndedEarlyError


def _library() -> Any:
    return require(
        "rocksdict",
        "the store has a RocksDB database, which needs rocksdict: pip install 'reput[rocksdb]'",
    )


def _bounded(stop: bytes) -> Any:
    options = _library().ReadOptions()
    options.set_iterate_upper_bound(stop)
    options.set_readahead_size(_READ_AHEAD_BYTES)
    return options


def _open(folder: str, families: Sequence[str]) -> tuple[Any, set[str]]:
    library = _library()
    RocksFolder.leave_quickly_when_forked()
    stored = set(library.Rdict.list_cf(folder, library.Options(raw_mode=True)))
    # RocksDB always requires the default family.
    options = {name: library.Options(raw_mode=True) for name in {"default", *families} & stored}
    database = library.Rdict(
        folder, library.Options(raw_mode=True), column_families=options,
        access_type=library.AccessType.read_only(False),
    )  # fmt: skip
    return database, stored
