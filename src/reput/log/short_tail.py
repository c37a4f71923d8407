"""The last few records of a log, between the end of an index and its own: asked for by every query, hardly ever new."""

from __future__ import annotations

from typing import NamedTuple

from reput.findings import Finding
from reput.log.keyed_record import KeyedRecord, read_keyed_record
from reput.log.reader import CommitLogReader
from reput.log.walk import LogWalk

_MOST_BYTES = 4 << 10  # what a walk reads at once


class Tail(NamedTuple):
    """Records from `start` to the end of the log.

    records  newest first
    position the end of the log
    """

    start: int
    records: tuple[KeyedRecord, ...]
    damage: tuple[Finding, ...]
    position: int


class ShortTail:
    """Reads the bytes every time, and walks them again only if they have changed."""

    def __init__(self, log: CommitLogReader) -> None:
        self._log = log
        self._window = b""
        self._tail: Tail | None = None

    def read(self, start: int) -> Tail | None:
        """What follows `start`, where a record begins; None where that is more than a window of bytes.

        Raises StoreAccessError, StoreChangedError.
        """
        if self._tail is None or self._tail.start != start or self._has_changed(start):
            self._tail = None
            walk = LogWalk(self._log, start, start + _MOST_BYTES)
            records = tuple(read_keyed_record(record) for record in walk)
            window = walk.whole_window()
            if window is not None:
                self._window = window
                self._tail = Tail(start, records[::-1], tuple(walk.damage), walk.position)
        return self._tail

    def _has_changed(self, start: int) -> bool:
        file = self._log.file_at(start)
        return file is None or self._log.read(file, start, len(self._window)) != self._window
