"""What a scan of the log looks for."""

from __future__ import annotations

from typing import Protocol

from reput.log.keyed_record import KeyedRecord


class Wanted(Protocol):
    """Which index entries to follow, and which records to take."""

    hashes: frozenset[int]
    keys: frozenset[str]
    """Each match has one of them."""

    def matches(self, record: KeyedRecord) -> bool: ...


class WantedNothing:
    """For a scan that is after the end of the log only."""

    hashes: frozenset[int] = frozenset()
    keys: frozenset[str] = frozenset()

    def matches(self, record: KeyedRecord) -> bool:
        return False
