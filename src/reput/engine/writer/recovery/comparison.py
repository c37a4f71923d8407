"""Compare queues and IndexFiles with a log.

The log is scanned as for dispatch. Each log file is compared separately, so that several threads can share the work.
The results are joined in log order. A form of queues supplies its entries (`ComparedQueues`), which are matched with
messages by physical offset (`queue_matching`). IndexFiles must have exactly the items that dispatch writes, in
sequence. Entries and items that lead into unreadable parts of the log are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, local

import numpy as np

from reput import core
from reput.base import Finding, usable_cpus
from reput.engine.compare import Placement, in_ranges
from reput.engine.writer.recovery.index_files import RecoveredIndexFiles
from reput.engine.writer.recovery.queue_files import QueueFiles
from reput.engine.writer.recovery.queue_matching import (
    Count,
    KeptQueue,
    NumberedMatching,
    PlacedMatching,
    QueueMatching,
    QueuePart,
    out_of_order,
)
from reput.engine.writer.recovery.queue_survey import QueueSurvey, RankedEntries
from reput.format.file_names import CONSUME_QUEUE_FOLDER, is_folder_name

_MOST_THREADS = 4


class ComparedQueues:
    """The queues of one form while they are compared with the log. A subclass finds their entries.

    folder     name of the folder with the queues
    begin, log_end  physical offsets between which the log is compared
    topics     topics whose queues have this form; None for all topics that no other form has
    matchings  matchers of the queues with entries
    parts      results by queue
    """

    folder = ""

    def __init__(self, begin: int, log_end: int, topics: frozenset[str] | None = None) -> None:
        self.begin, self.log_end, self.topics = begin, log_end, topics
        self.matchings: dict[core.Queue, QueueMatching] = {}
        self.parts: dict[core.Queue, QueuePart] = {}
        self._outcomes: dict[core.Queue, KeptQueue] = {}

    def names(self) -> Collection[core.Queue]:
        """Return the queues that have files or entries."""
        raise NotImplementedError

    def survey(self, name: core.Queue) -> RankedEntries | None:
        """Return the plausible entries of one of these queues; None if it has no entries.

        Called from any thread. Raises StoreAccessError.
        """
        raise NotImplementedError

    def matching(self, name: core.Queue, survey: RankedEntries | None) -> QueueMatching:
        """Return a matcher of a queue with these entries."""
        return NumberedMatching(name, survey)

    def add(self, name: core.Queue, survey: RankedEntries) -> QueueMatching:
        """Start the comparison of a queue with entries."""
        matching = self.matchings[name] = self.matching(name, survey)
        self.parts[name] = matching.start(self.begin)
        return matching

    def join(self, name: core.Queue, part: QueuePart) -> None:
        """Add the result for the next log file."""
        if name in self.parts:
            self.parts[name].add(part)
        else:
            self.parts[name] = part

    @property
    def is_finished(self) -> bool:
        """Return whether later messages cannot change where dispatch starts."""
        return self.topics is None and not self.matchings and bool(self.parts)

    def outcomes(self) -> dict[core.Queue, KeptQueue]:
        """Return the kept entries of each queue that has files, after the whole log was compared."""
        if not self._outcomes:
            for name in self.names():
                matching = self.matchings.get(name) or self.matching(name, None)
                part = self.parts.setdefault(name, QueuePart(0))
                self._outcomes[name] = matching.outcome(part)
        return self._outcomes

    def findings(self, store: Path) -> list[Finding]:
        """Return a finding for each queue with messages that have no entry and get none. The queues lie in `store`."""
        return [
            out_of_order(str(core.queue_folder(store / self.folder, *name)), name, unplaced)
            for name, part in sorted(self.parts.items())
            if (unplaced := self.unplaced(name, part)).count
        ]

    def unplaced(self, name: core.Queue, part: QueuePart) -> Count:
        """Return the messages of a queue that have no entry and get none, for a finding."""
        return part.unplaced

    @property
    def dispatch_from(self) -> int:
        """Return the physical offset of the first message to dispatch, or the end of the log."""
        outcomes = self.outcomes()
        tails = [part.tail for name, part in self.parts.items() if name not in outcomes]
        tails += [outcome.tail for outcome in outcomes.values()]
        return min((tail.begin for tail in tails if tail is not None), default=self.log_end)


class ComparedFiles(ComparedQueues):
    """ConsumeQueues, compared with the log from the positions `positions` on."""

    folder = CONSUME_QUEUE_FOLDER

    def __init__(
        self,
        files: dict[core.Queue, QueueFiles],
        positions: dict[core.Queue, int],
        begin: int,
        log_end: int,
    ) -> None:
        super().__init__(begin, log_end)
        self._files, self._positions = files, positions

    def names(self) -> Collection[core.Queue]:
        """See ComparedQueues."""
        return self._files

    def survey(self, name: core.Queue) -> RankedEntries | None:
        """See ComparedQueues."""
        files = self._files[name]
        if not files.starts:
            return None
        return QueueSurvey(files, self._positions.get(name, files.first), self.log_end)

    def matching(self, name: core.Queue, survey: RankedEntries | None) -> QueueMatching:
        """See ComparedQueues."""
        return PlacedMatching(name, survey)

    def unplaced(self, name: core.Queue, part: QueuePart) -> Count:
        """See ComparedQueues. Adds messages that dispatch will drop, because their queue offset has an entry."""
        if core.is_light(name.topic):
            return Count()
        outcome = self.outcomes().get(name)
        tail = part.tail if outcome is None else outcome.tail
        if tail is not None:
            if 0 < tail.first < (0 if outcome is None else outcome.end):
                part.unplaced.add(1, tail.begin)
            elif tail.fall is not None:
                part.unplaced.add(1, tail.fall)
        return part.unplaced

    def without_entry(self) -> list[int]:
        """Return the physical offsets of messages that have no entry.

        Of the messages after the last entry of a queue, return only the first: after a crash they are many, and a queue
        that exists only because of a damaged name has only one.
        """
        offsets: set[int] = set()
        for part in self.parts.values():
            offsets.update(() if part.tail is None else (part.tail.begin,))
            for missing in part.missing:
                offsets.update(missing.offsets.tolist())
        return sorted(offsets)

    def drop_foreign(self) -> None:
        """Drop all entries of a queue if none of them leads to a message or into unreadable bytes.

        A queue with entries of messages before the compared range keeps them, because they may have expired.
        """
        outcomes = self.outcomes()
        for name, outcome in outcomes.items():
            part, position = self.parts[name], self._positions.get(name, 0)
            matching = self.matchings.get(name)
            is_foreign = outcome.end > position and not (part.right or part.unreadable)
            if is_foreign and (matching is None or not matching.has_before(self.begin)):
                outcomes[name] = outcome._replace(end=position, begin=None)


@dataclass
class ComparedPiece:
    """The result of comparing one range of the log.

    start        physical offset of its first record
    index_begin  number of the first item of its messages
    index_end    number after the last correct item
    queues       matched entries by queue
    last         physical offset of its last message; None without messages. If records near the end state wrong
                 offsets, the physical offset of an earlier record
    index_wrong  physical offset of the first message with missing items, or None if all items are right
    damage       its unreadable ranges
    elsewhere    ranges where records state a wrong physical offset
    """

    start: int
    index_begin: int
    index_end: int
    queues: dict[core.Queue, QueuePart] = field(default_factory=dict)
    last: int | None = None
    index_wrong: int | None = None
    damage: list[Finding] = field(default_factory=list)
    elsewhere: list[core.OffsetRange] = field(default_factory=list)

    def unread(self) -> list[core.OffsetRange]:
        return core.OffsetRange.of(self.damage)


class Comparison:
    """The comparison of the messages from physical offset `begin` to `end` with queues and IndexFiles.

    Without `index`, only queues are compared. `skipped` are readable messages that count as damaged.

    damage        unreadable ranges of the log
    index_from    physical offset of the first message with missing items, or `end`
    index_begin   number of the first compared item
    index_end     number after the last correct item
    last_message  physical offset of the last message, or of an earlier one if records near the end state wrong offsets;
                  None without messages
    """

    def __init__(
        self,
        files: Sequence[core.CommitLogFile],
        begin: int,
        end: int,
        rules: core.DispatchRules,
        queues: Sequence[ComparedQueues],
        index: RecoveredIndexFiles | None,
        skipped: Sequence[Finding] = (),
    ) -> None:
        self._skipped, self._rules = skipped, rules
        self._files, self._begin, self._end = files, begin, end
        self._forms, self._index = queues, index
        self._of_topic = {topic: form for form in queues for topic in form.topics or ()}
        self._matchings: dict[core.Queue, QueueMatching] = {}
        self._stop = Event()
        self._thread = local()
        self.damage: list[Finding] = []
        self.index_from = end
        self.index_begin = self.index_end = 0
        self.last_message: int | None = None

    def run(self, index_begin: int | None = None) -> None:
        """Compare the queues and the IndexFiles with the log. Items are compared from number `index_begin` on.

        Raises StoreAccessError, StoreChangedError.
        """
        if index_begin is None:
            index_begin = self._first_item(self._begin)
        self.index_begin = self.index_end = index_begin
        ranges = [
            (file, max(self._begin, file.start), min(self._end, file.end))
            for file in self._files
            if file.end > self._begin and file.start < self._end
        ]
        with ThreadPoolExecutor(min(_MOST_THREADS, usable_cpus())) as pool:
            try:
                for form in self._forms:
                    names = list(form.names())
                    for name, survey in zip(names, pool.map(form.survey, names), strict=True):
                        if survey is not None:
                            self._matchings[name] = form.add(name, survey)
                self._join(pool.map(lambda one: self._compare(*one), ranges))
            finally:
                # Stop the other threads at their next batch. Otherwise they would finish their files, which takes
                # seconds per GiB.
                self._stop.set()
                pool.shutdown(cancel_futures=True)

    def _first_item(self, physical_offset: int) -> int:
        return 0 if self._index is None else self._index.first_at(physical_offset, self._index.stop)

    def _form(self, name: core.Queue) -> ComparedQueues:
        # The last form has the topics that no other form has.
        return self._of_topic.get(name.topic, self._forms[-1])

    def _matching(self, name: core.Queue) -> QueueMatching:
        return self._matchings.get(name) or self._form(name).matching(name, None)

    def _join(self, pieces: Iterator[ComparedPiece]) -> None:
        index_done = self._index is None
        for piece in pieces:
            self.last_message = self.last_message if piece.last is None else piece.last
            self.damage += piece.damage
            for name, part in piece.queues.items():
                self._form(name).join(name, part)
            if not index_done:
                index_done = self._join_index(piece)
            if index_done and all(form.is_finished for form in self._forms):
                return  # The comparison of the index is finished, and there are no queues. Skip the rest of the log.

    def _join_index(self, piece: ComparedPiece) -> bool:
        """Add the result for the items of the next range. Return whether one of these items is wrong or missing.

        If so, the index ends before this item, and dispatch adds the later items again in sequence.
        """
        # The index has additional items between the last compared item and the first item of this range.
        if piece.index_begin != self.index_end:
            self.index_from = piece.start
            return True
        self.index_end = piece.index_end
        if piece.index_wrong is not None:
            self.index_from = piece.index_wrong
        return piece.index_wrong is not None

    def _compare(self, file: core.CommitLogFile, start: int, stop: int) -> ComparedPiece:
        if not hasattr(self._thread, "buffers"):
            self._thread.buffers = core.ScanBuffers()
        first_item = self.index_begin if start == self._begin else self._first_item(start)
        piece = ComparedPiece(start, first_item, first_item)
        # Scan as dispatch does: messages that dispatch skips must not count as missing here.
        scan = core.FileScan(
            file, start, stop, core.ScanMode.BROKER, self._rules, buffers=self._thread.buffers
        )
        begin = start
        skipped = [lost for lost in self._skipped if start <= lost.start < stop]
        offsets = frozenset(lost.start for lost in skipped)
        for batch in scan.batches():
            batch = batch.without(offsets)
            # If records of this batch state wrong physical offsets, these offsets cannot show where dispatch must
            # start. In that case, dispatch starts at the beginning of the batch.
            scanned = core.OffsetRange(begin, scan.end.position)
            trusted = None if scan.misplaced else scanned
            piece.last = _place(int(batch.messages["physical_offset"][-1]), trusted, begin)
            piece.damage = [*scan.damage, *skipped] if skipped else scan.damage
            if self._forms:
                placed = Placement.of(batch.messages, scanned) if scan.misplaced else None
                self._compare_queues(batch, piece, scanned, placed)
            if self._index is not None and piece.index_wrong is None:
                wrong = self._compare_index(self._index, batch, piece, scanned)
                piece.index_wrong = _place(wrong, trusted, begin)
            if self._stop.is_set():
                return piece
            begin = scan.end.position
        piece.damage = sorted([*scan.damage, *skipped], key=lambda lost: lost.start)
        if scan.end.unreadable:
            piece.damage.append(file.lost(scan.end.position, stop, scan.end.unreadable))
        self._skip_damage(piece, stop)
        return piece

    def _skip_damage(self, piece: ComparedPiece, stop: int) -> None:
        """Skip entries and items that lead into unreadable bytes of a piece of the log. The piece ends at `stop`."""
        unread = piece.unread()
        if not (unread or piece.elsewhere):
            return
        for name, matching in self._matchings.items():
            if name not in piece.queues:
                piece.queues[name] = matching.begin(piece.start)
            matching.skip_to(piece.queues[name], stop, [*unread, *piece.elsewhere])
        if unread and self._index is not None and piece.index_wrong is None:
            end = self._first_item(stop)
            _, offsets = self._index.items(piece.index_end, end)
            inside = in_ranges(offsets, unread)
            if inside.all():
                piece.index_end = end

    def _compare_queues(
        self,
        batch: core.DispatchBatch,
        piece: ComparedPiece,
        scanned: core.OffsetRange,
        placed: Placement | None,
    ) -> None:
        if placed is not None:
            piece.elsewhere += placed.elsewhere
        unread = [*piece.unread(), *piece.elsewhere]
        for entries in batch.by_queue():
            name = entries.queue
            if not is_folder_name(name.topic):
                continue
            matching = self._matching(name)
            part = piece.queues.get(name)
            if part is None:
                part = piece.queues[name] = matching.begin(piece.start)
            matching.compare(part, batch, entries, scanned, unread, placed)

    def _compare_index(
        self,
        index: RecoveredIndexFiles,
        batch: core.DispatchBatch,
        piece: ComparedPiece,
        scanned: core.OffsetRange,
    ) -> int | None:
        """Compare the next items of the index with the keys of a batch.

        Return the physical offset of the first message with a wrong or missing item, or None if all items are right.
        """
        offsets = batch.messages["physical_offset"][batch.key_row]
        count = index.matching(piece.index_end, batch.key_hash, offsets)
        unread = piece.unread()
        if count == len(offsets) or not unread:
            piece.index_end += count
            return int(offsets[count]) if count < len(offsets) else None
        end = self._first_item(scanned.stop)
        hashes, item_offsets = index.items(piece.index_end, end)
        # Items of unreadable messages are kept. The other items must be in the order of the messages.
        read = np.flatnonzero(~in_ranges(item_offsets, unread))
        least = min(len(read), len(offsets))
        matches = (hashes[read[:least]] == batch.key_hash[:least]) & (
            item_offsets[read[:least]] == offsets[:least]
        )
        count = least if matches.all() else int(np.argmin(matches))
        if count == len(offsets) == len(read):
            piece.index_end = end
            return None
        piece.index_end += int(read[count]) if count < len(read) else len(item_offsets)
        return int(offsets[count]) if count < len(offsets) else None


def _place(wrong: int | None, trusted: core.OffsetRange | None, begin: int) -> int | None:
    if wrong is None or (trusted is not None and trusted.start <= wrong < trusted.stop):
        return wrong
    return begin


class OwnQueues(ComparedQueues):
    """All queues of a store in one form, which `MatchedRecovery` recovers."""

    def hold(self, name: core.Queue, kept: KeptQueue) -> None:
        """Replace the entries of a queue by these entries, durably. Raises StoreAccessError."""
        raise NotImplementedError

    def writer(self) -> core.QueueSetWriter:
        """Return a writer that appends to the queues."""
        raise NotImplementedError


class MatchedRecovery(core.QueueRecovery):
    """The recovery of all queues of a store in another form than ConsumeQueues.

    Args:
        store: Folder with the queues and the log.
        rules: Which messages have entries.
        queues: Returns the queues, to be compared between two physical offsets.
    """

    def __init__(
        self, store: Path, rules: core.DispatchRules, queues: Callable[[int, int], OwnQueues]
    ) -> None:
        self._store, self._rules, self._open = store, rules, queues
        self._queues: OwnQueues | None = None

    def look(self, files: Sequence[core.CommitLogFile], log_end: int) -> list[Finding]:
        """Match the entries with the log. Return a finding for each queue that has no place for some messages.

        Raises StoreAccessError, StoreChangedError.
        """
        queues = self._queues = self._open(files[0].start if files else 0, log_end)
        Comparison(files, queues.begin, log_end, self._rules, [queues], None).run()
        return queues.findings(self._store)

    def run(self, log_begin: int, log_end: int) -> core.RecoveredQueues:
        """Write the kept entries, and open a writer. Raises StoreAccessError, StoreChangedError."""
        if self._queues is None:
            self.look(core.StoreLog(self._store).list().files, log_end)
        assert self._queues is not None
        for name, kept in self._queues.outcomes().items():
            self._queues.hold(name, kept)
        return core.RecoveredQueues(
            self._queues.writer(), self._rules, max(self._queues.dispatch_from, log_begin)
        )
