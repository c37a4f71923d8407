"""Define how a walk over the CommitLog handles unreadable bytes, and decide where the log ends, from its result.

A walk stops at unreadable bytes, or skips them. The caller's purpose decides whether they are damage or the end of the
log. A recovering broker cuts its log at the first unreadable byte. If another process may be writing the log, a reader
stops before unreadable bytes at the end, because they may be incomplete records. A rebuild ends the log after the last
verifiable record, because this record proves that the log continued after earlier damage.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from reput.base import Finding, Kind, StoreConfig
from reput.core.log.files import CommitLogFile, find_record, is_copied_whole
from reput.core.log.offset_range import OffsetRange
from reput.io import OpenFile, RangeReader


@dataclass(frozen=True, slots=True)
class ScanMode:
    """How a walk handles unreadable bytes, and which fields of records it takes.

    salvage       if true, resume at the next verifiable record of the file; if false, skip the rest of the file
    is_growing    stop at zeros in place of a record: it is not written yet, so do not search for a later record
    looks_behind  if the walk ends at unreadable bytes, examine the bytes that follow, to set `data_follows` and `torn`
    places_only   take only the places of records, not their keys and tags
    in_place      treat records that state another physical offset than their place as damage. They belong to another
                  file: readers must neither return them nor take their range for empty

    BROKER        the walk of the broker's reput service (DefaultMessageStore.ReputMessageService, 4.9.3)
    GROWING       a walk by the broker's rules, over a log to which a broker may be appending
    UP_TO_DAMAGE  a walk by the broker's rules, for a caller that stops at the first damage
    READER        the walk of readers, whose answers must name what they could not read

    The other modes combine these: SALVAGE resumes after damage, PLACES takes only places.
    """

    BROKER: ClassVar[ScanMode]
    SALVAGE: ClassVar[ScanMode]
    GROWING: ClassVar[ScanMode]
    UP_TO_DAMAGE: ClassVar[ScanMode]
    PLACES: ClassVar[ScanMode]
    GROWING_PLACES: ClassVar[ScanMode]
    READER: ClassVar[ScanMode]
    READER_SALVAGE: ClassVar[ScanMode]
    READER_PLACES: ClassVar[ScanMode]
    GROWING_READER: ClassVar[ScanMode]
    GROWING_READER_PLACES: ClassVar[ScanMode]
    READER_UP_TO_DAMAGE: ClassVar[ScanMode]
    READER_PLACES_UP_TO_DAMAGE: ClassVar[ScanMode]

    salvage: bool = False
    is_growing: bool = False
    looks_behind: bool = True
    places_only: bool = False
    in_place: bool = False


ScanMode.BROKER = ScanMode()
ScanMode.SALVAGE = ScanMode(salvage=True)
ScanMode.GROWING = ScanMode(is_growing=True)
ScanMode.UP_TO_DAMAGE = ScanMode(looks_behind=False)
ScanMode.PLACES = ScanMode(salvage=True, places_only=True)
ScanMode.GROWING_PLACES = replace(ScanMode.PLACES, is_growing=True)
ScanMode.READER = replace(ScanMode.BROKER, in_place=True)
ScanMode.READER_SALVAGE = replace(ScanMode.SALVAGE, in_place=True)
ScanMode.READER_PLACES = replace(ScanMode.PLACES, in_place=True)
ScanMode.GROWING_READER = replace(ScanMode.READER_SALVAGE, is_growing=True)
ScanMode.GROWING_READER_PLACES = replace(ScanMode.GROWING_PLACES, in_place=True)
ScanMode.READER_UP_TO_DAMAGE = replace(ScanMode.UP_TO_DAMAGE, in_place=True)
ScanMode.READER_PLACES_UP_TO_DAMAGE = replace(ScanMode.READER_UP_TO_DAMAGE, places_only=True)


@dataclass(frozen=True, slots=True)
class DispatchRules:
    """The settings that affect messages' queue entries and index entries. The defaults are those of a 4.9 broker.

    The settings affect tags codes of SCHEDULE_TOPIC_XXXX, entries in queues that INNER_MULTI_DISPATCH names, and index
    entries for tags. They do not affect the places and keys of records.

    delays_ms       delay of each level in ms, level 1 first (messageDelayLevel)
    multi_dispatch  whether INNER_MULTI_DISPATCH leads to further queues (enableMultiDispatch)
    lmq             whether further queues named %LMQ%... have queue id 0 (enableLmq)
    checks_topic    whether INNER_MULTI_DISPATCH is ignored in messages of retry and system topics (5.x)
    tags_from       physical offset from which messages also have an index entry for their tags (5.4); None for no
                    message
    """

    delays_ms: tuple[int, ...] = tuple(StoreConfig().delay_table_ms())
    multi_dispatch: bool = False
    lmq: bool = False
    checks_topic: bool = False
    tags_from: int | None = None

    @classmethod
    def of(cls, config: StoreConfig) -> DispatchRules:
        return cls(
            tuple(config.delay_table_ms()), config.enable_multi_dispatch, config.enable_lmq,
            checks_topic=config.is_five, tags_from=config.index_tags_from,
        )  # fmt: skip


DEFAULT_RULES = DispatchRules()


@dataclass(frozen=True, slots=True)
class WalkVerdict:
    """The result of a walk over a range of the log.

    position       physical offset of the first byte that was neither read as a record nor skipped
    damage         skipped ranges, in order; an unreadable rest of a file comes last
    is_unreadable  whether the last damage is the unreadable rest of a file
    followed       physical offset of each damaged range in which, or after which, a verifiable record was found
    blank          physical offset of the blank record that ended the last file of the walk, else None
    """

    position: int
    damage: Sequence[Finding]
    is_unreadable: bool = False
    followed: Collection[int] = ()
    blank: int | None = None

    @property
    def tail_start(self) -> int:
        """Return the offset of the first damage after the last readable record.

        Return `position` if no damage follows this record.
        """
        return self._tail_start(())

    def end_for_broker(self) -> int:
        """Return the end of the log for a recovering broker: the first unreadable byte."""
        return self.damage[0].start if self.damage else self.position

    def end_for_rebuild(self) -> int:
        """Return the end of a log for a rebuild.

        A torn end of the last file is not damage, unless a verifiable record follows it.
        """
        return self._tail_start(self.followed)

    def before_torn_end(
        self, file: CommitLogFile, open_file: OpenFile, reported: int = 0
    ) -> Sequence[Finding]:
        """Return the damage except the torn end of the log, and except the first `reported` findings.

        The walk has read `file`, the log's last file.

        Raises:
            StoreNotFoundError, StoreAccessError, StoreChangedError.
        """
        damage = self.damage[reported:]
        if not damage:
            return damage
        with open_file(file.path) as reader:
            followed = _followed(reader, file, damage)
        end = replace(self, damage=damage, followed=followed).end_for_rebuild()
        return [lost for lost in damage if lost.start < end]

    def _tail_start(self, followed: Collection[int]) -> int:
        start = self.position
        for lost in reversed(self.damage):
            # The torn end is the damage after the last record. To find its beginning, step back from the end of the
            # walk through adjacent damaged ranges. Stop if a range does not end at `start` (the beginning found
            # so far), or if a record is known to follow the range.
            # Records that state other places are complete, so they are not a torn end.
            is_record = lost.kind is Kind.MISPLACED_RECORD
            if lost.stop != start or lost.start in followed or is_record:
                break
            start = lost.start
        return start


def _followed(reader: RangeReader, file: CommitLogFile, damage: Sequence[Finding]) -> list[int]:
    """Return the offsets of the ranges in `damage` that precede a verifiable record in the same file.

    The ranges lie in one file, in order. Offsets are physical.

    Raises StoreAccessError, StoreChangedError.
    """

    def is_last(lost: Finding) -> bool:
        return find_record(reader, file, lost.start + 1, file.end) is None

    # A record that follows one range also follows all earlier ranges. So a binary search finds the first range that no
    # record follows.
    return [lost.start for lost in damage[: bisect_left(damage, True, key=is_last)]]


class FileEnd(NamedTuple):
    """Where a recovering broker finds the end of a file's records, and whether it continues with the next file."""

    position: int
    is_passed: bool


