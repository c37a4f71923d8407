"""The index of keys that a 5.4 broker may keep in RocksDB (RIP-82), as a KeyIndex that covers nothing.

A broker does not put messages without a unique key into this index. After a crash, the index may also lack other
messages. Nothing in it shows which messages it lacks, so it does not prove any range of the log: queries scan the log.
Only its last entry is used, because it shows whether the log has lost its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from reput.base import Finding, Kind
from reput.core import (
    CommitLogReader,
    IndexOf,
    IndexPart,
    KeyIndex,
    LogWalk,
    OffsetRange,
    StoreFacts,
    StoreLog,
    database_contents,
)
from reput.errors import FormatError, MissingExtraError, UsageError
from reput.format.commit_log import MessageExt, decode_located
from reput.format.file_names import MESSAGE_DATABASE_FOLDERS
from reput.format.rocksdb_index import (
    INDEX_FAMILY,
    LAST_OFFSET_KEY,
    LAST_TIME_KEY,
    decode_offset,
    encode_offset,
    index_items,
)
from reput.io import RocksFolder

_KEYS = "keys"


class RocksIndex:
    """The KeyIndex of the database. It does not show changes after the first call of `parts`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
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
        """See `KeyIndex.compared`. Nothing is compared."""
        return iter(())


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

    @property
    def newest_entry(self) -> int:
        """See `KeyIndex.newest_entry`."""
        return max(int(index.newest_entry) for index in self._indexes)


class RocksIndexForm:
    """The index of keys in RocksDB as a form of the register. A rebuild writes it as a 5.4 broker does."""

    def open(self, source: IndexOf, others: Sequence[KeyIndex]) -> KeyIndex:
        """See IndexForm."""
        return JoinedIndex(*others, *map(RocksIndex, source.databases))

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
