"""ConsumeQueues and IndexFiles compared with what dispatch makes of the log.

The log is scanned as for dispatch. Each of its files is a piece of work of its own, for any thread; the pieces are
joined in the order of the log. Entries of ConsumeQueues are matched with messages by physical offset
(`queue_matching`); items of IndexFiles must be those that dispatch puts, one after the other. Entries and items that
lead into unreadable parts of the log are kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event, local

import numpy as np

from reput.compare.columns import in_ranges
from reput.compare.placement import Placement
from reput.config import StoreConfig
from reput.findings import Finding
from reput.format.file_names import is_folder_name
from reput.log.dispatch_batch import DispatchBatch, Queue
from reput.log.files import CommitLogFile
from reput.log.offset_range import OffsetRange, ranges_of
from reput.log.scan import FileScan, ScanBuffers
from reput.log.scan_mode import BROKER, DispatchRules
from reput.recovery.batch_queues import BatchComparison
from reput.recovery.index_files import RecoveredIndexFiles
from reput.recovery.queue_files import QueueFiles
from reput.recovery.queue_matching import KeptQueue, QueueMatching, QueuePart
from reput.recovery.queue_survey import QueueSurvey

_MOST_THREADS = 4


@dataclass
class ComparedPiece:
    """What comparing one range of the log found.

    start        physical offset at which it begins, a record
    index_begin, index_end  numbers of the items that are right
    queues       what it shows of each queue
    last         where its last message begins, or one before it; None where it has none
    index_wrong  physical offset of the first message whose items are not there, None where all are
    damage       what of it cannot be read
    elsewhere    ranges where records state another physical offset than theirs
    """

    start: int
    index_begin: int
    index_end: int
    queues: dict[Queue, QueuePart] = field(default_factory=dict)
    last: int | None = None
    index_wrong: int | None = None
    damage: list[Finding] = field(default_factory=list)
    elsewhere: list[OffsetRange] = field(default_factory=list)

    def unread(self) -> list[OffsetRange]:
        return ranges_of(self.damage)


class Comparison:
    """Compares the messages from `begin` to `end`, physical offsets; IndexFiles only where `queues` is None.

    queues                   what the log shows of each queue
    damage                   what of the log cannot be read
    index_from               physical offset of the first message without its items, or `end`
    index_begin, index_end   numbers of the items
    last_message             where the last message begins, or one before it; None where there is none
    """

    def __init__(
        self,
        files: Sequence[CommitLogFile],
        begin: int,
        end: int,
        config: StoreConfig,
        queues: dict[Queue, QueueFiles] | None,
        index: RecoveredIndexFiles,
        batches: BatchComparison,
    ) -> None:
        self._batches = batches
        self._files, self._begin, self._end = files, begin, end
        self._rules = DispatchRules.of(config)
        self._found, self._index = queues or {}, index
        self._has_queues = queues is not None
        self._matchings: dict[Queue, QueueMatching] = {}
        self._stop = Event()
        self._own = local()
        self.queues: dict[Queue, QueuePart] = {}
        self.damage: list[Finding] = []
        self.index_from = end
        self.index_begin = self.index_end = 0
        self.last_message: int | None = None

    def run(self, queue_begins: dict[Queue, int], index_begin: int | None) -> None:
        """Compare all entries of queues, or those from these positions on, and items from that number on.

        Raises StoreAccessError, StoreChangedError.
        """
        if index_begin is None:
            index_begin = self._index.first_at(self._begin, self._index.stop)
        self.index_begin = self.index_end = index_begin
        ranges = [
            (file, max(self._begin, file.start), min(self._end, file.end))
            for file in self._files
            if file.end > self._begin and file.start < self._end
        ]
        with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
            try:
                found = [(name, one) for name, one in self._found.items() if one.starts]
                surveys = pool.map(
                    lambda one: QueueSurvey(
                        one[1], queue_begins.get(one[0], one[1].first), self._end
                    ),
                    found,
                )
                for (name, _), survey in zip(found, surveys, strict=True):
                    self._add_survey(name, survey)
                self._join(pool.map(lambda one: self._compare(*one), ranges))
            finally:
                self._stop.set()
                pool.shutdown(cancel_futures=True)

    def _add_survey(self, name: Queue, survey: QueueSurvey) -> None:
        matching = self._matchings[name] = QueueMatching(name, survey)
        if not survey.is_ordered:  # expired messages are no more in the log
            part = self.queues[name] = QueuePart(0)
            matching.skip_to(part, self._begin, [OffsetRange(0, self._begin)])

    def matching(self, name: Queue) -> QueueMatching:
        return self._matchings.get(name) or QueueMatching(name, None)

    def has_expired(self, name: Queue) -> bool:
        """Whether a queue has entries of messages before those compared."""
        survey = self.matching(name).survey
        return survey is not None and survey.rank_at(self._begin, survey.begin) > survey.begin

    def kept(self) -> dict[Queue, KeptQueue]:
        """What stays of each queue that there is."""
        kept = {}
        for name in self._found:
            matching = self.matching(name)
            part = self.queues.setdefault(name, matching.begin(self._begin))
            kept[name] = matching.kept(part)
        return kept

    def _join(self, pieces: Iterator[ComparedPiece]) -> None:
        index_done = False
        for piece in pieces:
            self.last_message = self.last_message if piece.last is None else piece.last
            self.damage += piece.damage
            for name, part in piece.queues.items():
                if name in self.queues:
                    self.queues[name].add(part)
                else:
                    self.queues[name] = part
            if not index_done:
                index_done = self._join_index(piece)
            nothing_left = not self._matchings and (self.queues or not self._has_queues)
            if index_done and nothing_left and not self._batches.topics:
                return  # nothing is there that could differ

    def _join_index(self, piece: ComparedPiece) -> bool:
        """Whether something is wrong from here on."""
        if piece.index_begin != self.index_end:
            self.index_from = piece.start
            return True
        self.index_end = piece.index_end
        if piece.index_wrong is not None:
            self.index_from = piece.index_wrong
        return piece.index_wrong is not None

    def _compare(self, file: CommitLogFile, start: int, stop: int) -> ComparedPiece:
        if not hasattr(self._own, "buffers"):
            self._own.buffers = ScanBuffers()
        first_item = self.index_begin if start == self._begin else None
        if first_item is None:
            first_item = self._index.first_at(start, self._index.stop)
        piece = ComparedPiece(start, first_item, first_item)
        scan = FileScan(file, start, stop, BROKER, self._rules, buffers=self._own.buffers)
        begin = start
        for batch in scan.batches():
            # Where records do not lie where they say that they do, no offset of theirs is a place to begin at.
            scanned = OffsetRange(begin, scan.end.position)
            trusted = None if scan.misplaced else scanned
            piece.last = _place(int(batch.messages["physical_offset"][-1]), trusted, begin)
            piece.damage = scan.damage
            if self._has_queues:
                placed = Placement.of(batch.messages, scanned) if scan.misplaced else None
                self._compare_queues(batch, piece, scanned, placed)
            if piece.index_wrong is None:
                wrong = self._compare_index(batch, piece, scanned)
                piece.index_wrong = _place(wrong, trusted, begin)
            if self._stop.is_set():
                return piece
            begin = scan.end.position
        piece.damage = scan.damage.copy()
        if scan.end.unreadable:
            piece.damage.append(file.lost(scan.end.position, stop, scan.end.unreadable))
        self._skip_damage(piece, stop)
        return piece

    def _skip_damage(self, piece: ComparedPiece, stop: int) -> None:
        """Pass over entries and items that lead into what cannot be read, up to the end of the piece."""
        unread = piece.unread()
        if not (unread or piece.elsewhere):
            return
        for name, matching in self._matchings.items():
            if name not in piece.queues:
                piece.queues[name] = matching.begin(piece.start)
            matching.skip_to(piece.queues[name], stop, [*unread, *piece.elsewhere])
        if unread and piece.index_wrong is None:
            end = self._index.first_at(stop, self._index.stop)
            _, offsets = self._index.items(piece.index_end, end)
            inside = in_ranges(offsets, unread)
            if inside.all():
                piece.index_end = end

    def _compare_queues(
        self,
        batch: DispatchBatch,
        piece: ComparedPiece,
        scanned: OffsetRange,
        placed: Placement | None,
    ) -> None:
        if placed is not None:
            piece.elsewhere += placed.elsewhere
            self._batches.add_elsewhere(placed.elsewhere)
        entries = batch.queue_entries()
        bounds = entries.bounds.tolist()
        unread = piece.unread()
        for number, name in enumerate(batch.queues):
            place = slice(bounds[number], bounds[number + 1])
            if place.start == place.stop or not is_folder_name(name.topic):
                continue
            if name.topic in self._batches.topics:
                rows, stated = entries.rows[place], entries.queue_offset[place]
                if placed is not None:
                    rows, stated = rows[placed.is_good[rows]], stated[placed.is_good[rows]]
                self._batches.compare(name, batch, rows, stated)
                continue
            matching = self.matching(name)
            part = piece.queues.get(name)
            if part is None:
                part = piece.queues[name] = matching.begin(piece.start)
            matching.compare(
                part, batch, entries.rows[place], entries.queue_offset[place], scanned, unread,
                placed,
            )  # fmt: skip

    def _compare_index(
        self, batch: DispatchBatch, piece: ComparedPiece, scanned: OffsetRange
    ) -> int | None:
        """Physical offset of the first message whose items are not the next ones; None where all are."""
        offsets = batch.messages["physical_offset"][batch.key_row]
        count = self._index.matching(piece.index_end, batch.key_hash, offsets)
        unread = piece.unread()
        if count == len(offsets) or not unread:
            piece.index_end += count
            return int(offsets[count]) if count < len(offsets) else None
        end = self._index.first_at(scanned.stop, self._index.stop)
        hashes, there = self._index.items(piece.index_end, end)
        read = np.flatnonzero(~in_ranges(there, unread))
        least = min(len(read), len(offsets))
        same = (hashes[read[:least]] == batch.key_hash[:least]) & (
            there[read[:least]] == offsets[:least]
        )
        count = least if same.all() else int(np.argmin(same))
        if count == len(offsets) == len(read):
            piece.index_end = end
            return None
        piece.index_end += int(read[count]) if count < len(read) else len(there)
        return int(offsets[count]) if count < len(offsets) else None


def _place(wrong: int | None, trusted: OffsetRange | None, begin: int) -> int | None:
    if wrong is None or (trusted is not None and trusted.start <= wrong < trusted.stop):
        return wrong
    return begin
