"""Read the RocksDB database of a store's queues.

RocksDB opens links to the files, in another folder, so the store's own folder stays unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reput.base import require
from reput.errors import FormatError
from reput.format import rocksdb_queue
from reput.io import RocksFolder

MOST_UNDISPATCHED = 1 << 18
"""Maximum number of entries that are only in memory, and in no table on disk.

Above this number, the process that owns the database writes them to a table, and a reader opens the database again to
find them there.
"""


def require_library() -> Any:
    """Import rocksdict. Raises MissingExtraError."""
    return require("rocksdict", "queues in RocksDB need rocksdict: pip install 'reput[rocksdb]'")


class RocksDatabase(RocksFolder):
    """The entries and the ends of queues, as they were on disk when the database was opened.

    Newer entries are only in the memory of the broker.

    Args:
        folder: folder of the database.

    Raises:
        MissingExtraError: rocksdict is not installed.
        FormatError: the database cannot be opened.
        StoreAccessError: the folder cannot be read.
    """

    def __init__(self, folder: str) -> None:
        super().__init__(folder, (rocksdb_queue.ENTRIES_FAMILY, rocksdb_queue.OFFSETS_FAMILY))
        if (
            lost := {rocksdb_queue.ENTRIES_FAMILY, rocksdb_queue.OFFSETS_FAMILY}
            - self._families.keys()
        ):
            self.close()
            raise FormatError(
                folder, 0, f"RocksDB cannot read the database: no column family {min(lost)}"
            )

    def items(self, first: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield stored entries from a key on. Raises FormatError."""
        return self.family_items(rocksdb_queue.ENTRIES_FAMILY, first)

    def values(self, first: bytes, stop: bytes) -> Iterator[bytes]:
        """Yield values of the entries with keys from `first` to before `stop`. Raises FormatError."""
        return self.family_values(rocksdb_queue.ENTRIES_FAMILY, first, stop)

    def item_before(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the entry with this key, or else the last entry before it. Raises FormatError."""
        return self.family_item_before(rocksdb_queue.ENTRIES_FAMILY, key)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of an entry. Raises FormatError."""
        return self.family_value(rocksdb_queue.ENTRIES_FAMILY, key)

    def ends(self) -> Iterator[rocksdb_queue.QueueEnd]:
        """Yield the end of every queue. Raises FormatError."""
        for key, value in self.end_items():
            # The family also has the beginnings of queues, and the checkpoint.
            if (end := rocksdb_queue.decode_end(key, value)) is not None:
                yield end

    def end(self, topic: str, queue_id: int) -> rocksdb_queue.QueueEnd | None:
        """Return the end of one queue; None if the database does not state it. Raises FormatError."""
        key = rocksdb_queue.end_key(topic, queue_id)
        value = self.family_value(rocksdb_queue.OFFSETS_FAMILY, key)
        return None if value is None else rocksdb_queue.decode_end(key, value)

    def end_items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all stored items of the family `offset`. Raises FormatError."""
        return self.family_items(rocksdb_queue.OFFSETS_FAMILY)

    def checkpoint(self) -> int:
        """Return the physical offset up to which the database has entries. Raises FormatError."""
        return rocksdb_queue.decode_checkpoint(
            self.family_value(rocksdb_queue.OFFSETS_FAMILY, rocksdb_queue.CHECKPOINT_KEY)
        )
