"""Prove that an answer covers its question.

An answer is incomplete until its evidence covers what was asked. Evidence is a range of the log and the reason why no
requested message of it is missing from the answer. Readers report evidence while they read:

| evidence | reported by |
|---|---|
| scanned | a scan that read every record of the range, now or before (`KnownRanges`) |
| indexed | a trusted part of an index that was searched for the requested keys |
| excluded | known store times, none of which is in the requested window |
| queued | queues with an entry for every readable message of the requested topics in the range |

A reader that finds damage reports it, and this withdraws the evidence of the damaged range. `Evidence.coverage`
subtracts: what was asked, minus what is proven. A reader that forgets to report evidence makes an answer incomplete.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from reput.base import Finding, Kind
from reput.core.index.key_index import ARCHIVED_KEYS, Basis, IndexPart
from reput.core.log.offset_range import OffsetRange, common, newest_first

_NO_EVIDENCE = "not covered: no evidence"


class IndexedRange(NamedTuple):
    """A range [start, stop) of physical offsets that was searched in one IndexFile, and why this file is trusted."""

    start: int
    stop: int
    index_file: str
    basis: Basis = Basis.SPOT_CHECKED

    @property
    def size_bytes(self) -> int:
        return self.stop - self.start


class Question(NamedTuple):
    """What was asked.

    Attributes:
        ranges: ranges of the log, ascending
        topics: the topics; None for all topics of the log
        begin, end: store times (ms), both inclusive; None without a limit
    """

    ranges: tuple[OffsetRange, ...] = ()
    topics: frozenset[str] | None = None
    begin: int | None = None
    end: int | None = None


_NO_QUESTION = Question()


@dataclass(frozen=True, slots=True)
class Coverage:
    """The coverage of an answer, computed by `Evidence.coverage`. All ranges are physical offsets, newest first.

    Attributes:
        log: range from the first unexpired message to the end of the log
        indexed: ranges looked up in an IndexFile that is proved to cover them, or was spot-checked
        scanned: ranges read message by message, because no IndexFile covers them
        unreadable: the reasons why ranges are not covered; their messages are missing from the answer. If the end of
            the log was lost (`lost_log_end`), the first of these ranges begins at the end of `log`, and its length is a
            minimum
        problems: IndexFiles, and chains of index entries, that could not be used; their ranges were scanned
        inner_messages: number of messages in inner batches (5.x) that were compared, because a broker's index lacks
            them; None if the requested topics have no batch queues
        notes: remarks about messages with a wrong CRC; in an empty answer, also about other places to search
        asked: what was asked
        proven: ranges in which the answer is known to have every requested message, ascending

    If a limit shortened the answer, the answer covers only the log from its cursor on. If a query continued from a
    cursor, its answer covers only the log up to that cursor.
    """

    log: OffsetRange
    indexed: tuple[IndexedRange, ...]
    scanned: tuple[OffsetRange, ...]
    unreadable: tuple[Finding, ...]
    problems: tuple[Finding, ...]
    inner_messages: int | None = None
    notes: tuple[str, ...] = ()
    asked: Question = _NO_QUESTION
    proven: tuple[OffsetRange, ...] = ()

    @property
    def unproven(self) -> tuple[OffsetRange, ...]:
        """Return the requested ranges in which messages may be missing from the answer, ascending."""
        if self.proven == self.asked.ranges:
            return ()
        parts = (part for asked in self.asked.ranges for part in asked.without(self.proven))
        return OffsetRange.merged(sorted(parts))

    @property
    def is_complete(self) -> bool:
        """Return whether the evidence covers everything that was asked."""
        return not self.unproven

    @property
    def indexed_bytes(self) -> int:
        return sum(part.size_bytes for part in self.indexed)

    @property
    def indexed_files(self) -> int:
        """Return the number of IndexFiles that the answer used."""
        return len({part.index_file for part in self.indexed})

    @property
    def archive_indexes(self) -> int:
        """Return how many of the indexes that the answer used belong to an archive."""
        files = {part.index_file for part in self.indexed}
        return sum(name.startswith(ARCHIVED_KEYS) for name in files)

    @property
    def spot_checked_files(self) -> int:
        """Return how many of the answer's IndexFiles were only spot-checked.

        All items of the answer's other IndexFiles were compared with the log (see `Basis`).
        """
        return len({part.index_file for part in self.indexed if part.basis is not Basis.PROVEN})

    @property
    def scanned_bytes(self) -> int:
        return sum(part.size_bytes for part in self.scanned)

    @property
    def unreadable_bytes(self) -> int:
        """Return the bytes of the requested ranges that could not be read. A finding may reach beyond these ranges."""
        places = [lost for lost in self.unreadable if lost.physical_offset is not None]
        lost_ranges = [OffsetRange(lost.start, lost.stop) for lost in places]
        return sum(
            part.size_bytes for part in common(lost_ranges, self.asked.ranges or lost_ranges)
        )


class Evidence:
    """The evidence that readers report while one question is answered.

    Attributes:
        damage: findings about messages that may be missing. A finding without a physical offset, such as one about a
            queue, may affect any message. A LOST_LOG_END belongs here only if the question reaches the end of the log.
        problems: index parts that could not be used
    """

    def __init__(self, path: str, *further: str) -> None:
        """Collect the evidence of an answer about the log at `path`.

        `further` names searches that the answer needs in addition, for messages that no index has. Then a range is
        proven only if each of these searches has read it as well.
        """
        self._path = path
        self._indexed: list[IndexedRange] = []
        self._scanned: list[OffsetRange] = []
        self._excluded: list[OffsetRange] = []
        self._queued: list[OffsetRange] = []
        self._further: dict[str, list[OffsetRange]] = {name: [] for name in further}
        self.damage: list[Finding] = []
        self.problems: list[Finding] = []

    def scanned(self, start: int, stop: int) -> None:
        """Report that every record of a range was read, or is known from an earlier scan not to be requested."""
        self._scanned.append(OffsetRange(start, max(start, stop)))

    def indexed(self, start: int, stop: int, part: IndexPart) -> None:
        """Report that a range was searched for all requested keys in a trusted part of an index."""
        self._indexed.append(IndexedRange(start, stop, part.name, part.basis))

    def excluded(self, start: int, stop: int) -> None:
        """Report that no requested message can be in a range."""
        self._excluded.append(OffsetRange(start, max(start, stop)))

    def queued(self, start: int, stop: int) -> None:
        """Report that the queues have an entry for every readable message of the topics in a range, and were read."""
        self._queued.append(OffsetRange(start, max(start, stop)))

    def answered(self, coverage: Coverage) -> None:
        """Report the coverage of an answer to a question that is a part of this one."""
        self._queued += coverage.proven
        self.damage += coverage.unreadable

    def further(self, name: str, start: int, stop: int) -> None:
        """Report that one of the further searches has read a range."""
        self._further[name].append(OffsetRange(start, max(start, stop)))

    def coverage(
        self,
        log: OffsetRange,
        *,
        inner_messages: int | None = None,
        notes: Iterable[str] = (),
        question: Question | None = None,
    ) -> Coverage:
        """Return the coverage of an answer about the range `log`.

        Args:
            log: The range that was asked.
            inner_messages: Number of inner messages that were compared, if any had to be.
            notes: Remarks on the answer.
            question: The topics and the window of time that were asked.
        """
        # Every query calls this, so the usual answer, without damage, takes the short ways.
        unplaced: list[Finding] = []
        placed: list[Finding] = []
        question_ranges = [log]
        if self.damage:
            damage = list(dict.fromkeys(self.damage))
            unplaced = [lost for lost in damage if lost.physical_offset is None]
            # A lost end follows the range, and was asked as well.
            ends = [lost for lost in damage if lost.kind is Kind.LOST_LOG_END]
            question_ranges = sorted([log, *map(_bytes_of, ends)])
            damaged = (lost for lost in damage if lost not in ends and lost not in unplaced)
            placed = [*ends, *within_range(damaged, log)]
        ranges = OffsetRange.merged(question_ranges)
        searched = [*map(_range_of, self._indexed), *self._scanned, *self._excluded, *self._queued]
        # A scan finds all messages. So only the ranges of the index and the queues need the further searches.
        further = [[*self._scanned, *self._excluded, *read] for read in self._further.values()]
        proven = () if unplaced else tuple(common(searched, *further))
        holes = list(map(_bytes_of, placed))
        if holes:
            proven = tuple(part for whole in proven for part in whole.without(holes))
        limits = question or _NO_QUESTION
        coverage = Coverage(
            log=log,
            indexed=tuple(self._indexed),
            scanned=newest_first(self._scanned),
            unreadable=(*placed, *unplaced),
            problems=tuple(self.problems),
            inner_messages=inner_messages,
            notes=tuple(notes),
            asked=Question(ranges, limits.topics, limits.begin, limits.end),
            proven=proven,
        )
        if proven == ranges:
            return coverage
        # Nobody has reported why these ranges are not covered.
        unexplained = [
            Finding(
                Kind.UNCOVERED_RANGE, self._path, _NO_EVIDENCE,
                physical_offset=part.start, length=part.size_bytes,
            )
            for whole in ([] if unplaced else coverage.unproven)
            for part in whole.without(holes)
        ]  # fmt: skip
        if not unexplained:
            return coverage
        return replace(coverage, unreadable=(*coverage.unreadable, *reversed(unexplained)))


def joined(coverages: Sequence[Coverage], log: OffsetRange | None = None) -> Coverage:
    """Return the coverage of an answer that is composed of several answers about one store.

    A range is proven only if each answer whose question has this range proves it. `log` is the range of the composed
    answer, by default from the beginning of the oldest range to the end of the newest one.
    """
    if log is None:
        starts, stops = (
            [coverage.log.start for coverage in coverages],
            [coverage.log.stop for coverage in coverages],
        )
        log = OffsetRange(min(starts, default=0), max(stops, default=0))
    inner = [
        coverage.inner_messages for coverage in coverages if coverage.inner_messages is not None
    ]
    ranges = OffsetRange.merged(
        sorted(part for coverage in coverages for part in coverage.asked.ranges)
    )
    holes = [part for coverage in coverages for part in coverage.unproven]
    topics: frozenset[str] | None = frozenset()
    for coverage in coverages:
        topics_before, further = topics, coverage.asked.topics
        topics = None if topics_before is None or further is None else topics_before | further
    return Coverage(
        log=log,
        indexed=tuple(dict.fromkeys(part for coverage in coverages for part in coverage.indexed)),
        scanned=newest_first(part for coverage in coverages for part in coverage.scanned),
        unreadable=tuple(
            dict.fromkeys(part for coverage in coverages for part in coverage.unreadable)
        ),
        problems=tuple(dict.fromkeys(part for coverage in coverages for part in coverage.problems)),
        inner_messages=max(inner, default=None),
        notes=tuple(dict.fromkeys(note for coverage in coverages for note in coverage.notes)),
        asked=coverages[0].asked._replace(ranges=ranges, topics=topics)
        if coverages
        else _NO_QUESTION,
        proven=tuple(part for whole in ranges for part in whole.without(holes)),
    )


def within_range(damage: Iterable[Finding], answered: OffsetRange) -> list[Finding]:
    """Return the damage in the range of the answer, newest first."""
    inside = {
        lost: None
        for lost in damage
        if lost.start < answered.stop and answered.start < _bytes_of(lost).stop
    }
    return sorted(inside, key=lambda lost: lost.start, reverse=True)


def further_findings(findings: Iterable[Finding], named: Sequence[Finding]) -> list[Finding]:
    """Return the findings whose bytes, or whose place outside the log, no finding of `named` names."""
    places = {(lost.kind, lost.file) for lost in named}
    parts = [part for lost in named if (part := bytes_of(lost)) is not None]
    ranges = OffsetRange.merged(sorted(parts))

    def is_named(lost: Finding) -> bool:
        if (part := bytes_of(lost)) is None:
            return (lost.kind, lost.file) in places
        number = bisect_right(ranges, part.start, key=lambda each: each.start) - 1
        return number >= 0 and part.stop <= ranges[number].stop

    return [lost for lost in findings if not is_named(lost)]


def bytes_of(lost: Finding) -> OffsetRange | None:
    """Return the range of a finding: at least one byte, because a finding of unknown length costs a message, too.

    Return None for a finding without a physical offset.
    """
    return None if lost.physical_offset is None else _bytes_of(lost)


def _bytes_of(lost: Finding) -> OffsetRange:
    return OffsetRange(lost.start, max(lost.stop, lost.start + 1))


def _range_of(part: IndexedRange) -> OffsetRange:
    return OffsetRange(part.start, part.stop)
