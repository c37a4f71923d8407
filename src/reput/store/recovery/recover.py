"""Bringing a store into order when it is opened to be written: log, ConsumeQueues, IndexFiles, in this order.

Mirrors what `DefaultMessageStore.load` and `.recover` are for (tag rocketmq-all-4.9.3). The log ends where a broker
would end it; the indexes then have exactly one entry for each message, whatever was deleted, half-written, or ahead
of the log: from where they are known to be good (`known_good`) they are compared with the log, to its end, and
dispatched again from the first difference on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from reput.config import StoreConfig
from reput.files.disk import Disk
from reput.format.checkpoint import Checkpoint
from reput.format.file_names import (
    COMMIT_LOG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    INDEX_FOLDER,
    offset_file_name,
)
from reput.store.commit_log import CommitLog
from reput.store.commit_log_files import CommitLogFile
from reput.store.consume_queue import ConsumeQueue, queue_folder
from reput.store.dispatch import Dispatcher
from reput.store.dispatch_batch import Queue
from reput.store.health import Health
from reput.store.index_file_writer import IndexFileWriter
from reput.store.index_writer import IndexWriter
from reput.store.queues_writer import QueuesWriter
from reput.store.recovery.comparison import Comparison
from reput.store.recovery.index_files import IndexFiles
from reput.store.recovery.known_good import KNOWN_FILE, KnownGood, read_known_good
from reput.store.recovery.log import find_log_end, sync_log, truncate_log
from reput.store.recovery.queue_files import QueueFiles
from reput.store.recovery.report import RecoveryReport


class Recovered(NamedTuple):
    """The parts of a store that is in order.

    queue_offsets  what the next message of each queue gets
    """

    report: RecoveryReport
    queues: QueuesWriter
    index_files: IndexWriter
    dispatcher: Dispatcher
    queue_offsets: dict[tuple[str, int], int]


class Recovery:
    """Of one store: `files` is its log, empty for a new one; `queues` what was found of its ConsumeQueues."""

    def __init__(
        self,
        store: Path,
        files: list[CommitLogFile],
        queues: dict[Queue, QueueFiles],
        config: StoreConfig,
        disk: Disk,
        health: Health,
        checkpoint: Checkpoint,
        clock_ms: Callable[[], int],
    ) -> None:
        self._store, self._files, self._found, self._config = store, files, queues, config
        self._disk, self._health, self._checkpoint = disk, health, checkpoint
        self._clock_ms = clock_ms
        self._report = RecoveryReport()

    def run(self, is_clean: bool) -> Recovered:
        """Bring the store in order; `is_clean` if no `abort` was there. Raises StoreError, StoreAccessError."""
        report, disk = self._report, self._disk
        report.is_clean = is_clean
        log_begin = self._files[0].start if self._files else 0
        known, closed = read_known_good(self._store, self._config, log_begin, self._found)
        if known is not None and known.end < log_begin:  # nothing that it tells of is left
            known = None
        if known is not None and closed and is_clean and self._files:
            report.log_begin = log_begin
            return self._join_as_it_was(known)
        for folder in (COMMIT_LOG_FOLDER, CONSUME_QUEUE_FOLDER, INDEX_FOLDER):
            disk.make_folder(self._store / folder)
        files = self._files = self._files or [self._first_file()]
        end = find_log_end(self._store, files, self._checkpoint, report)
        index = IndexFiles(self._store, self._config)
        known = self._check_index(index, known)
        if (
            known is None or known.end > end
        ):  # it must not be believed once something else lies before its end
            disk.delete(self._store / KNOWN_FILE)
            disk.sync_folder(self._store)
        truncate_log(files, end, disk, report)
        sync_log(files, report.checked_from, disk)
        compared = self._compare(index, known)
        queues = {
            name: found.cut(*compared.kept_of_queue(name), report.log_begin, disk)
            for name, found in self._found.items()
        }
        last = self._cut_index(index, compared)
        return self._join(queues, last)

    def _check_index(self, index: IndexFiles, known: KnownGood | None) -> KnownGood | None:
        """Look at the items; what is known holds if its last item can still be there."""
        index.check(known.index_name if known else "")
        if known is None or index.number(known.index_name, known.index_count) is not None:
            self._report.notes += index.notes
            return known
        self._report.notes += index.notes
        index.check("")
        return None

    def _compare(self, index: IndexFiles, known: KnownGood | None) -> Comparison:
        report = self._report
        begin = max(known.end, report.log_begin) if known else report.log_begin
        compared = Comparison(self._files, begin, report.log_end, self._config, self._found, index)
        number = index.number(known.index_name, known.index_count) if known else None
        positions = {name: at for name, (at, _) in known.queues.items()} if known else {}
        compared.run(positions, number)
        report.compared_from = min(begin, report.log_end)
        report.queues_from, report.index_from = compared.queues_from, compared.index_from
        return compared

    def _cut_index(self, index: IndexFiles, compared: Comparison) -> IndexFileWriter | None:
        """Cut the IndexFiles, one message earlier where the last was perhaps half-written."""
        report, log = self._report, CommitLog(self._store)
        number = index.first_at(report.index_from, compared.index_end)
        if not report.is_clean and number > compared.index_begin:
            report.index_from = max(index.offset(number - 1), report.log_begin)
            number = index.first_at(report.index_from, number)
        last = index.cut(number, compared.index_begin, log, self._disk)
        log.close()
        return last

    def _join_as_it_was(self, known: KnownGood) -> Recovered:
        """Of a store that nobody has touched since it was closed in order."""
        report, folder = self._report, self._store / CONSUME_QUEUE_FOLDER
        report.log_end = report.checked_from = report.compared_from = known.end
        report.queues_from = report.index_from = known.end
        queues = {
            name: ConsumeQueue(
                queue_folder(folder, *name), self._config.queue_entries, position, end, self._disk
            )
            for name, (position, end) in known.queues.items()
        }
        last = None
        if known.index_name:
            path = self._store / INDEX_FOLDER / known.index_name
            last = IndexFileWriter(path, self._config, self._disk)
        return self._join(queues, last)

    def _join(self, queues: dict[Queue, ConsumeQueue], last: IndexFileWriter | None) -> Recovered:
        """Dispatch what the report says is to be dispatched again."""
        store, config, report = self._store, self._config, self._report
        writer = QueuesWriter(store / CONSUME_QUEUE_FOLDER, config, self._disk, queues)
        index = IndexWriter(
            store / INDEX_FOLDER, config, self._disk, self._clock_ms, last,
            self._checkpoint.index_msg_timestamp,
        )  # fmt: skip
        dispatcher = Dispatcher(
            store / COMMIT_LOG_FOLDER, config.commit_log_file_bytes, config, writer, index,
            self._health, min(report.queues_from, report.index_from), report.index_from,
        )  # fmt: skip
        dispatcher.dispatch(report.log_end)
        return Recovered(report, writer, index, dispatcher, writer.ends())

    def _first_file(self) -> CommitLogFile:
        folder, size = self._store / COMMIT_LOG_FOLDER, self._config.commit_log_file_bytes
        path = folder / offset_file_name(0)
        self._disk.map(path, size).close()
        self._disk.sync_folder(folder)
        return CommitLogFile(0, size, str(path))
