"""The index of keys that a 5.4 broker may keep in RocksDB (RIP-82), as a KeyIndex that covers nothing.

A broker does not put messages without a unique key into this index. After a crash, the index may also lack other
messages. Nothing in it shows which messages it lacks, so it does not prove any range of the log: queries scan the log.

Its entries show what a scan cannot find. The last entry shows whether the log has lost its end. An entry of a requested
key whose record was stored in the same millisecond, but lacks the key, shows that the record's properties are damaged:
RocksDB has checksums, records of 4.9 and most of 5.x have none for their properties.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from reput.base import Finding, Kind
from reput.core import (
    CommitLogReader,
    IndexOf,
    IndexPart,
    KeyIndex,
    LogWalk,
    NamedKey,
    OffsetRange,
    StoreFacts,
    StoreLog,
    TimeWindow,
)
from reput.engine.writer import database_contents
from reput.errors import (
    CorruptMessageError,
    FormatError,
    MessageNotFoundError,
    MissingExtraError,
    UsageError,
)
from reput.format.commit_log import MessageExt, decode_located
from reput.format.file_names import MESSAGE_DATABASE_FOLDERS
from reput.format.java_string import decode_utf8
from reput.format.rocksdb_index import (
    HOUR_MS,
    INDEX_FAMILY,
    LAST_OFFSET_KEY,
    LAST_TIME_KEY,
    IndexedKey,
    decode_hour,
    decode_offset,
    encode_offset,
    first_of_hour,
    first_of_topic,
    index_items,
    item_offset,
    prefixes,
    topic_of,
)
from reput.io import RocksFolder

_KEYS = "keys"


class RocksIndex:
    """The KeyIndex of the database. `newest_entry` does not change after the first call of `parts`."""

    def __init__(self, folder: str, log: CommitLogReader) -> None:
        self._folder, self._log = folder, log
        self._is_read = False
        self.problems: list[Finding] = []
        self.newest_entry = -1

    def parts(self) -> tuple[IndexPart, ...]:
        """See `KeyIndex.parts`. The result is empty."""
        if not self._is_read:
            self._is_read = True
            try:
                with RocksFolder(self._folder, (INDEX_FAMILY,)) as database:
                    last = decode_offset(database.family_value(INDEX_FAMILY, LAST_OFFSET_KEY))
                self.newest_entry = -1 if last is None else last
            except FormatError as error:
                self.problems.append(Finding(Kind.INDEX_HEADER, self._folder, error.reason))
            except MissingExtraError as error:
                self.problems.append(Finding(Kind.INDEX_HEADER, self._folder, str(error)))
        return ()

    def compared(self, within: OffsetRange) -> Iterator[tuple[int, OffsetRange | None]]:
        """See `KeyIndex.compared`. Nothing is compared: entries are sorted by their keys."""
        return iter(())

    def lost_records(
        self, names: Collection[NamedKey], window: TimeWindow | None
    ) -> Iterator[tuple[NamedKey, OffsetRange]]:
        """See `KeyIndex.lost_records`."""
        if not names:
            return
        try:
            with RocksFolder(self._folder, (INDEX_FAMILY,)) as database:
                entries = list(_entries_of(database, names, window))
        except (FormatError, MissingExtraError):
            # `parts` reports a database that cannot be read.
            return
        for entry in entries:
            if (lost := self._lost_record(entry)) is not None:
                yield entry.name, lost

    def _lost_record(self, entry: _Entry) -> OffsetRange | None:
        """Return the range of the record to which an entry leads if it has lost the entry's key, else None."""
        start = item_offset(entry.item)
        if start is None:
            return None
        try:
            record = self._log.locate(start)
        except (MessageNotFoundError, CorruptMessageError):
            # It has expired, or a scan reports its damage.
            return None
        message = decode_located(record.data, record.layout)
        # A record that was written over the entry's record, after a broker had cut its log, has another time.
        if message.store_timestamp != entry.stored_ms:
            return None
        topic, key = entry.name
        has_key = key in message.keys or key == message.unique_key
        if has_key and topic in (None, message.topic):
            return None
        # An entry of a longer key that contains the separator has the same prefix.
        if any(item == entry.item for item, _ in index_items(message)):
            return None
        return OffsetRange(start, start + record.layout.total_bytes)


class _Entry(NamedTuple):
    """An item of the index that begins as those of a requested key, and the store time that it states."""

    name: NamedKey
    item: bytes
    stored_ms: int


def _is_within(stored_ms: int, window: TimeWindow | None) -> bool:
    return window is None or window.begin <= stored_ms <= window.end


def _entries_of(
    database: RocksFolder, names: Collection[NamedKey], window: TimeWindow | None
) -> Iterator[_Entry]:
    """Yield the entries of keys in a window of time. Raises FormatError."""
    has_all = any(name.topic is None for name in names)
    for hour in _hours(database):
        if window is not None and not window.begin - HOUR_MS < hour <= window.end:
            continue
        topics = list(_topics(database, hour)) if has_all else []
        for name in names:
            for topic in topics if name.topic is None else (name.topic,):
                for prefix in prefixes(hour, IndexedKey(topic, name.key)):
                    for item, value in database.family_items(INDEX_FAMILY, prefix):
                        if not item.startswith(prefix):
                            break
                        stored_ms = decode_offset(value)
                        if stored_ms is not None and _is_within(stored_ms, window):
                            yield _Entry(name, item, stored_ms)


