"""Bringing a store into order when it is opened to be written: log, ConsumeQueues, IndexFiles, in this order.

Mirrors what `DefaultMessageStore.load` and `.recover` are for (tag rocketmq-all-4.9.3). The log ends where a broker
would end it; the indexes then have exactly one entry for each message, whatever was deleted, half-written, or ahead
of the log. Nothing is changed before it is certain that the store can be gone on with.
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
from reput.store.commit_log_files import CommitLogFile
from reput.store.consume_queue import ConsumeQueue
from reput.store.dispatch import Dispatcher
from reput.store.dispatch_batch import Queue
from reput.store.health import Health
from reput.store.index_file_writer import IndexFileWriter
from reput.store.index_writer import IndexWriter
from reput.store.queues_writer import QueuesWriter
from reput.store.recovery.clean_end import (
    CLEAN_END_FILE,
    CleanEnd,
    open_last_index_file,
    open_queues,
    read_clean_end,
)
from reput.store.recovery.index import IndexRecovery
from reput.store.recovery.log import find_log_end, truncate_log
from reput.store.recovery.queues import find_queues, first_missing
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


def recover(
    store: Path,
    files: list[CommitLogFile],
    config: StoreConfig,
    disk: Disk,
    health: Health,
    checkpoint: Checkpoint,
    is_clean: bool,
    clock_ms: Callable[[], int],
) -> Recovered:
    """Bring the store in order; `files` is its log, empty for a new one. Raises StoreError, StoreAccessError."""
    report = RecoveryReport(is_clean=is_clean)
    joiner = _Joiner(store, config, disk, health, checkpoint, clock_ms)
    clean = read_clean_end(store) if is_clean and files else None
    disk.delete(store / CLEAN_END_FILE)
    disk.sync_folder(store)
    if clean is not None:
        report.log_begin = files[0].start
        return joiner.join_as_it_was(report, clean)
    for folder in (COMMIT_LOG_FOLDER, CONSUME_QUEUE_FOLDER, INDEX_FOLDER):
        disk.make_folder(store / folder)
    files = files or [_first_file(store / COMMIT_LOG_FOLDER, config, disk)]
    end = find_log_end(store, files, checkpoint, report)
    truncate_log(files, end, disk, report)
    found = find_queues(store, config)
    report.queues_from = first_missing(found, files, config, report)
    last, report.index_from = IndexRecovery(store, files, config, disk, report).run()
    report.index_from = max(report.index_from, report.log_begin)
    kept = {name: queue.cut(report.queues_from, disk) for name, queue in found.items()}
    return joiner.join(report, kept, last)


class _Joiner(NamedTuple):
    """What all parts of an open store are made with."""

    store: Path
    config: StoreConfig
    disk: Disk
    health: Health
    checkpoint: Checkpoint
    clock_ms: Callable[[], int]

    def join_as_it_was(self, report: RecoveryReport, clean: CleanEnd) -> Recovered:
        """Of a store that nobody has touched since it was closed in order."""
        end = clean.log_end
        report.log_end = report.checked_from = report.queues_from = report.index_from = end
        queues = open_queues(self.store, clean.queues, self.config, self.disk)
        last = open_last_index_file(self.store, self.config, self.disk)
        return self.join(report, queues, last)

    def join(
        self,
        report: RecoveryReport,
        kept: dict[Queue, ConsumeQueue],
        last: IndexFileWriter | None,
    ) -> Recovered:
        """Dispatch what the report says is to be dispatched again."""
        store, config = self.store, self.config
        queues = QueuesWriter(store / CONSUME_QUEUE_FOLDER, config, self.disk, kept)
        index = IndexWriter(
            store / INDEX_FOLDER, config, self.disk, self.clock_ms, last,
            self.checkpoint.index_msg_timestamp,
        )  # fmt: skip
        dispatcher = Dispatcher(
            store / COMMIT_LOG_FOLDER, config.commit_log_file_bytes, config, queues, index,
            self.health, min(report.queues_from, report.index_from), report.index_from,
        )  # fmt: skip
        dispatcher.dispatch(report.log_end)
        return Recovered(report, queues, index, dispatcher, queues.ends())


def _first_file(folder: Path, config: StoreConfig, disk: Disk) -> CommitLogFile:
    path = folder / offset_file_name(0)
    disk.map(path, config.commit_log_file_bytes).close()
    disk.sync_folder(folder)
    return CommitLogFile(0, config.commit_log_file_bytes, str(path))
