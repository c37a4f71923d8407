"""What a query answers, and what the answer covers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from reput.format.commit_log import MessageExt
from reput.store.damage import Damage


class OffsetRange(NamedTuple):
    """Physical offsets [start, stop)."""

    start: int
    stop: int

    @property
    def size_bytes(self) -> int:
        return self.stop - self.start


class IndexedRange(NamedTuple):
    """Physical offsets [start, stop) whose messages were looked up in one IndexFile."""

    start: int
    stop: int
    index_file: str

    @property
    def size_bytes(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Coverage:
    """What an answer speaks for. All ranges are physical offsets, newest first.

    log         from the first message that has not expired to the end of the log
    indexed     looked up in an IndexFile
    scanned     read message by message, because no IndexFile covers them
    unreadable  bytes that could not be read; a message in there would not be in the answer
    problems    IndexFiles and chains that could not be used, a line each; their ranges were scanned

    An answer that was cut by a limit covers the log from its cursor on; one that goes on from a
    cursor, up to it.
    """

    log: OffsetRange
    indexed: tuple[IndexedRange, ...]
    scanned: tuple[OffsetRange, ...]
    unreadable: tuple[Damage, ...]
    problems: tuple[str, ...]

    @property
    def indexed_bytes(self) -> int:
        return sum(part.size_bytes for part in self.indexed)

    @property
    def scanned_bytes(self) -> int:
        return sum(part.size_bytes for part in self.scanned)

    @property
    def unreadable_bytes(self) -> int:
        return sum(part.length for part in self.unreadable)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Messages newest first, that is by falling physical offset, each once.

    cursor    where to go on (`after=cursor`) when the limit cut the answer, else None
    coverage  what was looked at; `is_complete` when all of it could be read
    """

    messages: tuple[MessageExt, ...]
    cursor: int | None
    coverage: Coverage

    @property
    def is_complete(self) -> bool:
        return not self.coverage.unreadable


def joined_ranges(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """The same ranges, newest first, adjacent ones as one."""
    joined: list[OffsetRange] = []
    for part in ranges:
        if joined and part.stop == joined[-1].start:
            joined[-1] = OffsetRange(part.start, joined[-1].stop)
        elif part.start < part.stop:
            joined.append(part)
    return joined


def within_range(damage: Iterable[Damage], answered: OffsetRange) -> list[Damage]:
    """Damage in the range answered for, newest first."""
    inside = {
        lost
        for lost in damage
        if lost.physical_offset < answered.stop
        and answered.start < lost.physical_offset + lost.length
    }
    return sorted(inside, reverse=True)
