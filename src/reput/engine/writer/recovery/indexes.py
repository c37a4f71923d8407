"""Compare ConsumeQueues and IndexFiles with a log, and cut them back to the entries that dispatch would write.

The log is scanned as for dispatch. Each log file is compared separately, so that several threads can share the work.
The results are joined in log order. Entries of ConsumeQueues are matched with messages by physical offset
(`queue_matching`). IndexFiles must have exactly the items that dispatch writes, in sequence. Entries and items that
lead into unreadable parts of the log are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, local
from typing import NamedTuple

import numpy as np

from reput.base import Finding, Kind, StoreConfig, usable_cpus
from reput.core import (
    CommitLogFile,
    CommitLogReader,
    ConsumeQueueWriter,
    DispatchBatch,
    DispatchRules,
    FileScan,
    IndexFileWriter,
    OffsetRange,
    Queue,
    ScanBuffers,
    ScanMode,
    index_paths,
    is_light,
    queue_folder,
)
from reput.engine.compare import Placement, in_ranges
from reput.engine.writer.recovery.batch_queues import BatchComparison, BatchSizes, batches_agree
from reput.engine.writer.recovery.index_files import RecoveredIndexFiles
from reput.engine.writer.recovery.queue_files import QueueFiles
from reput.engine.writer.recovery.queue_matching import (
    Count,
    KeptQueue,
    QueueMatching,
    QueuePart,
    out_of_order,
)
from reput.engine.writer.recovery.queue_survey import QueueSurvey
from reput.engine.writer.recovery.recovery_point import (
    RecoveryPoint,
    expired_unindexed,
    read_recovery_point,
)
from reput.engine.writer.recovery.report import RecoveryReport
from reput.format.commit_log import MIN_RECORD_BYTES, read_size_and_magic, record_crc_ok
from reput.format.file_names import (
    BATCH_QUEUE_FOLDER,
    CONSUME_QUEUE_FOLDER,
    INDEX_FOLDER,
    RECOVERY_POINT_FILE,
    is_folder_name,
)
from reput.io import Disk, FileReader

_MOST_THREADS = 4
_BEHIND_ALL = "~"  # This text sorts after the name of every IndexFile, which has only digits.


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
    queues: dict[Queue, QueuePart] = field(default_factory=dict)
    last: int | None = None
    index_wrong: int | None = None
    damage: list[Finding] = field(default_factory=list)
    elsewhere: list[OffsetRange] = field(default_factory=list)

    def unread(self) -> list[OffsetRange]:
        return OffsetRange.of(self.damage)


class Comparison:
    """The comparison of the messages from physical offset `begin` to `end` with the indexes.

    If `queues` is None, only IndexFiles are compared. `skipped` are readable messages that count as damaged.

    queues        matched entries by queue
    damage        unreadable ranges of the log
    index_from    physical offset of the first message with missing items, or `end`
    index_begin   number of the first compared item
    index_end     number after the last correct item
    last_message  physical offset of the last message, or of an earlier one if records near the end state wrong offsets;
                  None without messages
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
        skipped: Sequence[Finding] = (),
    ) -> None:
        self._batches, self._skipped = batches, skipped
        self._files, self._begin, self._end = files, begin, end
        self._rules = DispatchRules.of(config)
        self._files_of, self._index = queues or {}, index
        self._has_queues = queues is not None
        self._matchings: dict[Queue, QueueMatching] = {}
        self._stop = Event()
        self._thread = local()
        self.queues: dict[Queue, QueuePart] = {}
        self.damage: list[Finding] = []
        self.index_from = end
        self.index_begin = self.index_end = 0
        self.last_message: int | None = None

    def run(self, queue_begins: dict[Queue, int], index_begin: int | None) -> None:
        """Compare the queues and the IndexFiles with the log.

        Queues are compared from the positions in `queue_begins` on, and items from number `index_begin` on.

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
        with ThreadPoolExecutor(min(_MOST_THREADS, usable_cpus())) as pool:
            try:
                queues = [(name, one) for name, one in self._files_of.items() if one.starts]
                surveys = pool.map(
                    lambda one: QueueSurvey(
                        one[1], queue_begins.get(one[0], one[1].first), self._end
                    ),
                    queues,
                )
                for (name, _), survey in zip(queues, surveys, strict=True):
                    self._add_survey(name, survey)
                self._join(pool.map(lambda one: self._compare(*one), ranges))
            finally:
                # Stop the other threads at their next batch. Otherwise they would finish their files, which takes
                # seconds per GiB.
                self._stop.set()
                pool.shutdown(cancel_futures=True)

    def _add_survey(self, name: Queue, survey: QueueSurvey) -> None:
        matching = self._matchings[name] = QueueMatching(name, survey)
        if not survey.is_ordered:
            # If the entries of a queue are out of order, QueueSurvey also finds entries of messages before `_begin`.
            # These messages are not read, for example because they have expired. So keep their entries without a
            # comparison.
            part = self.queues[name] = QueuePart(0)
            matching.skip_to(part, self._begin, [OffsetRange(0, self._begin)])

    def matching(self, name: Queue) -> QueueMatching:
        return self._matchings.get(name) or QueueMatching(name, None)

    def has_expired(self, name: Queue) -> bool:
        """Return whether a queue has entries of messages that lie before the compared range of the log.

        Such messages may have expired.
        """
        survey = self.matching(name).survey
        return survey is not None and survey.rank_at(self._begin, survey.begin) > survey.begin

    def without_entry(self) -> list[int]:
        """Return the physical offsets of messages that have no entry.

        Of the messages after the last entry of a queue, return only the first: after a crash they are many, and a queue
        that exists only because of a damaged name has only one.
        """
        offsets: set[int] = set()
        for part in self.queues.values():
            offsets.update(() if part.tail is None else (part.tail.begin,))
            for missing in part.missing:
                offsets.update(missing.offsets.tolist())
        return sorted(offsets)

    def outcomes(self) -> dict[Queue, KeptQueue]:
        """Return the kept entries of each queue."""
        outcomes = {}
        for name in self._files_of:
            matching = self.matching(name)
            part = self.queues.setdefault(name, matching.begin(self._begin))
            outcomes[name] = matching.outcome(part)
        return outcomes

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
            is_finished = not self._matchings and (self.queues or not self._has_queues)
            if index_done and is_finished and not self._batches.topics:
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

    def _compare(self, file: CommitLogFile, start: int, stop: int) -> ComparedPiece:
        if not hasattr(self._thread, "buffers"):
            self._thread.buffers = ScanBuffers()
        first_item = self.index_begin if start == self._begin else None
        if first_item is None:
            first_item = self._index.first_at(start, self._index.stop)
        piece = ComparedPiece(start, first_item, first_item)
        # Scan as dispatch does: messages that dispatch skips must not count as missing here.
        scan = FileScan(
            file, start, stop, ScanMode.BROKER, self._rules, buffers=self._thread.buffers
        )
        begin = start
        skipped = [lost for lost in self._skipped if start <= lost.start < stop]
        offsets = frozenset(lost.start for lost in skipped)
        for batch in scan.batches():
            batch = batch.without(offsets)
            # If records of this batch state wrong physical offsets, these offsets cannot show where dispatch must
            # start. In that case, dispatch starts at the beginning of the batch.
            scanned = OffsetRange(begin, scan.end.position)
            trusted = None if scan.misplaced else scanned
            piece.last = _place(int(batch.messages["physical_offset"][-1]), trusted, begin)
            piece.damage = [*scan.damage, *skipped] if skipped else scan.damage
            if self._has_queues:
                placed = Placement.of(batch.messages, scanned) if scan.misplaced else None
                self._compare_queues(batch, piece, scanned, placed)
            if piece.index_wrong is None:
                wrong = self._compare_index(batch, piece, scanned)
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
                rows, queue_offsets = entries.rows[place], entries.queue_offset[place]
                if placed is not None:
                    rows, queue_offsets = (
                        rows[placed.is_good[rows]],
                        queue_offsets[placed.is_good[rows]],
                    )
                self._batches.compare(name, batch, rows, queue_offsets)
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
        """Compare the next items of the index with the keys of a batch.

        Return the physical offset of the first message with a wrong or missing item, or None if all items are right.
        """
        offsets = batch.messages["physical_offset"][batch.key_row]
        count = self._index.matching(piece.index_end, batch.key_hash, offsets)
        unread = piece.unread()
        if count == len(offsets) or not unread:
            piece.index_end += count
            return int(offsets[count]) if count < len(offsets) else None
        end = self._index.first_at(scanned.stop, self._index.stop)
        hashes, item_offsets = self._index.items(piece.index_end, end)
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


def _damaged(files: Sequence[CommitLogFile], offsets: Sequence[int]) -> list[Finding]:
    """Return a finding for each record at these physical offsets that does not match the CRC that it states."""
    findings = []
    for offset in offsets:
        file = next((file for file in files if file.start <= offset < file.end), None)
        if file is None:
            continue
        with FileReader(file.path) as reader:
            position = offset - file.start
            head = reader.read(position, min(MIN_RECORD_BYTES, file.size - position))
            size = read_size_and_magic(head, 0)[0] if len(head) == MIN_RECORD_BYTES else 0
            if not MIN_RECORD_BYTES <= size <= file.size - position:
                continue
            if not record_crc_ok(reader.read(position, size)):
                detail = (
                    "the record does not match its CRC (__CRC32#), so its message gets no entry"
                )
                findings.append(file.lost(offset, offset + size, detail, Kind.RECORD_CRC))
    return findings


def _place(wrong: int | None, trusted: OffsetRange | None, begin: int) -> int | None:
    if wrong is None or (trusted is not None and trusted.start <= wrong < trusted.stop):
        return wrong
    return begin


def trusted_point(
    folder: Path,
    queues: dict[Queue, QueueFiles],
    config: StoreConfig,
    report: RecoveryReport,
    batch_topics: frozenset[str],
    first: CommitLogFile | None,
    *,
    name: str = RECOVERY_POINT_FILE,
    may_be_touched: bool = True,
) -> tuple[RecoveryPoint | None, bool]:
    """Return the recovery point of the indexes in `folder`, and whether nothing has changed since a clean shutdown.

    The point is None if nothing shows that the indexes are complete up to it. If messages of the log expired before
    they were indexed, the report gets a finding.

    Args:
        folder: The folder with the indexes.
        queues: Their ConsumeQueues.
        config: Sizes of files.
        report: States where the log begins.
        batch_topics: Topics with batch queues.
        first: First file of the log; None if messages of the log cannot have expired.
        name: Name of the file with the recovery point.
        may_be_touched: See `read_recovery_point`.

    Raises StoreAccessError, and StoreError for wrong file sizes.
    """
    point, is_unchanged = read_recovery_point(
        folder, config, report.log_begin, queues, name, may_be_touched
    )
    if first is not None:
        report.expired_unindexed = expired_unindexed(first, point, queues.values())
    # If all messages before the recovery point have expired, the point says nothing about the remaining messages.
    if point is not None and point.end < report.log_begin:
        point = None
    if point is not None and not batches_agree(folder, batch_topics, config, point, is_unchanged):
        point = None
    return point, is_unchanged


class CutIndexes(NamedTuple):
    """The remaining queues, and the last IndexFile (None if no IndexFile remains), open for appending."""

    queues: dict[Queue, ConsumeQueueWriter]
    last: IndexFileWriter | None


class FoundIndexes:
    """The ConsumeQueues (`queues`) and IndexFiles in `folder`. Problems are added to the report.

    `log` is the store with the log, if it is not `folder`. Queues of `batch_topics` are not ConsumeQueues. `is_own`
    states that no other program writes the queues. In this case, a queue whose entries lead to no message is deleted,
    because nobody needs it. Without `has_files`, only IndexFiles are compared, because the queues have another form.
    """

    def __init__(
        self,
        folder: Path,
        queues: dict[Queue, QueueFiles],
        config: StoreConfig,
        disk: Disk,
        report: RecoveryReport,
        batch_topics: frozenset[str] = frozenset(),
        *,
        is_own: bool = False,
        has_files: bool = True,
        log: Path | None = None,
    ) -> None:
        self._log = log or folder
        self._has_files = has_files
        self._is_own = is_own
        self._batch_topics = batch_topics
        self._queues, self._config, self._disk, self._report = queues, config, disk, report
        self._folder, self._index = folder, RecoveredIndexFiles(folder, config)
        self._begun: dict[Queue, int] = {}
        self._positions: dict[Queue, int] = {}
        self._outcomes: dict[Queue, KeptQueue] = {}
        self._refused: dict[Queue, int] = {}
        self.skipped: frozenset[int] = frozenset()

    @staticmethod
    def reopen_unchanged(
        folder: Path, config: StoreConfig, disk: Disk, point: RecoveryPoint
    ) -> CutIndexes:
        """Open indexes that have not changed since `point` was written at a clean shutdown."""
        queues = {
            name: ConsumeQueueWriter(
                queue_folder(folder / CONSUME_QUEUE_FOLDER, *name), config.queue_entries, *end, disk
            )
            for name, end in point.queues.items()
        }
        paths = index_paths(folder / INDEX_FOLDER)
        for name, size in point.refused.items():
            if name in queues:
                queues[name].refused_bytes = size
        return CutIndexes(queues, IndexFileWriter(paths[-1], config, disk) if paths else None)

    def after_rebuild(self, end: int) -> RecoveryPoint:
        """Return the recovery point after a rebuild.

        The rebuilt indexes must be durable, and cover all messages before `end`.
        """
        queues = {}
        for name, files in self._queues.items():
            position = files.written
            if (last := files.end_before(position)) >= 0:
                queues[name] = position, last
        begun = frozenset(
            name for name, (at, _) in queues.items() if at in self._queues[name].starts
        )
        for file in reversed(self._index.files):
            if file.count > 1:
                return RecoveryPoint(end, queues, file.path.name, file.count, begun)
        return RecoveryPoint(end, queues, begun=begun)

    def check(
        self, point: RecoveryPoint | None, is_unchanged: bool = False
    ) -> RecoveryPoint | None:
        """Check the items. Return `point`, or None if the last item that `point` covers is missing.

        If nothing has changed since a clean shutdown (`is_unchanged`), only the headers are checked. Raises
        StoreAccessError.
        """
        index = self._index
        index.check("" if point is None else _BEHIND_ALL if is_unchanged else point.index_name)
        self._report.notes += index.notes
        if point is None or index.number(point.index_name, point.index_count) is not None:
            return point
        # The recovery point does not match these files, so check all of them.
        index.check("")
        return None

    def compare(
        self,
        files: Sequence[CommitLogFile],
        point: RecoveryPoint | None,
        begin: int | None = None,
        *,
        redo_last: bool,
        skips_damaged: bool = False,
    ) -> None:
        """Compare the indexes with the log up to the report's `log_end`, and set where dispatch starts.

        No file is changed. Raises StoreError, StoreAccessError.

        Args:
            files: The files of the log.
            point: The recovery point, where the comparison begins.
            begin: Physical offset at which the comparison begins, if it must begin before the recovery point.
            redo_last: Dispatch again the last compared message that has keys, and drop its present index items.
            skips_damaged: Do not dispatch a message that has no entry and does not match the CRC of its record.
        """
        report, index = self._report, self._index
        positions, number = {}, None
        start = report.log_begin
        if point is not None:
            # The log can end before the recovery point, for example in an older copy of the log.
            start = min(point.end if begin is None else begin, point.end, report.log_end)
            start = max(start, report.log_begin)
            number = index.number(point.index_name, point.index_count)
            positions = {name: at for name, (at, _) in point.queues.items()}
            self._begun = {name: positions[name] for name in point.begun}
            self._refused = point.refused
            if start < point.end:
                number = None if number is None else index.first_at(start, number)
                positions = {
                    name: self._queues[name].first_at(start, self._queues[name].first, at)
                    for name, at in positions.items()
                }
        self._positions, self._redo_last = positions, redo_last
        comparison = self._run(files, start, number)
        if skips_damaged and (damaged := _damaged(files, comparison.without_entry())):
            self.skipped = frozenset(lost.start for lost in damaged)
            comparison = self._run(files, start, number, damaged)
        self._outcomes = comparison.outcomes()
        if self._is_own:
            self._drop_foreign(comparison)
        report.compared_from = min(start, report.log_end)
        report.index_from = comparison.index_from
        tails = [
            part.tail for name, part in comparison.queues.items() if name not in self._outcomes
        ]
        tails += [outcome.tail for outcome in self._outcomes.values()]
        report.queues_from = min(
            (tail.begin for tail in tails if tail is not None), default=report.log_end
        )
        self.batches.finish(OffsetRange.of(comparison.damage), redo_last)
        self._report_queues(comparison)
        self._report_batches()

    def _run(
        self,
        files: Sequence[CommitLogFile],
        start: int,
        number: int | None,
        skipped: Sequence[Finding] = (),
    ) -> Comparison:
        self.batches = BatchComparison(
            self._folder,
            self._batch_topics if self._has_files else frozenset(),
            self._config,
            start,
            self._report.log_end,
        )
        comparison = self._comparison = Comparison(
            files, start, self._report.log_end, self._config,
            self._queues if self._has_files else None, self._index, self.batches, skipped,
        )  # fmt: skip
        comparison.run(self._positions, number)
        return comparison

    def _drop_foreign(self, comparison: Comparison) -> None:
        """Drop all entries of a queue if none of them leads to a message or into unreadable bytes."""
        for name, outcome in self._outcomes.items():
            part, begin = comparison.queues[name], self._positions.get(name, 0)
            if (
                outcome.end > begin
                and not (part.right or part.unreadable)
                and not comparison.has_expired(name)
            ):
                self._outcomes[name] = outcome._replace(end=begin, begin=None)

    def _report_queues(self, comparison: Comparison) -> None:
        report = self._report
        report.damage += comparison.damage
        for name, part in sorted(comparison.queues.items()):
            unplaced = part.unplaced
            if is_light(name.topic):
                continue
            outcome = self._outcomes.get(name)
            tail = part.tail if outcome is None else outcome.tail
            if tail is not None:
                end = 0 if outcome is None else outcome.end
                # Dispatch drops a message whose queue offset already has an entry, so report such messages.
                if 0 < tail.first < end:
                    unplaced.add(1, tail.begin)
                elif tail.fall is not None:
                    unplaced.add(1, tail.fall)
            if unplaced.count:
                report.damage.append(self._out_of_order(CONSUME_QUEUE_FOLDER, name, unplaced))
        parts = comparison.queues.values()
        report.entries_written += sum(outcome.written for outcome in self._outcomes.values())
        report.entries_kept += sum(part.unreadable for part in parts)
        self._report_moved([part.moved.count for part in parts])

    def _report_moved(self, counts: Sequence[int]) -> None:
        if moved := sum(counts):
            queues = sum(count > 0 for count in counts)
            self._report.notes.append(
                f"{moved:,} messages of {queues:,} queues state a queue offset that differs from their entry's; "
                "the entries keep their numbers"
            )

    def _report_batches(self) -> None:
        report = self._report
        with closing(BatchSizes(self._log)) as sizes:
            outcomes = self.batches.outcomes(sizes)
        self._report_moved([outcome.moved for outcome in outcomes.values()])
        for name, outcome in outcomes.items():
            report.entries_written += outcome.written
            report.entries_kept += outcome.unreadable
            if outcome.unplaced.count:
                report.damage.append(self._out_of_order(BATCH_QUEUE_FOLDER, name, outcome.unplaced))

    def _out_of_order(self, kind: str, name: Queue, unplaced: Count) -> Finding:
        return out_of_order(str(queue_folder(self._folder / kind, *name)), name, unplaced)

    def cut(self, log: CommitLogReader) -> CutIndexes:
        """Cut each index after the last entry to keep, and write the entries that are missing or wrong before it.

        Everything that is kept becomes durable.

        Raises StoreAccessError.
        """
        queues, disk, log_begin = {}, self._disk, self._report.log_begin
        for name, files in self._queues.items():
            outcome = self._outcomes[name]
            if outcome.begin is not None:
                files.delete_before(outcome.begin, disk)
            if len(outcome.numbers):
                files.write(outcome.numbers, outcome.words, disk)
            durable = self._positions.get(name, files.first)
            is_begun = self._begun.get(name) == outcome.end
            queues[name] = files.cut(outcome.end, durable, log_begin, disk, is_begun)
            if outcome.end == self._positions.get(name):
                queues[name].refused_bytes = self._refused.get(name, queues[name].refused_bytes)
        return CutIndexes(queues, self._cut_index(log, self._comparison))

    def _cut_index(self, log: CommitLogReader, comparison: Comparison) -> IndexFileWriter | None:
        report, index, redo_last = self._report, self._index, self._redo_last
        # An IndexFile has no marker for a half-written item, so the last message's items are removed and written again.
        number = index.first_at(report.index_from, comparison.index_end)
        if redo_last and number > comparison.index_begin:
            last = index.offset(number - 1)
            if not any(lost.start <= last < lost.stop for lost in comparison.damage):
                report.index_from = max(last, report.log_begin)
                number = index.first_at(report.index_from, number)
        # A crash may have left an empty IndexFile that was created for the last message. Dispatch this message again.
        elif redo_last and comparison.last_message is not None:
            report.index_from = min(report.index_from, comparison.last_message)
        return index.cut(number, comparison.index_begin, log, self._disk, is_dirty=redo_last)