def _hours(database: RocksFolder) -> Iterator[int]:
    start = 0
    # A later key with a lower hour has a negative one. A broker writes none.
    while (item := _first_item(database, first_of_hour(start))) and decode_hour(item) >= start:
        yield decode_hour(item)
        start = decode_hour(item) + HOUR_MS


def _topics(database: RocksFolder, hour: int) -> Iterator[str]:
    """Yield the topics that have items of an hour."""
    topic: bytes | None = None
    while item := _first_item(database, first_of_topic(hour, topic)):
        if decode_hour(item) != hour:
            return
        topic = topic_of(item)
        yield decode_utf8(topic)


def _first_item(database: RocksFolder, key: bytes) -> bytes:
    """Return the first item from a key on; nothing if there is none. The marks of the progress follow all items."""
    item, _ = next(database.family_items(INDEX_FAMILY, key), (b"", b""))
    return b"" if item_offset(item) is None else item


IndexedMessage = tuple[MessageExt, list[tuple[bytes, bytes]]]
"""A message of the log, and the items that the index has for it."""


def indexed_messages(log: CommitLogReader, start: int, stop: int) -> Iterator[IndexedMessage]:
    """Yield the messages in [start, stop) that a broker puts into this index. Unreadable ranges are skipped.

    Raises StoreAccessError, StoreChangedError.
    """
    for record in LogWalk(log, start, stop):
        message = decode_located(record.data, record.layout)
        if items := index_items(message):
            yield message, items


class JoinedIndex:
    """Several indexes of one log as one KeyIndex."""

    def __init__(self, *indexes: Any) -> None:
        self._indexes = indexes

    def parts(self) -> tuple[IndexPart, ...]:
        """See `KeyIndex.parts`."""
        parts = [part for index in self._indexes for part in index.parts()]
        return tuple(sorted(parts, key=lambda part: (part.start, part.stop)))

    @property
    def problems(self) -> list[Finding]:
        """See `KeyIndex.problems`."""
        return [problem for index in self._indexes for problem in index.problems]

    def compared(self, within: OffsetRange) -> Iterator[tuple[int, OffsetRange | None]]:
        """See `KeyIndex.compared`."""
        return (pair for index in self._indexes for pair in index.compared(within))

    def lost_records(
        self, names: Collection[NamedKey], window: TimeWindow | None
    ) -> Iterator[tuple[NamedKey, OffsetRange]]:
        """See `KeyIndex.lost_records`."""
        for index in self._indexes:
            yield from index.lost_records(names, window)

    @property
    def newest_entry(self) -> int:
        """See `KeyIndex.newest_entry`."""
        return max(int(index.newest_entry) for index in self._indexes)


class RocksIndexForm:
    """The index of keys in RocksDB as a form of the register. A rebuild writes it as a 5.4 broker does."""

    def open(self, source: IndexOf, others: Sequence[KeyIndex]) -> KeyIndex:
        """See IndexForm."""
        return JoinedIndex(
            *others, *(RocksIndex(folder, source.own_log) for folder in source.databases)
        )

    def folder(self, facts: StoreFacts, *, in_place: bool) -> str:
        """Return the name of the folder into which the index is written.

        Raises:
            UsageError: The store is rebuilt in place, and its database also has other items.
            MissingExtraError, FormatError, StoreAccessError.
        """
        names = [Path(folder).name for folder in facts.message_databases]
        if in_place:
            others = [name for name in database_contents(facts) if name != _KEYS]
            if others or len(names) > 1:
                raise UsageError(
                    f"{facts.path}: its database of keys also has {' and '.join(others) or 'a second folder'}, which a "
                    "rebuild would delete; pass output, or index='files'",
                    arguments=["index"],
                )
        return names[0] if in_place and names else MESSAGE_DATABASE_FOLDERS[0]

    def write(self, source: StoreLog, start: int, stop: int, folder: Path) -> int:
        """Write the index of the messages in [start, stop). Return the number of keys. Raises StoreError."""
        from reput.engine.five.rocksdb_writer import create_index_database

        with closing(CommitLogReader(source)) as log:
            return create_index_database(folder, _items(log, start, stop))


ROCKSDB_INDEX = RocksIndexForm()


def _items(log: CommitLogReader, start: int, stop: int) -> Iterator[tuple[bytes, bytes]]:
    last, newest = -1, 0
    for message, items in indexed_messages(log, start, stop):
        yield from items
        last, newest = message.physical_offset, max(newest, message.store_timestamp)
    if last >= 0:
        yield LAST_OFFSET_KEY, encode_offset(last)
        yield LAST_TIME_KEY, encode_offset(newest)
