"""Maintain ConsumeQueues and IndexFiles for a log that another process writes.

The log is only read, and the indexes lie in another folder. They always equal the indexes that a rebuild would create
from the log up to `position`, because the same code scans the log and writes the indexes. The previous run may have
left unfinished work after its recovery point. So each start compares the indexes with the log, beginning shortly
before the recovery point, and removes the unfinished work.

New bytes at the end of the log are indexed after a short pause, because a broker may have copied a record only partly
into its mapped file. When a broker recovers, it may truncate the last file of its log; the bytes after the cut stay
until they are overwritten.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from itertools import takewhile
from pathlib import Path

from reput.base import Finding, now_ms
from reput.core import (
    TOPICS_PATH,
    CommitLogReader,
    ConsumeQueueSetWriter,
    DispatchRules,
    FileScan,
    IndexFileSetWriter,
    LogSource,
    OffsetRange,
    ScanBuffers,
    ScanMode,
    StoreLog,
    batch_topics,
    facts_of,
    index_paths,
    with_version,
)
from reput.engine.rebuild.follow.state import (
    CHECKPOINT_SPACING_BYTES,
    RECOVERY_POINT_FILE,
    FollowState,
    LogCheckpoint,
)
from reput.engine.rebuild.growing import walk_on
from reput.engine.rebuild.report import FollowReport
from reput.engine.writer import (
    CutIndexes,
    FoundIndexes,
    PassedLog,
    QueueFiles,
    RecoveryPoint,
    RecoveryPointWriter,
    RecoveryReport,
    delete_recovery_point,
    expire_indexes,
    recover_batch_queues,
    trusted_point,
)
from reput.format.checkpoint import Checkpoint, encode_checkpoint
from reput.format.commit_log import MIN_RECORD_BYTES, read_size_and_magic
from reput.format.file_names import (
    CHECKPOINT_FILE,
    CONSUME_QUEUE_FOLDER,
    INDEX_FOLDER,
    index_file_name_of,
)
from reput.format.index_file import HEADER_BYTES, decode_header
from reput.io import Disk, FileReader

# Age at which bytes of the log count as completely written.
_SETTLED_S = 0.2
# Maximum number of log bytes that one step indexes; between steps, the loop syncs and checks `stop`.
_STEP_BYTES = 256 << 20


class FollowedBatchTopics:
    """The batch topics of the followed store, and the topics that already have a batch queue in `output`."""

    def __init__(self, store: Path, output: Path) -> None:
        self._store = store
        self._stored = self._state()
        self.names = batch_topics(str(store)) | batch_topics(str(output))

    def have_changed(self) -> bool:
        """Return whether the store has new batch topics.

        A broker stores a topic before the topic's first message, so a new topic is seen in time.
        """
        if (state := self._state()) == self._stored:
            return False
        self._stored = state
        return not batch_topics(str(self._store)) <= self.names

    def _state(self) -> tuple[int, int] | None:
        """Return the time and the inode of the file of topics. They change when a broker replaces the file."""
        try:
            status = os.stat(self._store / TOPICS_PATH)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino


class FollowedLog:
    """The followed log, in the state of the last call of `list_files` and `look`.

    files: the log's files
    seen: physical offset after the last readable record
    """

    def __init__(self, source: LogSource, buffers: ScanBuffers) -> None:
        """List the files. Records are first read by `look`. Raises StoreNotFoundError, StoreAccessError."""
        self._source, self._buffers = source, buffers
        self._seen_at = 0.0
        self.seen = 0
        self.list_files()

    @property
    def begin(self) -> int:
        return self._log.begin

    def list_files(self) -> None:
        """List the log's present files. Raises StoreNotFoundError, StoreAccessError."""
        self._log = self._source.list()
        self.files = self._log.files

    def look(self, start: int) -> None:
        """Set `seen` to the end of the readable records after `start`. A record or a file must begin at `start`."""
        self._seen_at = time.monotonic()
        self.seen = walk_on(self._log, start, self._buffers, in_last=ScanMode.GROWING).end

    def settle(self) -> None:
        """Wait until the bytes that `look` saw are old enough to be indexed."""
        time.sleep(max(self._seen_at + _SETTLED_S - time.monotonic(), 0))

    def last_with_data(self) -> int:
        """Return the physical offset at which the last file with data begins."""
        return (self._log.last_with_data() or self.files[0]).start

    def held(self, checkpoints: list[LogCheckpoint]) -> list[LogCheckpoint]:
        """Return the checkpoints that match this log, up to the first one that does not match.

        Checkpoints of expired messages are skipped.
        """
        existing = (
            checkpoint for checkpoint in checkpoints if checkpoint.physical_offset >= self.begin
        )
        return list(takewhile(self.holds, existing))

    def holds(self, checkpoint: LogCheckpoint) -> bool:
        head = self.head_at(checkpoint.physical_offset)
        return head is not None and LogCheckpoint.of(checkpoint.physical_offset, head) == checkpoint

    def head_at(self, offset: int) -> bytes | None:
        """Return the first bytes of the record at an offset; None if no file contains them."""
        for file in self.files:
            if file.start <= offset < file.end - MIN_RECORD_BYTES:
                with self._log.open_file(file.path) as reader:
                    return reader.read(offset - file.start, MIN_RECORD_BYTES)
        return None

    def end_of(self, checkpoint: LogCheckpoint) -> int:
        """Return the physical offset after a checkpoint's message, which the log must still contain."""
        head = self.head_at(checkpoint.physical_offset)
        return checkpoint.physical_offset + (read_size_and_magic(head, 0)[0] if head else 0)

    def settled_before(self, checkpoints: list[LogCheckpoint]) -> int:
        """Return an offset, the start of a record or file, before which the log is certainly unchanged.

        A matching checkpoint does not prove that the bytes just before the checkpoint are unchanged. After a truncation
        in the last file, the broker overwrites the file from the cut on, and a checkpoint after the overwritten part
        still matches. A broker truncates at most its unflushed bytes, which are fewer than CHECKPOINT_SPACING_BYTES.
        So a checkpoint is safe if it is at least this number of bytes before the newest one.
        """
        last = self.last_with_data()
        if not checkpoints:
            return last
        newest = checkpoints[-1].physical_offset
        offsets = [checkpoint.physical_offset for checkpoint in checkpoints]
        return max(
            [min(last, newest), *(at for at in offsets if at + CHECKPOINT_SPACING_BYTES <= newest)]
        )


