"""Check the database in which a broker of 5.4 keeps keys, timers and transactions; compare its keys with the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from reput.base import Finding, Kind, counted
from reput.core import CommitLogReader, StoreLog
from reput.engine.check.checking.checked_store import CheckedStore
from reput.engine.five import indexed_messages, timer_check, timer_queue_offset
from reput.engine.writer import KEYS, MessageDatabase
from reput.errors import FormatError, MissingExtraError, raise_if_refused
from reput.format.file_names import (
    CONFIG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    MESSAGE_DATABASE_FOLDERS,
    TIMER_CHECK_FILE,
    TIMER_LOG_FOLDER,
    TIMER_WHEEL_FILE,
)
from reput.format.properties import ROCKSDB_HALF_TOPIC, TIMER_TOPIC
from reput.format.rocksdb_index import INDEX_FAMILY, item_offset
from reput.io import LOCAL

_COST = "a broker does not find these messages by their keys; reput scans the log"
_AT_START = "indexes only messages after the last entry"
_LOST = {
    Kind.MESSAGE_DATABASE: "waiting timer messages may not be delivered, and open transactions not be ended",
    Kind.INDEX_DATABASE: _COST,
}


def has_key_database(store: CheckedStore) -> bool:
    """Return whether a broker keeps keys of this store in RocksDB, or a database that cannot be read may have them."""
    for folder in store.facts.message_databases:
        try:
            with MessageDatabase(folder) as database:
                if KEYS in database.contents():
                    return True
        except (FormatError, MissingExtraError):
            return True
    return False


def message_databases(store: CheckedStore, *, quick: bool) -> Iterator[Finding]:
    """Yield findings for databases that are lost or cannot be read, and for for keys that are not the keys of the log.

    RocksDB itself compares names and sizes of all files with the manifest when it opens a database. A quick check
    compares no key. A running broker changes the files, and its index lags, so nothing is compared.

    Raises StoreAccessError.
    """
    if store.is_live:
        if store.facts.message_databases:
            store.unread.parts.append("the message database")
        return
    for folder in store.facts.message_databases:
        kind = _kind_of(store)
        try:
            with MessageDatabase(folder) as database:
                contents = database.contents()
                # RocksDB opens such a database without the files that the lost records name.
                if name := database.cut_manifest():
                    yield Finding(
                        kind, folder, f"{name} ends inside a record, so files of the database may be ignored",
                        cost=_LOST[kind], at_next_start="ignores what the manifest no longer names",
                    )  # fmt: skip
                if KEYS in contents and not quick:
                    yield from _compare(store, folder, database)
            if quick:
                store.unread.parts += [f"{name} in RocksDB" for name in contents]
        except FormatError as error:
            raise_if_refused(error)
            yield Finding(kind, folder, f"cannot be read: {error}", cost=_LOST[kind])
        except MissingExtraError as error:
            store.unread.parts.append("the message database")
            if not quick:
                yield Finding(Kind.INDEX_DATABASE, folder, f"cannot be read: {error}")
    if store.facts.message_databases:
        return
    if sign := _sign_of_database(store):
        yield Finding(
            Kind.MESSAGE_DATABASE, str(store.path / MESSAGE_DATABASE_FOLDERS[0]),
            f"the database is missing, but {sign}", cost=_LOST[Kind.MESSAGE_DATABASE],
            at_next_start="creates an empty database",
        )  # fmt: skip
    elif store.facts.has_topic(TIMER_TOPIC) and not _has_timer_log(store):
        store.unread.parts.append("timers, which are neither in a timer log nor in RocksDB")


def _kind_of(store: CheckedStore) -> Kind:
    """Return the kind of findings of a database whose items cannot be read.

    Keys can be written again from the log. Nothing else has the timers and transactions: the topic of timers has all
    messages, but not which of them were recalled or delivered.
    """
    may_have_timers = store.facts.has_topic(TIMER_TOPIC) and not _has_timer_log(store)
    has_more = may_have_timers or store.facts.has_topic(ROCKSDB_HALF_TOPIC)
    return Kind.MESSAGE_DATABASE if has_more else Kind.INDEX_DATABASE


def _has_timer_log(store: CheckedStore) -> bool:
    return (store.path / TIMER_LOG_FOLDER).exists() or (store.path / TIMER_WHEEL_FILE).exists()


def _sign_of_database(store: CheckedStore) -> str:
    """Return what shows that a broker had timers or transactions in RocksDB; an empty text if nothing shows it."""
    if store.facts.has_topic(ROCKSDB_HALF_TOPIC):
        return f"{CONSUME_QUEUE_FOLDER}/{ROCKSDB_HALF_TOPIC} has transactions of it"
    path = str(store.path)
    has_read_timers = timer_check(path, LOCAL)[1] == 0 and timer_queue_offset(path, LOCAL) > 0
    if has_read_timers and not _has_timer_log(store):
        return f"{CONFIG_FOLDER}/{TIMER_CHECK_FILE} shows that there were timers, and no timer log has them"
    return ""


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
