"""The index of keys that a 5.4 broker may keep in RocksDB (RIP-82), as a KeyIndex that covers nothing.

A broker does not put messages without a unique key into this index. After a crash, the index may also lack other
messages. Nothing in it shows which messages it lacks, so it does not prove any range of the log: queries scan the log.
Only its last entry is used, because it shows whether the log has lost its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reput.base import Finding, Kind
from reput.core.index.key_index import IndexPart
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.core.log.walk import LogWalk
from reput.errors import FormatError, MissingExtraError
from reput.format.commit_log import MessageExt, decode_located
from reput.format.rocksdb_index import INDEX_FAMILY, LAST_OFFSET_KEY, decode_offset, index_items
from reput.io import RocksFolder


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
        found = [part for index in self._indexes for part in index.parts()]
        return tuple(sorted(found, key=lambda part: (part.start, part.stop)))

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