class Follower:
    """Opens the indexes in `output`, and continues them with the log of `store`. Not thread-safe.

    Raises StoreNotFoundError, StoreAccessError, StoreError if the sizes of the files differ from the settings.
    """

    def __init__(
        self, store: Path, output: Path, state: FollowState, disk: Disk | None = None
    ) -> None:
        self._store, self._output, self._state = store, output, state
        self._config, self._disk = with_version(state.config, facts_of(store).parts), disk or Disk()
        self._rules = DispatchRules.of(self._config)
        self._buffers = ScanBuffers()
        self._log = FollowedLog(StoreLog(store), self._buffers)
        self._index_ends: dict[Path, int] = {}  # End timestamp of each full IndexFile.
        self.report = FollowReport(str(output))
        for folder in (CONSUME_QUEUE_FOLDER, INDEX_FOLDER):
            self._disk.make_folder(output / folder)
        self._open()

    def _open(self) -> None:
        """Remove unfinished files, and entries that lead beyond the log's end. Then index messages without entries."""
        log, state = self._log, self._state
        log.list_files()
        state.checkpoints = log.held(state.checkpoints)
        settled = log.settled_before(state.checkpoints)
        # Begin reading the log far enough back to notice whether the log was truncated.
        log.look(max(settled, log.last_with_data()))
        recovery = RecoveryReport(log_begin=log.begin)
        recovery.log_end = min(log.seen, self._unchanged_until())
        self._timestamp = 0
        self._topics = FollowedBatchTopics(self._store, self._output)
        queues, last, unopened = self._recover(recovery, settled)
        report = self.report
        self._passed = PassedLog()
        report.damage += recovery.losses
        self._end_offset = begin = max(recovery.index_from, recovery.log_begin)
        if begin == recovery.log_end and last is not None:
            self._end_offset = last.end.physical_offset
        self._queues = ConsumeQueueSetWriter(
            self._output / CONSUME_QUEUE_FOLDER, self._config, self._disk, queues,
            self._batches.queues, unopened=unopened,
        )  # fmt: skip
        self._queues.add_lost([*self._lost_before, *OffsetRange.of(recovery.damage)])
        self._index = IndexFileSetWriter(
            self._output / INDEX_FOLDER, self._config, self._disk, now_ms, last,
            name_file=lambda before, first: index_file_name_of(before, first, now_ms()),
        )  # fmt: skip
        self._note = RecoveryPointWriter(
            self._output, self._config, self._disk, RECOVERY_POINT_FILE
        )
        self._last = state.checkpoints[-1] if state.checkpoints else None
        self._end = recovery.log_end if self._last else None
        batches_from = self._batches.dispatch_from
        report.position = min(recovery.queues_from, begin)
        if batches_from is not None:
            report.position = min(report.position, batches_from)
        report.log_begin, report.compared_from = recovery.log_begin, recovery.compared_from
        report.notes += recovery.notes
        log.settle()
        # Queues and index may end at different messages. Repeat dispatch from the earlier message. Writers skip
        # existing entries.
        again_until = max(recovery.queues_from, recovery.index_from)
        new_from = min(recovery.queues_from, batches_from or recovery.queues_from)
        counts = report.messages, report.keys
        while report.position < recovery.log_end:
            was_indexed = report.position < new_from
            target = new_from if was_indexed else recovery.log_end
            self._dispatch(min(target, report.position + _STEP_BYTES))
            if was_indexed:
                # Only the last items of the index are written again, so these messages are not new.
                report.messages, report.keys = counts
            if report.position >= again_until:
                self.sync()
        state.is_fresh, state.rebuilt_to = False, None
        self.sync()
        # Delete the files whose messages have expired since the previous run.
        self._remove_expired()

    def _unchanged_until(self) -> int:
        """Return the physical offset up to which the log is unchanged since it was indexed.

        Entries of messages after this offset are replaced.
        """
        if self._state.rebuilt_to is not None:
            return self._state.rebuilt_to
        if self._state.is_fresh:
            return self._log.seen
        checkpoints = self._state.checkpoints
        return self._log.end_of(checkpoints[-1]) if checkpoints else self._log.begin

    def _recover(self, recovery: RecoveryReport, settled: int) -> CutIndexes:
        """Compare with the log the entries after the recovery point, and all entries that a truncation may affect.

        Without a clean shutdown, the last entries and files may be incomplete. Then the last indexed message is
        dispatched again, and files that begin after it are created again.
        """
        output, config, disk = self._output, self._config, self._disk
        queues = QueueFiles.all_of(output, config)
        point, is_clean = trusted_point(
            output, queues, config, recovery, self._topics.names,
            self._log.files[0] if self._state.rebuilt_to is None else None,
            name=RECOVERY_POINT_FILE, may_be_touched=False,
        )  # fmt: skip
        indexes = FoundIndexes(
            output, queues, config, disk, recovery, self._topics.names, is_own=True, log=self._store
        )
        if (rebuilt_to := self._state.rebuilt_to) is not None:
            point = indexes.check(indexes.after_rebuild(rebuilt_to), is_unchanged=True)
            starts = [file.start for file in self._log.files if file.start < rebuilt_to]
            # The broker may have been writing the last record that the rebuild read. So compare the indexes again with
            # the log file that contains this record.
            settled = max(starts, default=recovery.log_begin)
        else:
            point = indexes.check(point, is_clean)
        indexes.compare(self._log.files, point, settled, redo_last=True)
        self._lost_before = () if point is None else point.lost
        right_until = min(recovery.queues_from, recovery.index_from)
        is_unchanged = point is not None and is_clean and point.end == recovery.log_end
        self._batches = recover_batch_queues(
            output, self._topics.names, config, disk, point,
            comparison=None if is_unchanged else indexes.batches, log=self._store,
        )  # fmt: skip
        # The recovery point covers entries that are about to be removed. Delete it first, so that no crash leaves it
        # valid.
        if point is None or point.end > right_until:
            delete_recovery_point(output, disk, RECOVERY_POINT_FILE)
        elif is_unchanged:
            self._timestamp = facts_of(output).checkpoint.physic_msg_timestamp
            return FoundIndexes.reopen_unchanged(output, config, disk, point)
        with closing(CommitLogReader(StoreLog(self._store))) as log:
            return indexes.cut(log)

    def poll(self) -> bool:
        """Index the log up to the end that the previous poll saw, and note the present end.

        Returns whether anything was indexed.

        Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
        """
        log = self._log
        log.list_files()
        if not self._is_same_log():
            self.report.notes.append(
                f"the log has changed before {self.report.position}: cut back to the unchanged part"
            )
            self.close(sync=False)
            self._open()
        # The batch topics are read when the queues are opened. So open the queues again, so that messages of new batch
        # topics go into batch queues.
        if self._topics.have_changed():
            self.close()
            self._open()
        before = self.report.position
        if log.seen > before:
            log.settle()
            self._dispatch(min(log.seen, before + _STEP_BYTES))
        log.look(max(log.seen, self.report.position))
        self._follow_expiry()
        return self.report.position > before

    @property
    def has_more(self) -> bool:
        """Return whether the last poll saw messages that are not indexed yet."""
        return self._log.seen > self.report.position

    def sync(self, closing: bool = False) -> None:
        """Make the indexes durable, then write their `checkpoint` file and the recovery point.

        Raises StoreAccessError.
        """
        # Save the checkpoints before the indexes, because a crash can happen in between. Checkpoints without entries do
        # no harm. But if entries had no checkpoints, the next start could not notice that the broker had truncated the
        # log and removed the messages of these entries.
        self._state.save(self._disk)
        self._queues.sync()
        self._index.sync()
        checkpoint = encode_checkpoint(
            Checkpoint(self._timestamp, self._timestamp, self._index_end_timestamp())
        )
        self._disk.replace(self._output / CHECKPOINT_FILE, checkpoint)
        self._passed.keep()
        if self._end is not None:
            reached = RecoveryPoint(
                self._end, self._queues.positions(), *self._last_item(),
                batches=self._queues.batch_ends(), lost=self._queues.lost_ranges(),
                refused=self._queues.refused_bytes(),
            )  # fmt: skip
            self._note.write(reached, closing)

    def close(self, sync: bool = True) -> None:
        """Close the files. With `sync`, make them durable first."""
        if sync:
            self.sync(closing=True)
        self._index.close(sync=False)
        self._queues.close(sync=False)

    def _last_item(self) -> tuple[str, int]:
        """Return the name of the last IndexFile with items, and the number of the item to append to it.

        A new file gets its name with its first item, so a file without items has no lasting name.
        """
        name, count = self._index.end
        if count > 1:
            return name, count
        names = [path.name for path in index_paths(self._output / INDEX_FOLDER) if path.name < name]
        return (names[-1], self._config.index_items) if names else ("", 1)

    def _index_end_timestamp(self) -> int:
        before, ends = self._index_ends, {}
        paths = index_paths(self._output / INDEX_FOLDER)
        for path in paths:
            ends[path] = before[path] if path in before else _end_timestamp(path)
        self._index_ends = {path: ends[path] for path in paths[:-1]}
        return max(ends.values(), default=0)

    def _is_same_log(self) -> bool:
        """Return whether the last indexed message is unchanged, or has expired."""
        log, last = self._log, self._last
        # The log ends before the end of its indexed part: a broker truncated the log when it recovered.
        if log.files[-1].end < self.report.position:
            return False
        return last is None or last.physical_offset < log.begin or log.holds(last)

    def _dispatch(self, target: int) -> None:
        """Index the messages before the physical offset `target`. The part of the log before `target` must be final."""
        report, files, last, is_misplaced = self.report, self._log.files, None, False
        for file in files:
            if file.end <= report.position or file.start >= target:
                continue
            if file.start > report.position:
                missing = file.expired_before if file == files[0] else file.missing_before
                self._note_damage([missing(report.position)], 0)
                report.position = file.start
            stop = min(target, file.end)
            scan = FileScan(
                file, report.position, stop, ScanMode.GROWING, self._rules,
                end_offset=self._end_offset, buffers=self._buffers,
            )  # fmt: skip
            noted = 0
            for batch in scan.batches():
                noted = self._note_damage(scan.damage, noted)
                self._passed.add(file, batch)
                self._queues.append(batch)
                self._index.put(batch)
                report.messages += len(batch)
                report.keys += len(batch.key_hash)
                self._timestamp = int(batch.messages["store_timestamp"][-1])
                last = (
                    batch.messages[-1]["physical_offset"].item(),
                    batch.messages[-1]["size"].item(),
                )
                is_misplaced = scan.misplaced > 0
            self._note_damage(scan.damage, noted)
            self._end_offset = scan.end_offset
            report.position = scan.end.position
            if scan.damage or scan.misplaced or scan.end.unreadable:
                self._passed.lose()
            if report.position >= file.end:
                self._passed.end(file.end)
            if scan.end.unreadable and report.position < stop:
                self._note_damage([file.lost(report.position, stop, scan.end.unreadable)], 0)
                report.position = stop
        if last is not None:
            self._remember(*last, is_misplaced)

    def _note_damage(self, damage: list[Finding], noted: int) -> int:
        """Report the findings after the first `noted` ones; return the number of all findings."""
        if new := damage[noted:]:
            self.report.damage += new
            self._queues.add_lost(OffsetRange.of(new))
        return len(damage)

    def _remember(self, offset: int, size: int, is_misplaced: bool) -> None:
        """Add a checkpoint for the last indexed message, unless its record states a wrong physical offset."""
        head = None if is_misplaced else self._log.head_at(offset)
        self._end = None if head is None else offset + size
        if head is not None:
            self._last = LogCheckpoint.of(offset, head)
            self._state.add(self._last, self._log.files[0].size)

    def _follow_expiry(self) -> None:
        """Delete ConsumeQueue files and IndexFiles whose messages have all expired, as a broker does."""
        begin = self._log.begin
        if begin > self.report.log_begin:
            self.report.log_begin = begin
            self._remove_expired()

    def _remove_expired(self) -> None:
        expired = expire_indexes(self._output, self.report.log_begin, self._disk)
        self.report.expired_files += len(expired.queue_files) + len(expired.index_files)


def _end_timestamp(path: Path) -> int:
    with FileReader(str(path)) as reader:
        return decode_header(reader.read(0, HEADER_BYTES)).end_timestamp
