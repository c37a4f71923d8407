"""Compare the log with the index of keys that a broker of 5.4 keeps in RocksDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from reput.base import Finding, Kind, counted
from reput.core import CommitLogReader, StoreLog
from reput.engine.check.checking.checked_store import CheckedStore
from reput.engine.five import indexed_messages
from reput.engine.writer import MessageDatabase
from reput.errors import FormatError, MissingExtraError, raise_if_refused
from reput.format.rocksdb_index import INDEX_FAMILY, item_offset

_COST = "a broker does not find these messages by their keys; reput scans the log"
_AT_START = "indexes only messages after the last entry"


def has_key_database(store: CheckedStore) -> bool:
    """Return whether a broker keeps keys of this store in RocksDB, or a database that cannot be read may have them."""
    for folder in store.facts.message_databases:
        try:
            with MessageDatabase(folder) as database:
                if "keys" in database.contents():
                    return True
        except (FormatError, MissingExtraError):
            return True
    return False


def index_database(store: CheckedStore) -> Iterator[Finding]:
    """Yield findings for databases with an index of keys. The index of a running broker lags, and is not compared.

    Raises StoreAccessError.
    """
    for folder in () if store.is_live else store.facts.message_databases:
        try:
            with MessageDatabase(folder) as database:
                if "keys" in database.contents():
                    yield from _compare(store, folder, database)
        except (FormatError, MissingExtraError) as error:
            raise_if_refused(error)
            yield Finding(Kind.INDEX_DATABASE, folder, f"cannot be read: {error}")


def _compare(store: CheckedStore, folder: str, database: MessageDatabase) -> Iterator[Finding]:
    lacking, first, wrong, present = 0, -1, 0, 0
    with closing(CommitLogReader(StoreLog(str(store.path)))) as log:
        for message, items in indexed_messages(log, store.begin, store.end):
            for key, value in items:
                entry = database.family_value(INDEX_FAMILY, key)
                present += entry is not None
                wrong += entry is not None and entry != value
                lacking += entry is None
                if entry is None and first < 0:
                    first = message.physical_offset
    if lacking:
        yield Finding(
            Kind.INDEX_DATABASE, folder, "keys, tags and unique keys of messages without an entry",
            physical_offset=first, count=lacking, cost=_COST, at_next_start=_AT_START,
        )  # fmt: skip
    # Entries of expired messages stay in the database for a while.
    foreign, beyond = -present, 0
    for key, _ in database.family_items(INDEX_FAMILY):
        offset = item_offset(key)
        if offset is not None and offset >= store.begin:
            beyond += offset >= store.end
            foreign += offset < store.end
    if foreign > 0 or wrong:
        detail = f"{counted(max(foreign, 0), 'entry', 'entries')} without a message, {wrong:,} with another time"
        yield Finding(Kind.INDEX_DATABASE, folder, detail, count=max(foreign, 0) + wrong)
    if beyond:
        yield Finding(
            Kind.INDEX_DATABASE, folder, f"entries for messages after the end of the log, {store.end}",
            count=beyond,
        )  # fmt: skip
