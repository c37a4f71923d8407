"""The database of a store's queues, opened to be read: never the folder itself, but links to its files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from reput.errors import FormatError, MissingExtraError, ReputError
from reput.files.folder_view import FolderView
from reput.files.storage import Storage
from reput.format.rocksdb_queue import (
    CHECKPOINT_KEY,
    ENTRIES_FAMILY,
    OFFSETS_FAMILY,
    QueueEnd,
    decode_checkpoint,
    decode_end,
)

_READ_AHEAD_BYTES = 2 << 20
_ATTEMPTS = 3  # a running broker may delete files while they are linked


class RocksDatabase:
    """Entries and ends as they were written to the disk when this was opened; a broker keeps the newest in memory.

    Args:
        folder: of the database.

    Raises:
        MissingExtraError: rocksdict is not installed.
        FormatError: the database cannot be opened.
        StoreAccessError: the folder cannot be read.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        for attempt in range(_ATTEMPTS):
            self._view = FolderView(folder, without=("LOCK",))
            try:
                self._database = _open(self._view.path)
                self._entries = self._database.get_column_family(ENTRIES_FAMILY)
                self._ends = self._database.get_column_family(OFFSETS_FAMILY)
                return
            except ReputError:
                self._view.close()
                raise
            except Exception as error:  # rocksdict raises nothing narrower
                self._view.close()
                if attempt == _ATTEMPTS - 1:
                    raise self._broken(error) from None

    def items(self, first: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries from a key on, as they are stored. Raises FormatError."""
        try:
            yield from self._entries.items(from_key=first)
        except Exception as error:
            raise self._broken(error) from None

    def values(self, first: bytes, stop: bytes) -> Iterator[bytes]:
        """Values of the entries with keys from `first` up to `stop`. Raises FormatError."""
        try:
            yield from self._entries.values(from_key=first, read_opt=_bounded(stop))
        except Exception as error:
            raise self._broken(error) from None

    def item_before(self, key: bytes) -> tuple[bytes, bytes] | None:
        """The entry with this key, or the last before it. Raises FormatError."""
        try:
            return next(iter(self._entries.items(backwards=True, from_key=key)), None)
        except Exception as error:
            raise self._broken(error) from None

    def get(self, key: bytes) -> bytes | None:
        """The value of an entry. Raises FormatError."""
        try:
            value: bytes | None = self._entries.get(key)
        except Exception as error:
            raise self._broken(error) from None
        return value

    def ends(self) -> Iterator[QueueEnd]:
        """The end of every queue. Raises FormatError."""
        for key, value in self.end_items():
            if (end := decode_end(key, value)) is not None:
                yield end

    def end_items(self) -> Iterator[tuple[bytes, bytes]]:
        """All of the family `offset`, as it is stored. Raises FormatError."""
        try:
            yield from self._ends.items()
        except Exception as error:
            raise self._broken(error) from None

    def checkpoint(self) -> int:
        """Physical offset up to which the database has entries. Raises FormatError."""
        try:
            return decode_checkpoint(self._ends.get(CHECKPOINT_KEY))
        except Exception as error:
            raise self._broken(error) from None

    def close(self) -> None:
        self._database.close()
        self._view.close()

    def _broken(self, error: Exception) -> FormatError:
        lines = str(error).splitlines() or [type(error).__name__]
        return FormatError(self.folder, 0, f"RocksDB cannot read it: {lines[0]}")


def is_database(folder: str, storage: Storage) -> bool:
    """Whether a folder holds a RocksDB database. Raises StoreAccessError."""
    return storage.entry(os.path.join(folder, "CURRENT")) is not None


def _bounded(stop: bytes) -> Any:
    from rocksdict import ReadOptions

    options = ReadOptions()
    options.set_iterate_upper_bound(stop)
    options.set_readahead_size(_READ_AHEAD_BYTES)
    return options


def _open(folder: str) -> Any:
    try:
        from rocksdict import AccessType, Options, Rdict
    except ImportError:
        raise MissingExtraError(
            "the store keeps its queues in RocksDB, which needs rocksdict: pip install 'reput[rocksdb]'"
        ) from None
    families = {name: Options(raw_mode=True) for name in (ENTRIES_FAMILY, OFFSETS_FAMILY)}
    access = AccessType.read_only(False)
    return Rdict(folder, Options(raw_mode=True), column_families=families, access_type=access)
