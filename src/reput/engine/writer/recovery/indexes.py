"""Compare ConsumeQueues and IndexFiles with a log, and cut them back to the entries that dispatch would write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from reput import core
from reput.base import Finding, Kind, StoreConfig, counted
from reput.engine.writer.recovery import recovery_point
from reput.engine.writer.recovery.batch_queues import BatchSizes, ComparedBatches, batches_agree
from reput.engine.writer.recovery.comparison import ComparedFiles, ComparedQueues, Comparison
from reput.engine.writer.recovery.index_files import RecoveredIndexFiles
from reput.engine.writer.recovery.queue_files import QueueFiles
from reput.engine.writer.recovery.report import RecoveryReport
from reput.format.commit_log import MIN_RECORD_BYTES, read_size_and_magic, record_crc_ok
from reput.format.file_names import CONSUME_QUEUE_FOLDER, INDEX_FOLDER, RECOVERY_POINT_FILE
from reput.io import Disk, FileReader

_BEHIND_ALL = "~"  # This text sorts after the name of every IndexFile, which has only digits.


def _damaged(files: Sequence[core.CommitLogFile], offsets: Sequence[int]) -> list[Finding]:
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


def trusted_point(
    folder: Path,
    queues: dict[core.Queue, QueueFiles],
    config: StoreConfig,
    report: RecoveryReport,
    batch_topics: frozenset[str],
    first: core.CommitLogFile | None,
    *,
    name: str = RECOVERY_POINT_FILE,
    may_be_touched: bool = True,
) -> tuple[recovery_point.RecoveryPoint | None, bool]:
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
    point, is_unchanged = recovery_point.read_recovery_point(
        folder, config, report.log_begin, queues, name, may_be_touched
    )
    if first is not None:
        report.expired_unindexed = recovery_point.expired_unindexed(first, point, queues.values())
    # If all messages before the recovery point have expired, the point says nothing about the remaining messages.
    if point is not None and point.end < report.log_begin:
        point = None
    if point is not None and not batches_agree(folder, batch_topics, config, point, is_unchanged):
        point = None
    return point, is_unchanged


class CutIndexes(NamedTuple):
    """The remaining queues, and the last IndexFile (None if no IndexFile remains), open for appending.

    `unopened` has the ends of queues that are opened when a message arrives (see ConsumeQueueSetWriter).
    """

    queues: dict[core.Queue, core.ConsumeQueueWriter]
    last: core.IndexFileWriter | None
    unopened: Mapping[core.Queue, tuple[int, int]] = {}


class FoundIndexes:
    """The ConsumeQueues (`queues`) and IndexFiles in `folder`. Problems are added to the report.

    `log` is the store with the log, if it is not `folder`. Queues of `batch_topics` are not ConsumeQueues. `is_own`
    states that no other program writes the queues. In this case, a queue whose entries lead to no message is deleted,
    because nobody needs it. Without `has_files`, only IndexFiles are compared, because the queues have another form.
    """

    def __init__(
        self,
        folder: Path,
        queues: dict[core.Queue, QueueFiles],
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
        self._begun: dict[core.Queue, int] = {}
        self._positions: dict[core.Queue, int] = {}
        self._refused: dict[core.Queue, int] = {}
        self.skipped: frozenset[int] = frozenset()

    @staticmethod
    def reopen_unchanged(
        folder: Path, config: StoreConfig, disk: Disk, point: recovery_point.RecoveryPoint
    ) -> CutIndexes:
        """Open indexes that have not changed since `point` was written at a clean shutdown."""
        queues, unopened = {}, point.queues.copy()
        for name, size in point.refused.items():
            if (end := unopened.pop(name, None)) is not None:
                queue = core.queue_folder(folder / CONSUME_QUEUE_FOLDER, *name)
                queues[name] = core.ConsumeQueueWriter(queue, config.queue_entries, *end, disk)
                queues[name].refused_bytes = size
        paths = core.index_paths(folder / INDEX_FOLDER)
        last = core.IndexFileWriter(paths[-1], config, disk) if paths else None
        return CutIndexes(queues, last, unopened)

    def after_rebuild(self, end: int) -> recovery_point.RecoveryPoint:
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
                return recovery_point.RecoveryPoint(end, queues, file.path.name, file.count, begun)
        return recovery_point.RecoveryPoint(end, queues, begun=begun)

    def check(
        self, point: recovery_point.RecoveryPoint | None, is_unchanged: bool = False
    ) -> recovery_point.RecoveryPoint | None:
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
        files: Sequence[core.CommitLogFile],
        point: recovery_point.RecoveryPoint | None,
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
        with closing(BatchSizes(self._log)) as sizes:
            comparison = self._run(files, start, number, sizes)
            if skips_damaged and (damaged := _damaged(files, self._compared.without_entry())):
                self.skipped = frozenset(lost.start for lost in damaged)
                comparison = self._run(files, start, number, sizes, damaged)
            if self._is_own:
                self._compared.drop_foreign()
            report.compared_from = min(start, report.log_end)
            report.index_from = comparison.index_from
            report.queues_from = self._compared.dispatch_from
            report.damage += comparison.damage
            for queues in (self._compared, self.batches):
                self._report_queues(queues)

    def _run(
        self,
        files: Sequence[core.CommitLogFile],
        start: int,
        number: int | None,
        sizes: BatchSizes,
        skipped: Sequence[Finding] = (),
    ) -> Comparison:
        topics = self._batch_topics if self._has_files else frozenset()
        end = self._report.log_end
        queues = self._queues if self._has_files else {}
        self._compared = ComparedFiles(queues, self._positions, start, end)
        self.batches = ComparedBatches(
            self._folder, topics, self._config, start, end, sizes, redo_last=self._redo_last
        )
        forms = [
            *([self.batches] if topics else []),
            *([self._compared] if self._has_files else []),
        ]
        comparison = self._comparison = Comparison(
            files, start, end, core.DispatchRules.of(self._config), forms, self._index, skipped
        )
        comparison.run(number)
        return comparison

    def _report_queues(self, queues: ComparedQueues) -> None:
        report, outcomes = self._report, queues.outcomes()
        report.damage += queues.findings(self._folder)
        report.entries_written += sum(outcome.written for outcome in outcomes.values())
        report.entries_kept += sum(part.unreadable for part in queues.parts.values())
        self._report_moved([part.moved.count for part in queues.parts.values()])

    def _report_moved(self, counts: Sequence[int]) -> None:
        if moved := sum(counts):
            queues = sum(count > 0 for count in counts)
            self._report.notes.append(
                f"{counted(moved, 'message')} of {counted(queues, 'queue')} with another queue offset than the "
                "entry's; "
                "entries keep their numbers"
            )

    def cut(self, log: core.CommitLogReader) -> CutIndexes:
        """Cut each index after the last entry to keep, and write the entries that are missing or wrong before it.

        Everything that is kept becomes durable.

        Raises StoreAccessError.
        """
        queues, disk, log_begin = {}, self._disk, self._report.log_begin
        outcomes = self._compared.outcomes()
        for name, files in self._queues.items():
            outcome = outcomes[name]
            if outcome.begin is not None:
                files.delete_before(outcome.begin, disk)
            if len(outcome.numbers):
                files.write(outcome.numbers, outcome.entries, disk)
            durable = self._positions.get(name, files.first)
            is_begun = self._begun.get(name) == outcome.end
            queues[name] = files.cut(outcome.end, durable, log_begin, disk, is_begun)
            if outcome.end == self._positions.get(name):
                queues[name].refused_bytes = self._refused.get(name, queues[name].refused_bytes)
        return CutIndexes(queues, self._cut_index(log, self._comparison))

    def _cut_index(
        self, log: core.CommitLogReader, comparison: Comparison
    ) -> core.IndexFileWriter | None:
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
