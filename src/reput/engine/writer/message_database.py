"""Read the database in which a broker of 5.4 or 5.5 keeps its key index, its timers and its transactions.

A broker creates this database in every store. Only the features that are enabled put items into it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from reput.errors import FormatError, MissingExtraError
from reput.format.properties import ROCKSDB_HALF_TOPIC
from reput.format.rocksdb_index import INDEX_FAMILY, LAST_OFFSET_KEY, decode_item, decode_offset
from reput.format.rocksdb_state import (
    DELIVERED_TO_KEY,
    READ_TO_KEY,
    TIMER_FAMILY,
    TRANSACTION_FAMILY,
    HalfItem,
    TimelineItem,
    decode_half_item,
    decode_timeline_item,
)
from reput.io import RocksFolder

# Imported only for type checkers, because the facts of a store import this module.
if TYPE_CHECKING:
    from reput.core import StoreFacts

KEYS, TRANSACTIONS = "keys", "transactions"


class MessageDatabase(RocksFolder):
    """The items of the database, as they were on disk when it was opened.

    Args:
        folder: Folder of the database.

    Raises:
        MissingExtraError: rocksdict is not installed.
        FormatError: The database cannot be opened.
        StoreAccessError: The folder cannot be read.
    """

    def __init__(self, folder: str) -> None:
        super().__init__(folder, (INDEX_FAMILY, TIMER_FAMILY, TRANSACTION_FAMILY))

    def timeline(self) -> Iterator[TimelineItem]:
        """Yield the timer messages, by the time at which they are due. Raises FormatError."""
        items = (decode_timeline_item(*item) for item in self.family_items(TIMER_FAMILY))
        yield from (item for item in items if item is not None)

    def half_items(self) -> Iterator[HalfItem]:
        """Yield the half messages about which the broker asks, by physical offset. Raises FormatError."""
        items = (decode_half_item(*item) for item in self.family_items(TRANSACTION_FAMILY))
        yield from (item for item in items if item is not None)

    def delivered_to(self) -> int:
        """Return the time (ms) before which timer messages were delivered; 0 if unknown. Raises FormatError."""
        return decode_offset(self.family_value(TIMER_FAMILY, DELIVERED_TO_KEY)) or 0

    def timers_read_to(self) -> int:
        """Return the queue offset of the first timer message that is not in the database. Raises FormatError."""
        return decode_offset(self.family_value(TIMER_FAMILY, READ_TO_KEY)) or 0

    def marks(self) -> list[int]:
        """Return the physical offsets of the last indexed message and the last half message, 0 if unknown.

        A family without items has no mark. Raises FormatError.
        """
        has_items = {
            INDEX_FAMILY: self._has_keys(), TRANSACTION_FAMILY: self._has(TRANSACTION_FAMILY),
        }  # fmt: skip
        families = [family for family, has in has_items.items() if has]
        values = [self.family_value(family, LAST_OFFSET_KEY) for family in families]
        return [decode_offset(value) or 0 for value in values]

    def _has_keys(self) -> bool:
        # A broker of 5.4.0 also puts the progress mark of transactions into the family of the key index.
        return any(decode_item(key) for key, _ in self.family_items(INDEX_FAMILY))

    def _has(self, family: str) -> bool:
        return any(True for _ in self.family_items(family))

    def contents(self) -> list[str]:
        """Return names of what the broker keeps in this database. Raises FormatError."""
        names = {
            "keys": self._has_keys(), "timers": self._has(TIMER_FAMILY),
            TRANSACTIONS: self._has(TRANSACTION_FAMILY),
        }  # fmt: skip
        return [name for name, has_items in names.items() if has_items]


def database_contents(facts: StoreFacts) -> list[str]:
    """Return names of what a broker keeps in RocksDB besides queues and configuration, in a local store.

    A queue of half messages of transactions in RocksDB counts, too: its messages may be open.

    Raises:
        MissingExtraError: rocksdict is not installed.
        FormatError: A database cannot be read.
        StoreAccessError: A folder cannot be read.
    """
    names: list[str] = []
    for folder in facts.message_databases:
        with MessageDatabase(folder) as database:
            names += [name for name in database.contents() if name not in names]
    if TRANSACTIONS not in names and facts.has_topic(ROCKSDB_HALF_TOPIC):
        names.append(TRANSACTIONS)
    return names


def dispatch_marks(facts: StoreFacts) -> tuple[int, ...]:
    """Return the marks of a local store's databases (`MessageDatabase.marks`); empty if they cannot be read.

    Raises StoreAccessError.
    """
    marks: list[int] = []
    for folder in facts.message_databases:
        with suppress(MissingExtraError, FormatError), MessageDatabase(folder) as database:
            marks += database.marks()
    return tuple(marks)


def has_keys_in_rocksdb(facts: StoreFacts) -> bool:
    """Return whether a broker keeps keys of a store in RocksDB, or may keep them there if rocksdict is not installed.

    Raises StoreAccessError.
    """
    try:
        return bool(facts.message_databases) and KEYS in database_contents(facts)
    except (MissingExtraError, FormatError):
        return True
