"""Where a log ends, by what a walk over it found: the one place that decides.

A walk stops, or passes bytes over, where no record can be read. Whether that is damage or the end of the log depends on
who asks. A broker that recovers cuts its log at the first such byte. Whoever reads a log that another process writes
stops before the last of them, which may be records that are not written whole yet. A rebuild takes for the end what no
verifiable record follows: up to one that follows the log did go on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reput.files.reader import OpenFile, RangeReader
from reput.findings import Finding
from reput.log.files import CommitLogFile
from reput.log.offset_range import OffsetRange
from reput.log.record_search import find_record, is_copied_whole


@dataclass(frozen=True, slots=True)
class WalkVerdict:
    """What a walk over a stretch of the log found out.

    position       physical offset of the first byte that was neither taken nor passed over
    damage         what was passed over, in order; where nothing can be read to the end of the file, that is the last
    is_unreadable  whether the last of it is such an end
    followed       physical offsets of damage that a verifiable record is known to follow
    blank          physical offset of the blank that ended the last file walked; None if another thing did
    """

    position: int
    damage: Sequence[Finding]
    is_unreadable: bool = False
    followed: Collection[int] = ()
    blank: int | None = None

    @property
    def tail_start(self) -> int:
        """Physical offset of the first of the damage that reaches without a record between up to `position`."""
        return self._tail_start(())

    def _tail_start(self, followed: Collection[int]) -> int:
        start = self.position
        for lost in reversed(self.damage):
            if lost.stop != start or lost.start in followed:
                break
            start = lost.start
        return start


def followed_damage(
    reader: RangeReader, file: CommitLogFile, damage: Sequence[Finding]
) -> list[int]:
    """Physical offsets of the `damage` in one file, in order, that a verifiable record follows in this file.

    Raises StoreAccessError, StoreChangedError.
    """

    def is_last(lost: Finding) -> bool:
        return find_record(reader, file, lost.start + 1, file.end) is None

    return [lost.start for lost in damage[: bisect_left(damage, True, key=is_last)]]


def end_for_broker(verdict: WalkVerdict) -> int:
    """Where a broker that recovers ends its log: at the first byte that it cannot read."""
    return verdict.damage[0].start if verdict.damage else verdict.position


class FileEnd(NamedTuple):
    """Where the records of one file end for a broker that recovers, and whether it continues with the next file."""

    position: int
    is_passed: bool


def end_of_file(verdict: WalkVerdict, file: CommitLogFile) -> FileEnd:
    """The end of a file that a walk read to its end, or to damage. A blank begins where the records end."""
    end = end_for_broker(verdict)
    if end < file.end:
        return FileEnd(end, False)
    # In a DLedger log the blank has a header of its own, and no record can take its place.
    return FileEnd(end if verdict.blank is None or file.gap else verdict.blank, True)


def end_for_reader(
    verdict: WalkVerdict,
    newest: OffsetRange | None,
    file: CommitLogFile,
    open_file: OpenFile,
) -> int:
    """Where a log ends for whoever reads its last file while another process may be writing it.

    The last record counts only if it is whole: a broker copies it into its file while others read, and the end of it
    comes last.

    Args:
        verdict: of a walk over the file.
        newest: where the last record lies that was read, None where there is none.
        file: the log's last.
        open_file: opens it.

    Raises:
        StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    if not verdict.is_unreadable:
        return verdict.position

    def last_record() -> bytes:
        assert newest is not None
        with open_file(file.path) as reader:
            return reader.read(newest.start - file.start, newest.size_bytes)

    return end_of_whole(verdict.tail_start, newest, last_record)


def end_of_whole(end: int, newest: OffsetRange | None, record: Callable[[], bytes]) -> int:
    """Return `end`, or the beginning of the newest record if it ends there and is not whole: its bytes or its CRC."""
    if newest is not None and newest.stop == end and not is_copied_whole(record()):
        return newest.start
    return end


def end_for_rebuild(verdict: WalkVerdict) -> int:
    """Where a log ends for a rebuild: what was torn at the end of its last file is no damage, unless a verifiable
    record follows."""
    return verdict._tail_start(verdict.followed)
