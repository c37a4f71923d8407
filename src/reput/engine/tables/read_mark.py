"""Remember the position up to which a reader has read a log, and check that the log is still the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from reput.core import CommitLogFile, LogListing

# This many bytes are compared at the beginning, and at the end, of the part of a file that was read.
_PROVEN_BYTES = 4096
_MOST_BYTES = 1 << 63


@dataclass(frozen=True, slots=True)
class ReadMark:
    """A reader's position: all messages that begin before the physical offset `end` have been read.

    file_start  physical offset of the beginning of the file that contains the last byte before `end`
    digest      SHA-256 of this file's first bytes and of its last bytes before `end`; "" if unknown. A broker never
                changes written bytes
    """

    end: int
    file_start: int = 0
    digest: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> ReadMark:
        mark = cls(**fields)
        if not 0 <= mark.file_start <= mark.end < _MOST_BYTES or not isinstance(mark.digest, str):
            raise ValueError(f"not a read mark: {mark}")
        return mark

    @classmethod
    def at(cls, source: LogListing, end: int) -> ReadMark:
        """Return the mark of a reader that has read all messages before `end`. Raises StoreError."""
        file = _file_before(source, end)
        return cls(end) if file is None else cls(end, file.start, _digest(source, file, end))

    def why_another(self, source: LogListing, log_end: int) -> str:
        """Return why a log that ends at `log_end` is not the marked log: it was truncated or replaced.

        Return "" if it is the same log. Return "" also if the bytes before the mark have expired, because nothing can
        be compared. Raises StoreError.
        """
        if log_end < self.end:
            return f"the log ends at {log_end}"
        file = _file_before(source, self.end)
        if not self.digest or file is None:
            return ""
        if file.start != self.file_start:
            return f"the file before that offset begins at {file.start}, not {self.file_start}"
        is_same = _digest(source, file, self.end) == self.digest
        return "" if is_same else "the bytes before that offset differ"

    def is_of(self, source: LogListing) -> bool:
        """Return whether the mark provably belongs to this log. Raises StoreError."""
        file = _file_before(source, self.end)
        is_comparable = self.digest and file is not None and file.start == self.file_start
        return bool(is_comparable and file and _digest(source, file, self.end) == self.digest)


def _file_before(source: LogListing, end: int) -> CommitLogFile | None:
    """Return the file with the last byte before an offset."""
    return next((file for file in source.files if file.start < end <= file.end), None)


def _digest(source: LogListing, file: CommitLogFile, end: int) -> str:
    first_stop = min(end, file.start + _PROVEN_BYTES)
    last_start = max(file.start, end - _PROVEN_BYTES)
    with source.open_file(file.path) as reader:
        first = reader.read(0, first_stop - file.start)
        last = reader.read(last_start - file.start, end - last_start)
    return hashlib.sha256(first + last).hexdigest()