def end_of_file(verdict: WalkVerdict, file: CommitLogFile) -> FileEnd:
    """Return where the records of a file end.

    `verdict` must be the result of a walk that reached the end of the file, or stopped at damage. If a blank record
    ends the file, the records end at the beginning of the blank record.
    """
    end = verdict.end_for_broker()
    if end < file.end:
        return FileEnd(end, False)
    # In a DLedger log, the blank is an entry with a header, which a broker never replaces with a record. So the
    # records' end is the end of the file, not the beginning of the blank.
    return FileEnd(end if verdict.blank is None or file.gap else verdict.blank, True)


def end_for_reader(
    verdict: WalkVerdict,
    newest: OffsetRange | None,
    file: CommitLogFile,
    open_file: OpenFile,
) -> int:
    """Return the end of a log for a reader, while another process may be writing the last file.

    The last record counts only if it is complete. A broker copies a record into its file while others read, and the end
    of the record is copied last.

    Args:
        verdict: the verdict of a walk over the file.
        newest: range of the last record read; None without a record.
        file: the log's last file.
        open_file: opens the file.

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
    """Return `end`, or the beginning of the newest record if its last bytes were not written or its CRC is wrong.

    The newest record is tested only if its size field says that it ends at `end`.
    """
    if newest is not None and newest.stop == end and not is_copied_whole(record()):
        return newest.start
    return end
