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
from reput.store.consume_queue import ConsumeQueue
from reput.store.dispatch import Dispatcher
from reput.store.dispatch_batch import Queue
from reput.store.health import Health
from reput.store.index_file_writer import IndexFileWriter
from reput.store.index_writer import IndexWriter
from reput.store.queues_writer import QueuesWriter
from reput.store.recovery.indexes import FoundIndexes, as_they_were
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
        for folder in (COMMIT_LOG_FOLDER, CONSUME_QUEUE_FOLDER, INDEX_FOLDER):
            disk.make_folder(self._store / folder)  # one without files may be lost unnoticed
        if known is not None and closed and is_clean and self._files:
            report.log_begin = log_begin
            return self._join_as_it_was(known)
        files = self._files = self._files or [self._first_file()]
        end = find_log_end(self._store, files, self._checkpoint, report)
        indexes = FoundIndexes(self._store, self._found, self._config, disk, report)
        known = indexes.check(known)
        if (
            known is None or known.end > end
        ):  # it must not be believed once something else lies before its end
            disk.delete(self._store / KNOWN_FILE)
            disk.sync_folder(self._store)
        truncate_log(files, end, disk, report)
        sync_log(files, report.checked_from, disk)
        # Where it was not closed in order the last message was perhaps half-written.
        log = CommitLog(self._store)
        compared = indexes.compare(files, known)
        cut = indexes.cut(compared, log, redo_last=not is_clean)
        log.close()
        return self._join(cut.queues, cut.last)

    def _join_as_it_was(self, known: KnownGood) -> Recovered:
        """Of a store that nobody has touched since it was closed in order."""
        report = self._report
        report.log_end = report.checked_from = report.compared_from = known.end
        report.queues_from = report.index_from = known.end
        return self._join(*as_they_were(self._store, self._config, self._disk, known))

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
