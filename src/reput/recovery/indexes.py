"""ConsumeQueues and IndexFiles of a folder, compared with a log and cut back to what dispatch makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from reput.config import StoreConfig
from reput.files.disk import Disk
from reput.findings import Finding
from reput.format.file_names import BATCH_QUEUE_FOLDER, CONSUME_QUEUE_FOLDER, INDEX_FOLDER
from reput.index.reader import index_paths
from reput.index.writer import IndexFileWriter
from reput.log.dispatch_batch import Queue
from reput.log.files import CommitLogFile
from reput.log.offset_range import ranges_of
from reput.log.reader import CommitLogReader
from reput.queues.kinds import is_light, queue_folder
from reput.queues.writer import ConsumeQueueWriter
from reput.recovery.batch_queues import BatchComparison, BatchSizes
from reput.recovery.comparison import Comparison
from reput.recovery.index_files import RecoveredIndexFiles
from reput.recovery.queue_files import QueueFiles
from reput.recovery.queue_matching import Count, KeptQueue, out_of_order
from reput.recovery.recovery_point import RecoveryPoint
from reput.recovery.report import RecoveryReport

_BEHIND_ALL = "~"  # behind every name of an IndexFile


class CutIndexes(NamedTuple):
    """What is left, to be appended to: the queues, and the last IndexFile if there is one."""

    queues: dict[Queue, ConsumeQueueWriter]
    last: IndexFileWriter | None


class FoundIndexes:
    """Those in `folder`: `queues` is what was found of the ConsumeQueues. What is wrong goes into the report.

    `log` is the store that has the log, where that is another.

    Queues of `batch_topics` are no ConsumeQueues. Where nobody else writes them (`is_own`), a queue that has no entry
    of a message goes.
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
        in_rocksdb: bool = False,
        log: Path | None = None,
    ) -> None:
        self._log = log or folder
        self._in_rocksdb = in_rocksdb
        self._is_own = is_own
        self._batch_topics = batch_topics
        self._queues, self._config, self._disk, self._report = queues, config, disk, report
        self._folder, self._index = folder, RecoveredIndexFiles(folder, config)
        self._begun: dict[Queue, int] = {}
        self._positions: dict[Queue, int] = {}
        self._kept: dict[Queue, KeptQueue] = {}
        self._refused: dict[Queue, int] = {}

    def after_rebuild(self, end: int) -> RecoveryPoint:
        """The recovery point of indexes that a rebuild has just written, durably, of the messages before `end`."""
        queues = {}
        for name, found in self._queues.items():
            position = found.written
            if (last := found.end_before(position)) >= 0:
                queues[name] = position, last
        begun = frozenset(
            name for name, (at, _) in queues.items() if at in self._queues[name].starts
        )
        for file in reversed(self._index.files):
            if file.count > 1:
                return RecoveryPoint(end, queues, file.path.name, file.count, begun)
        return RecoveryPoint(end, queues, begun=begun)

    def check(self, known: RecoveryPoint | None, closed: bool = False) -> RecoveryPoint | None:
        """Check the items; a recovery point is valid if its last item can still be there. Raises StoreAccessError.

        After a clean shutdown without a change since (`closed`) the headers are enough.
        """
        index = self._index
        index.check("" if known is None else _BEHIND_ALL if closed else known.index_name)
        self._report.notes += index.notes
        if known is None or index.number(known.index_name, known.index_count) is not None:
            return known
        index.check("")
        return None

    def compare(
        self,
        files: Sequence[CommitLogFile],
        known: RecoveryPoint | None,
        begin: int | None = None,
        *,
        redo_last: bool,
    ) -> None:
        """Compare them with the log to the report's `log_end`; sets where to dispatch from. Changes nothing.

        `files` are those of the log. The comparison begins at the recovery point, or at `begin` if that comes first.
        With `redo_last` the last message compared that has keys loses its items, or the last of all is dispatched
        again.
        Raises StoreError, StoreAccessError.
        """
        report, index = self._report, self._index
        positions, number = {}, None
        start = report.log_begin
        if known is not None:
            start = min(known.end if begin is None else begin, known.end, report.log_end)
            start = max(start, report.log_begin)
            number = index.number(known.index_name, known.index_count)
            positions = {name: at for name, (at, _) in known.queues.items()}
            self._begun = {name: positions[name] for name in known.begun}
            self._refused = known.refused
            if start < known.end:
                number = None if number is None else index.first_at(start, number)
                positions = {
                    name: self._queues[name].first_at(start, self._queues[name].first, at)
                    for name, at in positions.items()
                }
        self._positions, self._redo_last = positions, redo_last
        self.batches = BatchComparison(
            self._folder,
            frozenset() if self._in_rocksdb else self._batch_topics,
            self._config,
            start,
            report.log_end,
        )
        compared = self._compared = Comparison(
            files, start, report.log_end, self._config,
            None if self._in_rocksdb else self._queues, index, self.batches,
        )  # fmt: skip
        compared.run(positions, number)
        self._kept = compared.kept()
        if self._is_own:
            self._drop_foreign(compared)
        report.compared_from = min(start, report.log_end)
        report.index_from = compared.index_from
        tails = [part.tail for name, part in compared.queues.items() if name not in self._kept]
        tails += [kept.tail for kept in self._kept.values()]
        report.queues_from = min(
            (tail.begin for tail in tails if tail is not None), default=report.log_end
        )
        self.batches.finish(ranges_of(compared.damage), redo_last)
        self._report_queues(compared)
        self._report_batches()

    def _drop_foreign(self, compared: Comparison) -> None:
        for name, kept in self._kept.items():
            part, begin = compared.queues[name], self._positions.get(name, 0)
            if (
                kept.end > begin
                and not (part.right or part.kept)
                and not compared.has_expired(name)
            ):
                self._kept[name] = kept._replace(end=begin, begin=None)

    def _report_queues(self, compared: Comparison) -> None:
        report = self._report
        report.damage += compared.damage
        for name, part in sorted(compared.queues.items()):
            unplaced = part.unplaced
            if is_light(name.topic):
                continue
            kept = self._kept.get(name)
            tail = part.tail if kept is None else kept.tail
            if tail is not None:
                end = 0 if kept is None else kept.end
                if 0 < tail.first < end:
                    unplaced.add(1, tail.begin)
                elif tail.fall is not None:
                    unplaced.add(1, tail.fall)
            if unplaced.count:
                report.damage.append(self._out_of_order(CONSUME_QUEUE_FOLDER, name, unplaced))
        parts = compared.queues.values()
        report.entries_written += sum(kept.written for kept in self._kept.values())
        report.entries_kept += sum(part.kept for part in parts)
        self._report_moved([part.moved.count for part in parts])

    def _report_moved(self, counts: Sequence[int]) -> None:
        if moved := sum(counts):
            queues = sum(count > 0 for count in counts)
            self._report.notes.append(
                f"{moved:,} messages of {queues:,} queues state another queue offset than their entry has; "
                "the entries stay where they are"
            )

    def _report_batches(self) -> None:
        report = self._report
        with closing(BatchSizes(self._log)) as sizes:
            found = self.batches.kept(sizes)
        self._report_moved([kept.moved for kept in found.values()])
        for name, kept in found.items():
            report.entries_written += kept.written
            report.entries_kept += kept.kept
            if kept.unplaced.count:
                report.damage.append(self._out_of_order(BATCH_QUEUE_FOLDER, name, kept.unplaced))

    def _out_of_order(self, kind: str, name: Queue, unplaced: Count) -> Finding:
        return out_of_order(str(queue_folder(self._folder / kind, *name)), name, unplaced)

    def cut(self, log: CommitLogReader) -> CutIndexes:
        """Keep what is right, durably, and write the entries that are missing before the last.

        Raises StoreAccessError.
        """
        queues, disk, log_begin = {}, self._disk, self._report.log_begin
        for name, found in self._queues.items():
            kept = self._kept[name]
            if kept.begin is not None:
                found.delete_before(kept.begin, disk)
            if len(kept.numbers):
                found.write(kept.numbers, kept.words, disk)
            durable = self._positions.get(name, found.first)
            is_begun = self._begun.get(name) == kept.end
            queues[name] = found.cut(kept.end, durable, log_begin, disk, is_begun)
            if kept.end == self._positions.get(name):
                queues[name].refused_bytes = self._refused.get(name, queues[name].refused_bytes)
        return CutIndexes(queues, self._cut_index(log, self._compared))

    def _cut_index(self, log: CommitLogReader, compared: Comparison) -> IndexFileWriter | None:
        report, index, redo_last = self._report, self._index, self._redo_last
        number = index.first_at(report.index_from, compared.index_end)
        if redo_last and number > compared.index_begin:
            last = index.offset(number - 1)
            if not any(lost.start <= last < lost.stop for lost in compared.damage):
                report.index_from = max(last, report.log_begin)
                number = index.first_at(report.index_from, number)
        elif redo_last and compared.last_message is not None:  # it may have begun the next file
            report.index_from = min(report.index_from, compared.last_message)
        return index.cut(number, compared.index_begin, log, self._disk, is_dirty=redo_last)


def reopen_unchanged(
    folder: Path, config: StoreConfig, disk: Disk, known: RecoveryPoint
) -> CutIndexes:
    """Indexes that nobody has touched since `known` was written at a clean shutdown."""
    queues = {
        name: ConsumeQueueWriter(
            queue_folder(folder / CONSUME_QUEUE_FOLDER, *name), config.queue_entries, *end, disk
        )
        for name, end in known.queues.items()
    }
    paths = index_paths(folder / INDEX_FOLDER)
    for name, size in known.refused.items():
        if name in queues:
            queues[name].refused_bytes = size
    return CutIndexes(queues, IndexFileWriter(paths[-1], config, disk) if paths else None)
