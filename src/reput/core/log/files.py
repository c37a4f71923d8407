"""The files of a CommitLog, each named by its first physical offset, and the gaps between them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from reput.base import Finding, Kind
from reput.core.log.known_file import KnownFile
from reput.errors import CorruptMessageError, FormatError, StoreChangedError
from reput.format.file_names import offset_file_name


@dataclass(frozen=True, slots=True, order=True)
class CommitLogFile:
    """One file of the log: physical offset of its first byte, size and path.

    Two files are equal only if their inodes are equal as well.

    gap    size of the header before each record of a DLedger log, else 0
    known  store times and other facts about an archived file, which the archive states

    In RocketMQ: fileFromOffset.
    """

    start: int
    size: int
    path: str
    inode: int = 0
    gap: int = 0
    known: KnownFile | None = field(default=None, compare=False)

    @property
    def end(self) -> int:
        return self.start + self.size

    def corrupt(self, physical_offset: int, reason: str) -> CorruptMessageError:
        """Return the error for an unreadable record at this offset of the file."""
        return CorruptMessageError(self.path, physical_offset - self.start, reason, physical_offset)

    def lost(
        self, start: int, stop: int, detail: str, kind: Kind = Kind.UNREADABLE_RECORD
    ) -> Finding:
        """Return the finding that physical offsets [start, stop) of this file could not be read."""
        return Finding(kind, self.path, detail, start - self.start, start, stop - start)


def check_no_overlap(files: Sequence[CommitLogFile]) -> None:
    """Raise FormatError if two files contain the same offset. The files must be in the order of their offsets."""
    for before, after in pairwise(files):
        if before.end > after.start:
            raise FormatError(after.path, 0, f"overlaps {before.path}, which ends at {before.end}")


def check_none_shorter(before: Sequence[CommitLogFile], now: Sequence[CommitLogFile]) -> None:
    """Raise StoreChangedError if a file was longer before. Log files never shrink, so messages were lost."""
    sizes = {(file.path, file.inode): file.size for file in before}
    for file in now:
        was = sizes.get((file.path, file.inode), 0)
        if file.size < was:
            raise StoreChangedError(
                f"{file.path}: has {file.size} bytes, but had {was} before; open the store again "
                f"to read the messages that are left"
            )


def add_out_of_place(damage: list[Finding], file: CommitLogFile, start: int, size: int) -> None:
    """Add to `damage` that records in `size` bytes from `start` on state other physical offsets than their places.

    The range is joined with a range of this kind that ends at `start`.
    """
    before = damage[-1] if damage else None
    if before is not None and before.kind is Kind.MISPLACED_RECORD and before.stop == start:
        start, size = before.start, before.length + size
        del damage[-1]
    reason = "the records here state other physical offsets"
    damage.append(file.lost(start, start + size, reason, Kind.MISPLACED_RECORD))


def holes(files: Sequence[CommitLogFile]) -> list[Finding]:
    """Return a finding for each range of offsets that no file contains, between the first and the last file.

    Each finding has the path of the first missing file.
    """
    return [
        missing_before(after, before.end)
        for before, after in pairwise(files)
        if before.end < after.start
    ]


def missing_before(file: CommitLogFile, start: int) -> Finding:
    """Return the finding that no file contains physical offsets [start, file.start), with the first missing file."""
    files = -(-(file.start - start) // max(file.size, 1))
    name = offset_file_name(max(file.start - files * file.size, 0))
    return Finding(
        Kind.MISSING_LOG_FILE, os.path.join(os.path.dirname(file.path), name),
        "no file contains these offsets",
        physical_offset=start, length=file.start - start,
    )  # fmt: skip


def lost_end(files: Sequence[CommitLogFile], log_end: int, known: int, whose: str) -> Finding:
    """Return the finding that the log ends at `log_end`, but once had a message at `known` or later."""
    return Finding(
        Kind.LOST_LOG_END, files[-1].path,
        f"the log ends here, but {whose} refers to a later message; the newest messages are lost",
        physical_offset=log_end, length=max(known + 1 - log_end, 1),
    )  # fmt: skip


def expired_before(file: CommitLogFile, start: int) -> Finding:
    """Return the finding that physical offsets [start, file.start) expired before they were read."""
    return replace(
        missing_before(file, start),
        kind=Kind.EXPIRED_UNREAD,
        detail="expired before they were read",
    )
