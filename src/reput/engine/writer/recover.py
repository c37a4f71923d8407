"""Recover a store that is opened for writing: log, ConsumeQueues, IndexFiles, in this order.

This replaces `DefaultMessageStore.load` and `.recover` (tag rocketmq-all-4.9.3). The log ends where a broker would end
it. After recovery, the indexes have exactly one entry for each message, even if index files were deleted or partly
written, or had entries beyond the end of the log. Recovery compares the indexes with the log from the recovery point
(`recovery_point`) to the log's end. Missing entries are dispatched again. Existing entries of messages keep their queue
offsets (`compare.placement`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from reput.base import Kind, StoreConfig
from reput.core import (
    FILE_FORM,
    CommitLogFile,
    CommitLogReader,
    ConsumeQueueSetWriter,
    DispatchRules,
    IndexFileSetWriter,
    OffsetRange,
    Queue,
    QueueForm,
    QueueSetWriter,
    RecoveredQueues,
    StoreLog,
    facts_of,
)
from reput.engine.writer.dispatch import DispatchService
from reput.engine.writer.recovery.batch_queues import recover_batch_queues
from reput.engine.writer.recovery.cut_end import (
    REASONS,
    CutEnd,
    cut_reason,
    find_cut_end,
    keep_cut_end,
    refusal,
)
from reput.engine.writer.recovery.extended_queues import ExtendedQueueFiles
from reput.engine.writer.recovery.indexes import CutIndexes, FoundIndexes, trusted_point
from reput.engine.writer.recovery.log import find_log_end, sync_log, truncate_log
from reput.engine.writer.recovery.queue_files import QueueFiles
from reput.engine.writer.recovery.recovery_point import RecoveryPoint, delete_recovery_point
from reput.engine.writer.recovery.report import RecoveryReport
from reput.engine.writer.store_checks import can_salvage
from reput.engine.writer.survey import survey_of
from reput.engine.writer.threads import Health
from reput.errors import StoreError
from reput.format.checkpoint import Checkpoint
from reput.format.file_names import (
    COMMIT_LOG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    EXTENSION_FOLDER,
    INDEX_FOLDER,
    offset_file_name,
)
from reput.io import Disk


class Recovered(NamedTuple):
    """The parts of a recovered store.

    queue_offsets  the next queue offset of each queue
    """

    report: RecoveryReport
    queues: QueueSetWriter
    index_files: IndexFileSetWriter
    dispatcher: DispatchService
    queue_offsets: dict[tuple[str, int], int]


class Recovery:
    """The recovery of one store.

    `files` are the files of its log, none for a new store; `queues` are its ConsumeQueues. With `is_extended`, the
    queues have extension files. `form` has all queues. If these are not files, the form recovers them. With
    `as_broker`, the log ends where a broker ends it, even if readable messages follow.
    """

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
        batch_topics: frozenset[str] = frozenset(),
        form: QueueForm = FILE_FORM,
        is_extended: bool = False,
        as_broker: bool = False,
    ) -> None:
        self._as_broker = as_broker
        self._cut: CutEnd | None = None
        self._other = form.recovery(store, config, batch_topics) if form is not FILE_FORM else None
        self._recovered: RecoveredQueues | None = None
        self._is_extended = is_extended
        self._batch_topics = batch_topics
        self._store, self._files, self._queues, self._config = store, files, queues, config
        self._disk, self._health, self._checkpoint = disk, health, checkpoint
        self._clock_ms = clock_ms
        self._report = RecoveryReport()

    def look(self, is_clean: bool) -> None:
        """Find the necessary changes, without making them. `is_clean`: the store has no file `abort`.

        Raises:
            StoreError: A part of the log that a starting broker reads is damaged, and the broker would not cut it off.
            StoreAccessError: A file cannot be read.
        """
        report = self._report
        report.is_clean = is_clean
        report.log_begin = self._files[0].start if self._files else 0
        point, is_unchanged = trusted_point(
            self._store, self._queues, self._config, report, self._batch_topics,
            self._files[0] if self._files else None,
        )  # fmt: skip
        is_whole = self._other is None or facts_of(self._store).queue_form is not None
        # A point of another form says nothing of these queues. In files, it even lists none of them.
        if point is not None and (point.database == "") != (self._other is None):
            point = None
        has_changed = not (is_unchanged and is_whole and is_clean)
        self._is_unchanged = point is not None and not has_changed and bool(self._files)
        self._point = point
        # After a clean shutdown, a valid recovery point states the ends of all indexes, so no index is read.
        if self._files and not self._is_unchanged:
            self._look_at_log()

    def _look_at_log(self) -> None:
        report = self._report
        facts = survey_of(self._store, self._config)
        report.queues_end = facts.known_offset.physical_offset
        point = replace(facts.dispatch_point(is_clean=report.is_clean), checkpoint=self._checkpoint)
        report.log_end = find_log_end(self._store, self._files, point, report)
        self._cut = self._cut_end()
        self._indexes = FoundIndexes(
            self._store, self._queues, self._config, self._disk, report, self._batch_topics,
            has_files=self._other is None,
        )  # fmt: skip
        self._point = self._indexes.check(self._point)
        self._indexes.compare(
            self._files,
            self._point,
            redo_last=not report.is_clean,
            skips_damaged=not self._as_broker,
        )
        if self._other is not None:
            report.damage += self._other.look(self._files, report.log_end)
        # A message with a wrong record CRC has a valid body. A broker dispatches it, and does not end the log there.
        wrong = [
            lost for lost in report.damage
            if lost.start >= report.checked_from and lost.kind is not Kind.RECORD_CRC
        ]  # fmt: skip
        if wrong:
            raise StoreError(
                f"{wrong[0]}; a starting broker would read the log from {report.checked_from} on, and could "
                "give messages new queue offsets; no file was changed; repair the store with reput repair"
            )

    def _cut_end(self) -> CutEnd | None:
        """Return the readable messages that recovery cuts off. Raises StoreError if it must not cut them off."""
        report = self._report
        cut = find_cut_end(self._files, report.log_end, self._queues)
        if cut is None:
            return None
        point = -1 if self._point is None else self._point.end
        reason = cut_reason(
            self._store,
            self._files,
            cut,
            as_broker=self._as_broker,
            is_clean=report.is_clean,
            durable=point,
        )
        if reason is None:
            raise refusal(self._store, cut, can_salvage(facts_of(self._store)))
        report.notes.append(f"{REASONS[reason]}: removed the last {cut}")
        return cut

    def run(self) -> Recovered:
        """Recover the store. Raises StoreAccessError."""
        try:
            return self._run()
        except BaseException:
            if self._recovered is not None:
                # The caller does not get the writer if recovery fails, so close it here.
                self._recovered.writer.close(sync=False)
            raise

    def _run(self) -> Recovered:
        report, disk = self._report, self._disk
        for folder in (COMMIT_LOG_FOLDER, CONSUME_QUEUE_FOLDER, INDEX_FOLDER):
            disk.make_folder(self._store / folder)  # A copy of a store may lack its empty folders.
        if self._is_unchanged and self._point is not None:
            report.log_end = report.checked_from = report.compared_from = self._point.end
            self._recover_batches(self._point, is_unchanged=True)
            return self._join_as_it_was(self._point)
        if not self._files:
            self._files = [self._first_file()]
            self._look_at_log()
        point, end = self._point, report.log_end
        if self._cut is not None:
            # The copy must be durable before anything is deleted.
            report.kept = str(keep_cut_end(self._store, self._files, end, self._queues, disk))
            report.kept_messages = self._cut.messages
            report.notes.append(f"{report.kept} has a copy")
        # If the log now ends before the recovery point, new messages will replace messages that the point covers. So
        # the point becomes invalid.
        if point is None or point.end > end:
            delete_recovery_point(self._store, disk)
        truncate_log(self._files, end, disk, report)
        sync_log(self._files, report.checked_from, disk)
        log = CommitLogReader(StoreLog(self._store))
        self._recover_batches(point, is_unchanged=False)
        cut = self._indexes.cut(log)
        log.close()
        return self._join(cut)

    def _recover_batches(self, point: RecoveryPoint | None, is_unchanged: bool) -> None:
        report = self._report
        if self._other is not None:
            self._recovered = self._other.run(report.log_begin, report.log_end)
            return
        self._batches = recover_batch_queues(
            self._store, self._batch_topics, self._config, self._disk, point,
            comparison=None if is_unchanged else self._indexes.batches,
        )  # fmt: skip

    def _join_as_it_was(self, point: RecoveryPoint) -> Recovered:
        """Open a store that has not changed since a clean shutdown."""
        report = self._report
        report.queues_from = report.index_from = point.end
        return self._join(
            FoundIndexes.reopen_unchanged(self._store, self._config, self._disk, point)
        )

    def _join(self, indexes: CutIndexes) -> Recovered:
        """Create the writers of the recovered queues and index, and dispatch to them the messages that they lack.

        Dispatch to queues begins at the physical offset `queues_from` of the recovery report, and to the index at
        `index_from`.
        """
        store, config, report = self._store, self._config, self._report
        writer, rules, again_from = self._queue_writer(indexes)
        lost_before = () if self._point is None else self._point.lost
        writer.add_lost([*lost_before, *OffsetRange.of(report.damage)])
        index = IndexFileSetWriter(
            store / INDEX_FOLDER, config, self._disk, self._clock_ms, indexes.last,
            self._checkpoint.index_msg_timestamp,
        )  # fmt: skip
        dispatcher = DispatchService(
            store / COMMIT_LOG_FOLDER, config.commit_log_file_bytes, rules, writer, index,
            self._health, min(again_from, report.index_from), report.index_from,
        )  # fmt: skip
        if not self._is_unchanged:
            dispatcher.skipped = self._indexes.skipped
        dispatcher.dispatch(report.log_end)
        return Recovered(report, writer, index, dispatcher, writer.ends())

    def _queue_writer(self, indexes: CutIndexes) -> RecoveredQueues:
        config, report = self._config, self._report
        if self._recovered is not None:
            report.queues_from = self._recovered.dispatch_from
            return self._recovered
        batches, batches_from = self._batches
        again_from = report.queues_from
        if batches_from is not None:
            again_from = min(again_from, max(batches_from, report.log_begin))
        folder = self._store / CONSUME_QUEUE_FOLDER
        extensions, ends = None, {}
        if self._is_extended:
            extensions = self._store / EXTENSION_FOLDER
            kept = {name: queue.position or 0 for name, queue in indexes.queues.items()}
            kept |= {name: position for name, (position, _) in indexes.unopened.items()}
            ends = ExtendedQueueFiles.cut_units(self._queues, kept, config, self._disk)
            self._disk.make_folder(extensions)
        files = ConsumeQueueSetWriter(
            folder, config, self._disk, indexes.queues, batches, extensions, ends, indexes.unopened
        )
        return RecoveredQueues(files, DispatchRules.of(config), again_from)

    def _first_file(self) -> CommitLogFile:
        folder, size = self._store / COMMIT_LOG_FOLDER, self._config.commit_log_file_bytes
        path = folder / offset_file_name(0)
        self._disk.map(path, size).close()
        self._disk.sync_folder(folder)
        return CommitLogFile(0, size, str(path))
