"""The files of a CommitLog, each named by its first physical offset, the gaps between them, and searches in a file.

`find_record` finds the next record without a walk: it searches for a magic, then verifies the record. A record is
verifiable if it states its physical offset, lengths that add up, and the CRC of its body
(`reput.format.commit_log.is_proven`). Bytes of a message's body can imitate a record and meet all these conditions. So
a split (a range for one task) that begins at a record found here is valid only if the walk over the previous split ends
at this record.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar

from reput.base import Finding, Kind
from reput.core.log.known_file import KnownFile
from reput.core.log.offset_range import OffsetRange
from reput.errors import CorruptMessageError, FormatError, StoreChangedError
from reput.format.commit_log import (
    MAGIC_POSITION,
    MIN_RECORD_BYTES,
    RecordError,
    crc_matches,
    is_proven,
    locate,
    read_size_and_physical_offset,
)
from reput.format.dledger import LEDGER_HEADER_BYTES, is_end_mark, is_header
from reput.format.file_names import LEDGER_DATA_FOLDER, LEDGER_PREFIX, offset_file_name
from reput.io import RangeReader, data_runs

# Total length of the two fields (magic and size) with which the mark at the end of a DLedger file begins.
_END_BYTES = 8
# The first three bytes of both magics, V1 and V2.
_MAGIC_PREFIX = b"\xda\xa3\x20"
# Most searches end soon, so reads begin small and grow.
_FIRST_READ_BYTES = 64 << 10
_MAX_READ_BYTES = 4 << 20
_ZEROS = bytes(1 << 20)


@lru_cache(16)
def _gap_in(folder: str) -> int:
    store, name = os.path.split(folder)
    is_ledger = name == LEDGER_DATA_FOLDER and os.path.basename(store).startswith(LEDGER_PREFIX)
    return LEDGER_HEADER_BYTES if is_ledger else 0


@dataclass(frozen=True, slots=True, order=True)
class CommitLogFile:
    """One file of the log: physical offset of its first byte, size and path.

    Two files are equal only if their inodes are equal as well.

    gap    size of the header before each record of a DLedger log, else 0
    known  store times and other facts about an archived file, which the archive states
    file_bytes  0 for one file. Otherwise this stands for consecutive files of this size, in one folder and without
                headers, and `path` is that of the first one

    In RocketMQ: fileFromOffset.
    """

    # Facts about ranges shorter than this are not stored, because scanning them is fast.
    LEAST_KEPT_BYTES: ClassVar[int] = 1 << 20

    start: int
    size: int
    path: str
    inode: int = 0
    gap: int = 0
    known: KnownFile | None = field(default=None, compare=False)
    file_bytes: int = 0

    @staticmethod
    def gap_of(path: str) -> int:
        """Return the size of the header before each record of a log file: 0 except for files in `dledger-<id>/data`."""
        return _gap_in(os.path.dirname(path))

    @property
    def end(self) -> int:
        return self.start + self.size

    def end_of_file(self, physical_offset: int) -> int:
        """Return the end of the file that has this offset: `end`, unless this stands for several files."""
        if not self.file_bytes:
            return self.end
        return physical_offset - (physical_offset - self.start) % self.file_bytes + self.file_bytes

    def file_at(self, physical_offset: int) -> CommitLogFile:
        """Return the file that has this offset: this one, unless this stands for several files."""
        if not self.file_bytes:
            return self
        start = self.end_of_file(physical_offset) - self.file_bytes
        path = os.path.join(os.path.dirname(self.path), offset_file_name(start))
        return CommitLogFile(start, self.file_bytes, path)

    @property
    def is_worth_keeping(self) -> bool:
        """Return whether facts about the file may be stored. A short file is scanned faster."""
        return self.size >= self.LEAST_KEPT_BYTES

    def corrupt(self, physical_offset: int, reason: str) -> CorruptMessageError:
        """Return the error for an unreadable record at this offset of the file."""
        return CorruptMessageError(self.path, physical_offset - self.start, reason, physical_offset)

    def lost(
        self, start: int, stop: int, detail: str, kind: Kind = Kind.UNREADABLE_RECORD
    ) -> Finding:
        """Return the finding that physical offsets [start, stop) of this file could not be read."""
        return Finding(kind, self.path, detail, start - self.start, start, stop - start)

    def missing_before(self, start: int) -> Finding:
        """Return the finding that no file contains the offsets from `start` to this file; it names the first one."""
        files = -(-(self.start - start) // max(self.size, 1))
        name = offset_file_name(max(self.start - files * self.size, 0))
        return Finding(
            Kind.MISSING_LOG_FILE, os.path.join(os.path.dirname(self.path), name),
            "no file contains these offsets",
            physical_offset=start, length=self.start - start,
        )  # fmt: skip

    def expired_before(self, start: int) -> Finding:
        """Return the finding that the offsets from `start` to this file expired before they were read."""
        return replace(
            self.missing_before(start),
            kind=Kind.EXPIRED_UNREAD,
            detail="expired before they were read",
        )

    def after_header(self, reader: RangeReader, position: int) -> int:
        """Return the physical offset of a record. `position` is this offset, or the offset of its DLedger header.

        Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
        """
        at = position - self.start
        head = reader.read(at, max(min(self.gap, self.size - at), 0))
        if at == 0 or is_header(head, position) or is_end_mark(head, self.size - at):
            return position + self.gap
        return position

    def is_ledger_end(self, reader: RangeReader, position: int) -> bool:
        """Return whether the records of a DLedger file have ended, so that no record begins at `position`.

        The header of such a record would lie directly before `position`. At the end, the file has its end mark in place
        of this header, or has too few bytes left for an end mark.

        Raises as `after_header` does.
        """
        at = position - self.gap - self.start
        left = self.size - at
        return left < _END_BYTES or is_end_mark(reader.read(at, _END_BYTES), left)

    def cut(
        self, start: int, stop: int, split_bytes: int, data_end: int | None = None
    ) -> list[OffsetRange]:
        """Cut physical offsets [start, stop) into splits, at positions that do not depend on `start`.

        split_bytes  size of all splits except the first and the last; at least 1
        data_end     end of the data; no cuts are made after it
        """
        first = start + split_bytes - (start - self.start) % split_bytes
        last = stop if data_end is None else min(data_end, stop)
        begins = [start, *range(first, last, split_bytes)]
        return [OffsetRange(*edges) for edges in pairwise([*begins, stop])]


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
        after.missing_before(before.end)
        for before, after in pairwise(files)
        if before.end < after.start
    ]


def lost_end(files: Sequence[CommitLogFile], log_end: int, known: int, whose: str) -> Finding:
    """Return the finding that the log ends at `log_end`, but once had a message at `known` or later."""
    return Finding(
        Kind.LOST_LOG_END, files[-1].path,
        f"the log ends here, but {whose} refers to a later message; the newest messages are lost",
        physical_offset=log_end, length=max(known + 1 - log_end, 1),
    )  # fmt: skip


def find_record(
    reader: RangeReader, file: CommitLogFile, start: int, stop: int, *, in_data: bool = False
) -> int | None:
    """Return the physical offset of the first verifiable record in [start, stop); None if no such record exists.

    If `start` is in the data of the file, and not in a hole, `in_data` saves the search for holes up to the end of the
    file. In a file system in memory, this search visits every page.
    """
    length = _FIRST_READ_BYTES
    if in_data:
        window = reader.read(start - file.start, min(length, file.end - start))
        found = _search(reader, file, start, window, stop)
        if found is not None:
            return found
    for data_begin, data_end in data_runs(reader, start - file.start, file.size):
        # A hole is a range of zeros in a sparse file. If a magic directly follows a hole, its record begins in the
        # hole. So the search begins MAGIC_POSITION bytes before the data. A magic itself cannot lie in a hole, because
        # its bytes are not zero.
        position = max(start, file.start + data_begin - MAGIC_POSITION)
        end = file.start + data_end
        while position < min(stop, end):
            window = reader.read(position - file.start, min(length, end - position))
            # Skip windows of zeros. Comparing a window that fits into the processor's cache with zeros is ten times as
            # fast as searching the window for a magic.
            if window != _ZEROS:
                found = _search(reader, file, position, window, stop)
                if found is not None:
                    return found
                length = min(2 * length, _MAX_READ_BYTES)
            if position + len(window) == end:
                break
            # Windows overlap, so that a magic at their edge is found.
            position += max(len(window) - MAGIC_POSITION - len(_MAGIC_PREFIX), 1)
    return None


def _search(
    reader: RangeReader, file: CommitLogFile, base: int, window: bytes, stop: int
) -> int | None:
    at = window.find(_MAGIC_PREFIX, MAGIC_POSITION)
    while at >= 0:
        candidate = base + at - MAGIC_POSITION
        if candidate >= stop:
            return None
        if _is_record_at(reader, file, candidate):
            return candidate
        at = window.find(_MAGIC_PREFIX, at + 1)
    return None


def _is_record_at(reader: RangeReader, file: CommitLogFile, physical_offset: int) -> bool:
    """Return whether a complete record with the right CRC lies at this offset and states this offset."""
    remaining = file.end - physical_offset
    if remaining < MIN_RECORD_BYTES:
        return False
    position = physical_offset - file.start
    total, stated_offset = read_size_and_physical_offset(reader.read(position, MIN_RECORD_BYTES), 0)
    if stated_offset != physical_offset or not MIN_RECORD_BYTES <= total <= remaining:
        return False
    return is_proven(reader.read(position, total), 0, total, physical_offset)


def is_copied_whole(record: bytes) -> bool:
    """Return whether a record was copied to its end: its CRC is right, and its properties do not end with a zero."""
    try:
        layout = locate(record, 0, len(record))
    except RecordError:
        return False
    return crc_matches(record, layout) and (not layout.properties_bytes or record[-1] != 0)


def first_nonzero(reader: RangeReader, file: CommitLogFile, start: int) -> int | None:
    """Return the physical offset of the first nonzero byte in [start, file.end); None if all bytes are zero."""
    for data_begin, data_end in data_runs(reader, start - file.start, file.size):
        position = data_begin
        while position < data_end:
            window = reader.read(position, min(len(_ZEROS), data_end - position))
            if window != _ZEROS and (data := window.lstrip(b"\0")):
                return file.start + position + len(window) - len(data)
            position += len(window)
    return None
