"""Prove that the queues of a topic have every message of a time window.

Queue offsets are dense. So a range of entries whose records state their numbers lacks nothing between its ends. The
ends, holes and missing queues need the log, whose scans have remembered store times and queues (`KnownRanges`):

| part of the log | evidence |
|---|---|
| all store times are outside the window | no requested message can be in it |
| a range that cannot be read | none, unless the messages around it were stored more than an hour outside the window |
| any other range | the queues, if each requested queue exists and has all numbers that its messages state |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from reput.base import Finding, Kind
from reput.core.log.files import CommitLogFile
from reput.core.log.known_file import KnownFile, StatedOffsets, TimedPiece
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.core.query.evidence import Coverage, Evidence, Question, bytes_of, further_findings
from reput.core.query.queue_ends import lost_light_queue
from reput.core.queues.kinds import is_light
from reput.core.queues.queue_index import LostEntriesError, QueueReader
from reput.errors import CorruptMessageError, FormatError, MessageNotFoundError
from reput.format.file_names import CONSUME_QUEUE_FOLDER, is_folder_name

if TYPE_CHECKING:
    from reput.core.query.message_store import MessageStore

TakesQueue = Callable[[str, int], bool]
_EVER = 1 << 63
# Messages of a lost range are taken to be stored at most this long before or after the messages around the range: the
# clock may have been set back there.
_MARGIN_MS = 3_600_000
_WITHIN_AN_HOUR = (
    "Lost messages are taken to be stored within an hour of the messages around them in the log."
)


class WindowEvidence:
    """What the log shows about the messages of a time window in some queues.

    Attributes:
        notes: Assumptions that the evidence depends on.
    """

    def __init__(
        self,
        store: MessageStore,
        takes_queue: TakesQueue,
        begin: int | None,
        end: int | None,
        topic: str | None = None,
    ) -> None:
        """Prepare for messages stored between `begin` and `end` (ms, inclusive). None is no limit.

        `topic` is the topic of all queues that `takes_queue` accepts, if it is only one.

        Without both limits, no log file is scanned: only results of earlier scans in this process are used.
        """
        self._store, self._log, self._takes_queue = store, store.commit_log, takes_queue
        self._scans = begin is not None or end is not None
        self._begin = -_EVER if begin is None else begin
        self._end = _EVER if end is None else end
        self._topic = topic
        self._facts: dict[CommitLogFile, KnownFile | None] = {}
        self.notes: tuple[str, ...] = ()

    def coverage(
        self, searched: OffsetRange, question: Question, problems: Sequence[Finding] = ()
    ) -> Coverage:
        """Return the coverage of an answer that was read from all of the queues.

        Args:
            searched: The searched range of the log.
            question: What was asked in this range.
            problems: What could not be read in the queues.

        Raises StoreAccessError, StoreChangedError.
        """
        evidence = Evidence(self._log.source.name)
        self.add_to(evidence, searched)
        placed = [_placed(self._log, problem) for problem in problems]
        # Readers of a queue know more about it. A scan of the log knows whole ranges that cannot be read.
        of_queues = [problem for problem in placed if problem.physical_offset is None]
        evidence.damage = further_findings(evidence.damage, of_queues)
        evidence.damage += further_findings(placed, evidence.damage)
        return evidence.coverage(searched, notes=self.notes, question=question)

    def add_to(self, evidence: Evidence, within: OffsetRange) -> None:
        """Report the evidence of the queues, and what withdraws it, in a range of the log.

        Raises StoreAccessError, StoreChangedError.
        """
        known_ranges = self._store.known_ranges
        for file in self._log.files:
            is_within = file.start < within.stop and within.start < file.end
            if self._scans:
                self._facts[file] = known_ranges.learn(file, with_queues=is_within)
            elif is_within:
                self._facts[file] = known_ranges.remembered(file)
        lost = self._log.holes()
        for file, facts in self._facts.items():
            if within.stop <= file.start or file.end <= within.start:
                continue
            # Nothing is known yet about messages after the scanned range. Readers of the queues report damage there.
            stop = file.start if facts is None else facts.stop
            evidence.queued(stop, file.end)
            if facts is not None:
                inside = [piece for piece in facts.pieces if self._may_hold(piece)]
                ranges = [OffsetRange(piece.start, piece.stop) for piece in inside]
                for part in OffsetRange(facts.start, facts.stop).without(ranges):
                    evidence.excluded(*part)
                for part in ranges:
                    evidence.queued(*part)
                lost += facts.damage
                if inside:
                    evidence.damage += self._missing(file, facts.queues or (), within.stop)
        for loss in lost:
            if self._may_concern_window(loss):
                evidence.damage.append(loss)
            else:
                evidence.excluded(loss.start, loss.stop)
                self.notes = (_WITHIN_AN_HOUR,)
        evidence.damage += self._light(within)
        if self._scans and within.stop >= self._log.files_end:
            lost_end = self._store.lost_end(known_ranges.end())
            if lost_end is not None and self._may_concern_window(lost_end):
                evidence.damage.append(lost_end)
        elif self._topic is not None and within.stop >= self._log.files_end:
            evidence.damage += self._lost_ends(self._topic)

    def lost_in(self, queue: QueueReader, span: range) -> Finding | None:
        """Return a lost part of the log that may have had messages of the window, and to which entries in `span` lead.

        `span` is a range of queue offsets. Return None if there is no such part.

        Raises StoreAccessError, StoreChangedError.
        """
        ranges = self._store.known_ranges
        lost = [*self._log.holes(), *ranges.damage()]
        for file in self._log.files if lost else ():
            self._facts[file] = ranges.learn(file)
        for part in filter(self._may_concern_window, lost):
            first, stop = map(queue.min_queue_offset, bytes_of(part) or (0, 0))
            if max(first, span.start) < min(stop, span.stop):
                return part
        return None

    def _lost_ends(self, topic: str) -> Iterator[Finding]:
        """Yield a finding for each queue of the topic that lacks entries for its newest messages, or all entries."""
        store = self._store
        of_log = {name for name in store.queues_of_log() if name[0] == topic}
        for name in sorted(of_log.union(store.queues.list(topic)) or {(topic, 0)}):
            try:
                store.check_later(*name)
            except FormatError as error:
                yield Finding.of_error(Kind.MISSING_QUEUE_ENTRY, error)
            except MessageNotFoundError:
                if store.has_lost(*name):
                    folder = os.path.join(store.path, CONSUME_QUEUE_FOLDER, topic, str(name[1]))
                    yield Finding(Kind.MISSING_QUEUE, folder, "the log has messages of this queue")

    def _light(self, within: OffsetRange) -> Iterator[Finding]:
        """Yield a finding if the topic has light queues, and all of them may be lost."""
        topic, store = self._topic, self._store
        # An archive has queues for all messages of its log.
        if topic is None or not is_light(topic) or store.has_all_entries:
            return
        if not store.queues.list(topic):
            lost = lost_light_queue(store, topic, self._ranges(within))
            if lost is not None:
                yield lost

    def _ranges(self, within: OffsetRange) -> list[OffsetRange]:
        """Return ranges of files that may have messages of the window."""
        ranges: list[OffsetRange] = []
        for file in self._log.files:
            facts = self._facts.get(file)
            if within.stop <= file.start or file.end <= within.start:
                continue
            pieces = () if facts is None else facts.pieces
            ranges += [OffsetRange(*piece[:2]) for piece in pieces if self._may_hold(piece)]
            rest = file.start if facts is None else facts.stop
            if rest < file.end:
                ranges.append(OffsetRange(rest, file.end))
        return ranges

    def _may_hold(self, piece: TimedPiece) -> bool:
        return not piece.is_outside(self._begin, self._end)

    def _may_concern_window(self, lost: Finding) -> bool:
        """Return whether an unreadable range may have had messages of the window.

        The clock may have been set back there, so the messages around it bound its store times with a margin only.
        """
        if not self._scans:
            return True
        times = list(self._times_around(lost))
        return max(times) + _MARGIN_MS >= self._begin and min(times) - _MARGIN_MS <= self._end

    def _times_around(self, lost: Finding) -> Iterator[int]:
        pieces = [
            piece for facts in self._facts.values() for piece in (facts.pieces if facts else ())
        ]
        before = [piece for piece in pieces if piece.last >= 0 and piece.start < lost.start]
        after = [piece for piece in pieces if piece.last >= 0 and lost.stop < piece.stop]
        if not before:
            yield -_EVER
        elif before[-1].last < lost.start:
            yield self._time_at(before[-1].last, before[-1].least)
        else:
            yield before[-1].least
            yield before[-1].most
        if not after:
            yield _EVER
        elif after[0].start >= lost.stop:
            file = self._log.file_at(after[0].start)
            yield self._time_at(after[0].start + (file.gap if file else 0), after[0].most)
        else:
            yield after[0].least
            yield after[0].most

    def _time_at(self, physical_offset: int, otherwise: int) -> int:
        try:
            return self._log.locate(physical_offset).store_timestamp()
        except (MessageNotFoundError, CorruptMessageError):
            return otherwise

    def _missing(
        self, file: CommitLogFile, queues: tuple[StatedOffsets, ...], stop: int
    ) -> Iterator[Finding]:
        """Yield a finding for each requested queue that lacks entries for messages of a file before `stop`."""
        for topic, queue_id, first, last in queues:
            # A topic whose name cannot be a folder has no ConsumeQueue.
            if first < 0 or not self._takes_queue(topic, queue_id) or not is_folder_name(topic):
                continue
            try:
                queue = self._store.queues.queue(topic, queue_id)
                least, most = queue.min_queue_offset(file.start), queue.max_queue_offset()
            except MessageNotFoundError:
                folder = os.path.join(self._store.path, CONSUME_QUEUE_FOLDER, topic, str(queue_id))
                yield Finding(Kind.MISSING_QUEUE, folder, "the log has messages of this queue")
                continue
            if first < least and file.start >= self._log.min_offset:
                detail = f"the log has queue offset {first}, but its entries begin at {least}"
                yield Finding(Kind.MISSING_QUEUE_ENTRY, queue.folder, detail)
            if last >= most:
                yield from self._undispatched(file, topic, queue_id, last, stop)

    def _undispatched(
        self, file: CommitLogFile, topic: str, queue_id: int, last: int, stop: int
    ) -> Iterator[Finding]:
        """Yield a finding unless the newest messages are just being dispatched, or begin at or after `stop`."""
        try:
            is_over = self._store.check_later(topic, queue_id, stop)
        except FormatError as error:
            yield Finding.of_error(Kind.MISSING_QUEUE_ENTRY, error)
            return
        queue = self._store.queues.queue(topic, queue_id)
        most = queue.max_queue_offset()
        # If the queue has entries of later files, its messages state higher numbers than their places (`pull`).
        has_later = queue.min_queue_offset(file.end) < most
        is_searched = file == self._log.files[-1] and (is_over or self._store.is_live)
        if last >= most and not has_later and not is_searched:
            detail = f"the log has queue offset {last}, but its entries end at {most - 1}"
            yield Finding(Kind.MISSING_QUEUE_ENTRY, queue.folder, detail)


def _placed(log: CommitLogReader, problem: Finding) -> Finding:
    """Return a problem of a queue. If its entry leads outside the log, the place of its message is unknown."""
    offset = problem.physical_offset
    if offset is None or log.min_offset <= offset < log.files_end:
        return problem
    return replace(problem, physical_offset=None)


def lost_beside(store: MessageStore, topic: str, queue_id: int, span: range) -> list[Finding]:
    """Return findings if the entries directly before or after a range of queue offsets are lost.

    A search by time steps over lost entries, so their messages may belong to the window.
    """
    try:
        queue = store.queues.queue(topic, queue_id)
        least = queue.min_queue_offset(store.commit_log.min_offset)
        most = queue.max_queue_offset()
    except MessageNotFoundError:
        return []
    findings = []
    for number in (span.start - 1, span.stop):
        if least <= number < most:
            try:
                queue.entry(number)
            except LostEntriesError as error:
                findings.append(Finding.of_error(Kind.QUEUE_GAP, error))
            except MessageNotFoundError:  # A pre-blank entry, or it has expired.
                continue
    return list(dict.fromkeys(findings))
