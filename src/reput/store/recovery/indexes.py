"""ConsumeQueues and IndexFiles of a folder, held against a log and cut back to what dispatch makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from reput.config import StoreConfig
from reput.files.disk import Disk
from reput.store.commit_log import CommitLog
from reput.store.commit_log_files import CommitLogFile
from reput.store.consume_queue import ConsumeQueue
from reput.store.dispatch_batch import Queue
from reput.store.index_file_writer import IndexFileWriter
from reput.store.recovery.comparison import Comparison
from reput.store.recovery.index_files import IndexFiles
from reput.store.recovery.known_good import KnownGood
from reput.store.recovery.queue_files import QueueFiles
from reput.store.recovery.report import RecoveryReport


class CutIndexes(NamedTuple):
    """What is left, to be written on: the queues, and the last IndexFile if there is one."""

    queues: dict[Queue, ConsumeQueue]
    last: IndexFileWriter | None


class FoundIndexes:
    """Those in `folder`: `queues` is what was found of the ConsumeQueues. What is wrong is noted in the report."""

    def __init__(
        self,
        folder: Path,
        queues: dict[Queue, QueueFiles],
        config: StoreConfig,
        disk: Disk,
        report: RecoveryReport,
    ) -> None:
        self._queues, self._config, self._disk, self._report = queues, config, disk, report
        self._index = IndexFiles(folder, config)

    def check(self, known: KnownGood | None) -> KnownGood | None:
        """Look at the items; what is known holds if its last item can still be there. Raises StoreAccessError."""
        index = self._index
        index.check(known.index_name if known else "")
        self._report.notes += index.notes
        if known is None or index.number(known.index_name, known.index_count) is not None:
            return known
        index.check("")
        return None

    def cut(
        self, files: list[CommitLogFile], log: CommitLog, known: KnownGood | None, redo_last: bool
    ) -> CutIndexes:
        """Keep what the messages before the report's `log_end` have, durably; sets where to dispatch from.

        `files` are those of `log`. With `redo_last` the last message with keys loses its items. Raises
        StoreAccessError.
        """
        compared = self._compare(files, known)
        queues = {
            name: found.cut(*compared.kept_of_queue(name), self._report.log_begin, self._disk)
            for name, found in self._queues.items()
        }
        return CutIndexes(queues, self._cut_index(log, compared, redo_last))

    def _compare(self, files: list[CommitLogFile], known: KnownGood | None) -> Comparison:
        report, index = self._report, self._index
        begin = max(known.end, report.log_begin) if known else report.log_begin
        compared = Comparison(files, begin, report.log_end, self._config, self._queues, index)
        number = index.number(known.index_name, known.index_count) if known else None
        positions = {name: at for name, (at, _) in known.queues.items()} if known else {}
        compared.run(positions, number)
        report.compared_from = min(begin, report.log_end)
        report.queues_from, report.index_from = compared.queues_from, compared.index_from
        return compared

    def _cut_index(
        self, log: CommitLog, compared: Comparison, redo_last: bool
    ) -> IndexFileWriter | None:
        report, index = self._report, self._index
        number = index.first_at(report.index_from, compared.index_end)
        if redo_last and number > compared.index_begin:
            report.index_from = max(index.offset(number - 1), report.log_begin)
            number = index.first_at(report.index_from, number)
        return index.cut(number, compared.index_begin, log, self._disk)
