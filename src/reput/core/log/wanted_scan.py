"""Read a range of the log message by message, for ranges that no IndexFile covers.

The first `WALKED_BYTES` of a query are walked in plain Python, which takes less time than loading the kernels. The
kernels scan the rest of a long range. Only sizes decide this, not whether the kernels are already loaded.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from reput.base import Finding
from reput.core.log.known_file import TimedPiece
from reput.core.log.reader import CommitLogReader
from reput.core.log.record import KeyedRecord
from reput.core.log.walk import WALKED_BYTES, LogWalk

_EARLIEST, _LATEST = -(1 << 63), (1 << 63) - 1


class Wanted(Protocol):
    """The conditions of a query: which index entries to follow, and which records to take."""

    topics: frozenset[str] | None
    """The requested topics; None for all topics."""
    hashes: Collection[int]
    keys: frozenset[str]
    """A set of keys. Each matching record has at least one of them."""

    def matches(self, record: KeyedRecord) -> bool: ...


class WantedNothing:
    """The conditions of a query that matches no record, for a scan that only looks for the end of the log."""

    topics: frozenset[str] | None = frozenset()
    hashes: Collection[int] = frozenset()
    keys: frozenset[str] = frozenset()

    def matches(self, record: KeyedRecord) -> bool:
        return False


class Found(NamedTuple):
    """Result of a scan: offsets of records that match or may match, newest first, and the damage.

    position  physical offset after the last scanned byte; if `at_end`, this is the end of the log
    times     store times of all records read; None without records, or if they were not examined
    """

    offsets: list[int]
    damage: list[Finding]
    position: int
    at_end: bool
    times: TimedPiece | None = None


class Scanner:
    """A scanner of ranges for one query. With `by_tags`, the query's hashes are those of tags."""

    def __init__(self, log: CommitLogReader, wanted: Wanted, *, by_tags: bool = False) -> None:
        self._log, self._wanted, self._by_tags = log, wanted, by_tags
        # Bytes that this query may still walk in plain Python.
        self._left_bytes = WALKED_BYTES

    def scan(self, start: int, stop: int) -> Found:
        """Find records that begin in [start, stop). A record begins at `start`, and the range lies within one file.

        Raises StoreAccessError, StoreChangedError.
        """
        part = self._walk(start, min(stop, start + self._left_bytes))
        self._left_bytes = max(self._left_bytes - (part.position - start), 0)
        if part.at_end or part.position >= stop:
            return part
        from reput.core.log.kernel_scan import scan_with_kernel

        offsets, damage, position, times = scan_with_kernel(
            self._log, part.position, stop, self._wanted.hashes, by_tags=self._by_tags
        )
        if times is not None:
            times = TimedPiece.joined([one for one in (part.times, times) if one is not None])
        # Unreadable bytes remain. A walk decides whether they are the end of the log.
        if position < stop:
            rest = self._walk(position, stop)
            offsets, damage = rest.offsets + offsets, damage + rest.damage
            return Found(offsets + part.offsets, part.damage + damage, rest.position, rest.at_end)
        return Found(offsets + part.offsets, part.damage + damage, position, False, times)

    def _walk(self, start: int, stop: int) -> Found:
        walk, matches = LogWalk(self._log, start, stop), self._wanted.matches
        offsets: list[int] = []
        least, most, last = _LATEST, _EARLIEST, -1
        for located in walk:
            record = located.keyed()
            last, time = record.physical_offset, record.store_timestamp
            least, most = min(least, time), max(most, time)
            if matches(record):
                offsets.append(last)
        times = None if last < 0 else TimedPiece(start, walk.position, least, most, last)
        return Found(offsets[::-1], walk.damage, walk.position, walk.at_end, times)
