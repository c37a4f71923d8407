"""ConsumeQueues and IndexFiles of a folder, compared with a log and cut back to what dispatch makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from reput.config import StoreConfig
from reput.files.disk import Disk
from reput.format.file_names import CONSUME_QUEUE_FOLDER, INDEX_FOLDER
from reput.index.reader import index_paths
from reput.index.writer import IndexFileWriter
from reput.log.dispatch_batch import Queue
from reput.log.files import CommitLogFile
from reput.log.reader import CommitLogReader
from reput.queues.writer import ConsumeQueueWriter, queue_folder
from reput.recovery.comparison import Comparison
from reput.recovery.index_files import IndexFiles
from reput.recovery.queue_files import QueueFiles
from reput.recovery.recovery_point import RecoveryPoint
from reput.recovery.report import RecoveryReport

_BEHIND_ALL = "~"  # behind every name of an IndexFile


class CutIndexes(NamedTuple):
    """What is left, to be appended to: the queues, and the last IndexFile if there is one."""

    queues: dict[Queue, ConsumeQueueWriter]
    last: IndexFileWriter | None


class FoundIndexes:
    """Those in `folder`: `queues` is what was found of the ConsumeQueues. What is wrong goes into the report.

    Queues of `batch_topics` are no ConsumeQueues.
    """

    def __init__(
        self,
        folder: Path,
        queues: dict[Queue, QueueFiles],
        config: StoreConfig,
        disk: Disk,
        report: RecoveryReport,
        batch_topics: frozenset[str] = frozenset(),
    ) -> None:
        self._batch_topics = batch_topics
        self._queues, self._config, self._disk, self._report = queues, config, disk, report
        self._index = IndexFiles(folder, config)
        self._begun: dict[Queue, int] = {}

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
        self, files: Sequence[CommitLogFile], known: RecoveryPoint | None, begin: int | None = None
    ) -> Comparison:
        """Compare them with the log to the report's `log_end`; sets where to dispatch from. Raises StoreAccessError.

        `files` are those of the log. The comparison begins at the recovery point, or at `begin` if that comes first.
        """
        report, index = self._report, self._index
        positions, number = {}, None
        start = report.log_begin
        if known is not None:
            start = max(known.end if begin is None else min(known.end, begin), report.log_begin)
            number = index.number(known.index_name, known.index_count)
            positions = {name: at for name, (at, _) in known.queues.items()}
            self._begun = {name: positions[name] for name in known.begun}
            if start < known.end:
                number = None if number is None else index.first_at(start, number)
                positions = {
                    name: self._queues[name].first_at(start, self._queues[name].first, at)
                    for name, at in positions.items()
                }
        compared = Comparison(
            files, start, report.log_end, self._config, self._queues, index, self._batch_topics
        )
        compared.run(positions, number)
        report.compared_from = min(start, report.log_end)
        report.queues_from, report.index_from = compared.queues_from, compared.index_from
        return compared

    def cut(self, compared: Comparison, log: CommitLogReader, redo_last: bool) -> CutIndexes:
        """Keep what was found right, durably.

        With `redo_last` the last message compared that has keys loses its items, or the last of all is dispatched
        again. Raises StoreAccessError.
        """
        queues = {}
        for name, found in self._queues.items():
            kept, durable = compared.kept_of_queue(name)
            is_begun = name in compared.queue_refused or self._begun.get(name) == kept
            log_begin = self._report.log_begin
            queues[name] = found.cut(kept, durable, log_begin, self._disk, is_begun)
        return CutIndexes(queues, self._cut_index(log, compared, redo_last))

    def _cut_index(
        self, log: CommitLogReader, compared: Comparison, redo_last: bool
    ) -> IndexFileWriter | None:
        report, index = self._report, self._index
        number = index.first_at(report.index_from, compared.index_end)
        if redo_last and number > compared.index_begin:
            report.index_from = max(index.offset(number - 1), report.log_begin)
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
    return CutIndexes(queues, IndexFileWriter(paths[-1], config, disk) if paths else None)
