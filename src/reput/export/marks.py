"""How far a table has the messages of a store, and whether a store is still the one that they came from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from reput.errors import StoreChangedError, UsageError
from reput.store.commit_log_files import CommitLogFile
from reput.table.sources import LogSource

_PROVEN_BYTES = 4096
_MOST_BYTES = 1 << 63


@dataclass(frozen=True, slots=True)
class Mark:
    """All messages of a store that begin before `end`, a physical offset, are in the table.

    file_start, digest  SHA-256 of the first and the last bytes before `end` of the file that has them: bytes of a
                        log never change. "" where nothing is known
    """

    end: int
    file_start: int = 0
    digest: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Mark:
        mark = cls(**stored)
        if not 0 <= mark.file_start <= mark.end < _MOST_BYTES or not isinstance(mark.digest, str):
            raise ValueError(f"no mark: {mark}")
        return mark


def mark_at(source: LogSource, end: int) -> Mark:
    """Raises StoreError."""
    for file in source.files:
        if file.start < end <= file.end:
            return Mark(end, file.start, _digest(source, file, end))
    return Mark(end)


def check_goes_on(source: LogSource, log_end: int, mark: Mark, destination: str) -> None:
    """Raises StoreChangedError where the log of a store does not go on where the table ends."""
    other = f"{source.name}: not the log that {destination} has messages of up to {mark.end}:"
    advice = "it was truncated or made anew; export it to another place, or under another --name"
    if log_end < mark.end:
        raise StoreChangedError(f"{other} it ends at {log_end}; {advice}")
    proven = [file for file in source.files if mark.digest and file.start == mark.file_start]
    for file in proven:
        if file.end < mark.end or _digest(source, file, mark.end) != mark.digest:
            raise StoreChangedError(f"{other} bytes before that offset are others; {advice}")


def check_is_new(source: LogSource, marks: Mapping[str, Mark], destination: str) -> None:
    """Raises UsageError where the log of a store is one that the table has under another name."""
    for name, mark in marks.items():
        for file in source.files:
            is_there = mark.digest and file.start == mark.file_start and mark.end <= file.end
            if is_there and _digest(source, file, mark.end) == mark.digest:
                raise UsageError(
                    f"{source.name}: {destination} has the messages of this log as those of {name}; "
                    f"give --name {name}, or export to another place"
                )


def _digest(source: LogSource, file: CommitLogFile, end: int) -> str:
    first_stop = min(end, file.start + _PROVEN_BYTES)
    last_start = max(file.start, end - _PROVEN_BYTES)
    with source.open_file(file.path) as reader:
        first = reader.read(0, first_stop - file.start)
        last = reader.read(last_start - file.start, end - last_start)
    return hashlib.sha256(first + last).hexdigest()
