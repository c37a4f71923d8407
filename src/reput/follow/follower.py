"""Maintain ConsumeQueues and IndexFiles of a log that this process only reads.

A broker or a replica may be writing the log; the indexes lie in another folder. They always equal the indexes that a
rebuild would create from the log up to `position`, because they use the same scan, append and put, and a start removes
unfinished work of the previous run. A start reads the log from shortly before the recovery point.

New bytes at the end of the log are indexed after a short pause, because a reader may see a record that a broker has
only partly copied into its file. A broker that recovers may cut the last file of its log; the bytes after the cut stay
until they are overwritten.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from itertools import takewhile
from pathlib import Path

from reput.clock import now_ms
from reput.files.disk import Disk
from reput.files.reader import FileReader
from reput.findings import Finding
from reput.follow.report import FollowReport
from reput.follow.state import (
    CHECKPOINT_SPACING_BYTES,
    RECOVERY_POINT_FILE,
    FollowState,
    LogCheckpoint,
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
from reput.index.reader import index_paths
from reput.index.set_writer import IndexFileSetWriter
from reput.log.files import expired_before, missing_before
from reput.log.growing import walk_on
from reput.log.offset_range import ranges_of
from reput.log.reader import CommitLogReader
from reput.log.scan import FileScan, ScanBuffers
from reput.log.scan_mode import GROWING, DispatchRules
from reput.log.sources import LogSource, StoreLog
from reput.queues.set_writer import ConsumeQueueSetWriter
from reput.recovery.batch_queues import batches_agree, recover_batch_queues
from reput.recovery.indexes import CutIndexes, FoundIndexes, reopen_unchanged
from reput.recovery.queue_files import find_queues
from reput.recovery.recovery_point import (
    RecoveryPoint,
    RecoveryPointWriter,
    delete_recovery_point,
    expired_unindexed,
    read_recovery_point,
)
from reput.recovery.report import RecoveryReport
from reput.store.facts import facts_of
from reput.store.parts import with_version
from reput.store.topics_file import TOPICS_PATH, batch_topics
from reput.writer.expiry import carry_out, plan_of_indexes

_SETTLED_S = 0.2
# Most bytes of the log per step; between steps, the loop syncs and checks `stop`.
_STEP_BYTES = 256 << 20


class FollowedBatchTopics:
    """Topics with batch queues: the followed store's settings declare one, or the indexes have one."""

    def __init__(self, store: Path, output: Path) -> None:
        self._store = store
        self._stored = self._state()
        self.names = batch_topics(str(store)) | batch_topics(str(output))

    def have_changed(self) -> bool:
        """Return whether the store's topics have changed; a topic is created before its first message."""
        if (state := self._state()) == self._stored:
            return False
        self._stored = state
        return not batch_topics(str(self._store)) <= self.names

    def _state(self) -> tuple[int, int] | None:
        """Return values that change whenever a broker replaces the file."""
        try:
            status = os.stat(self._store / TOPICS_PATH)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino


class FollowedLog:
    """A log in the state in which it was last examined.

    files  the log's files
    seen   physical offset after the last readable record
    """

    def __init__(self, source: LogSource, buffers: ScanBuffers) -> None:
        """Prepare a follower, which reads nothing before `look`. Raises StoreNotFoundError, StoreAccessError."""
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
        """Find the end of the readable records from `start` on, where a record or a file begins."""
        self._seen_at = time.monotonic()
        self.seen = walk_on(self._log, start, self._buffers, in_last=GROWING).end

    def settle(self) -> None:
        """Wait until the last bytes seen are old enough to be indexed."""
        time.sleep(max(self._seen_at + _SETTLED_S - time.monotonic(), 0))

    def last_with_data(self) -> int:
        """Return the physical offset at which the last file with data begins."""
        return (self._log.last_with_data() or self.files[0]).start

    def held(self, checkpoints: list[LogCheckpoint]) -> list[LogCheckpoint]:
        """Return the checkpoints that match this log up to the first mismatch, except those for expired messages."""
        there = (
            checkpoint for checkpoint in checkpoints if checkpoint.physical_offset >= self.begin
        )
        return list(takewhile(self.holds, there))

    def holds(self, checkpoint: LogCheckpoint) -> bool:
        head = self.head_at(checkpoint.physical_offset)
        return head is not None and LogCheckpoint.of(checkpoint.physical_offset, head) == checkpoint

    def head_at(self, offset: int) -> bytes | None:
        """Return the first bytes of the record at an offset, or None if no file contains it."""
        for file in self.files:
            if file.start <= offset < file.end - MIN_RECORD_BYTES:
                with self._log.open_file(file.path) as reader:
                    return reader.read(offset - file.start, MIN_RECORD_BYTES)
        return None

    def end_of(self, checkpoint: LogCheckpoint) -> int:
        """Return the physical offset after the message of a checkpoint that matches."""
        head = self.head_at(checkpoint.physical_offset)
        return checkpoint.physical_offset + (read_size_and_magic(head, 0)[0] if head else 0)

    def settled_before(self, checkpoints: list[LogCheckpoint]) -> int:
        """Return the begin of a record or file before which the log is certainly unchanged, given these checkpoints.

        After a cut in the last file, later checkpoints still match until the broker overwrites their messages.
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
    """Opens the indexes of the log of `store` in `output`, and continues them. Not thread-safe.

    Raises StoreNotFoundError, StoreAccessError, StoreError for files of other sizes.
    """

    def __init__(
        self, store: Path, output: Path, state: FollowState, disk: Disk | None = None
    ) -> None:
        self._store, self._output, self._state = store, output, state
        self._config, self._disk = with_version(state.config, facts_of(store).parts), disk or Disk()
        self._rules = DispatchRules.of(self._config)
        self._buffers = ScanBuffers()
        self._log = FollowedLog(StoreLog(store), self._buffers)
        self._index_ends: dict[Path, int] = {}  # last physical offset of each full file
        self.report = FollowReport(str(output))
        for folder in (CONSUME_QUEUE_FOLDER, INDEX_FOLDER):
            self._disk.make_folder(output / folder)
        self._open()

    def _open(self) -> None:
        """Remove entries after the end of the log and unfinished files; restore missing parts of existing indexes."""
        log, state = self._log, self._state
        log.list_files()
        state.checkpoints = log.held(state.checkpoints)
        settled = log.settled_before(state.checkpoints)
        # The walk begins at a place where it would notice a truncation of the log.
        log.look(max(settled, log.last_with_data()))
        found = RecoveryReport(log_begin=log.begin)
        found.log_end = min(log.seen, self._unchanged_until())
        self._timestamp = 0
        self._topics = FollowedBatchTopics(self._store, self._output)
        queues, last = self._recover(found, settled)
        report = self.report
        report.damage += found.losses
        self._end_offset = begin = max(found.index_from, found.log_begin)
        if begin == found.log_end and last is not None:
            self._end_offset = last.end.physical_offset
        self._queues = ConsumeQueueSetWriter(
            self._output / CONSUME_QUEUE_FOLDER, self._config, self._disk, queues,
            self._batches.queues,
        )  # fmt: skip
        self._queues.add_lost([*self._lost_before, *ranges_of(found.damage)])
        self._index = IndexFileSetWriter(
            self._output / INDEX_FOLDER, self._config, self._disk, now_ms, last,
            name_file=lambda before, first: index_file_name_of(before, first, now_ms()),
        )  # fmt: skip
        self._note = RecoveryPointWriter(
            self._output, self._config, self._disk, RECOVERY_POINT_FILE
        )
        self._last = state.checkpoints[-1] if state.checkpoints else None
        self._end = found.log_end if self._last else None
        batches_from = self._batches.dispatch_from
        report.position = min(found.queues_from, begin)
        if batches_from is not None:
            report.position = min(report.position, batches_from)
        report.log_begin, report.compared_from = found.log_begin, found.compared_from
        report.notes += found.notes
        log.settle()
        again_until = max(found.queues_from, found.index_from)
        while report.position < found.log_end:
            self._dispatch(min(found.log_end, report.position + _STEP_BYTES))
            if report.position >= again_until:
                self.sync()
        state.is_fresh, state.rebuilt_to = False, None
        self.sync()
        self._remove_expired()  # Files of messages that expired between runs.

    def _unchanged_until(self) -> int:
        """Return the physical offset up to which the log is the indexed one; later entries are replaced."""
        if self._state.rebuilt_to is not None:
            return self._state.rebuilt_to
        if self._state.is_fresh:
            return self._log.seen
        checkpoints = self._state.checkpoints
        return self._log.end_of(checkpoints[-1]) if checkpoints else self._log.begin

    def _recover(self, found: RecoveryReport, settled: int) -> CutIndexes:
        """Compare with the log all entries after the recovery point, and all entries that a cut may have changed.

        Except after a clean shutdown, the last indexed message is always dispatched again, and a file created after it
        is created again.
        """
        output, config, disk = self._output, self._config, self._disk
        queues = find_queues(output, config)
        known, closed = read_recovery_point(
            output, config, found.log_begin, queues, RECOVERY_POINT_FILE, may_be_touched=False
        )
        if self._state.rebuilt_to is None:
            found.expired_unindexed = expired_unindexed(self._log.files[0], known, queues.values())
        if known is not None and known.end < found.log_begin:
            known = None
        if known is not None and not batches_agree(
            output, self._topics.names, config, known, closed
        ):
            known = None
        indexes = FoundIndexes(
            output, queues, config, disk, found, self._topics.names, is_own=True, log=self._store
        )
        if (rebuilt_to := self._state.rebuilt_to) is not None:
            known = indexes.check(indexes.after_rebuild(rebuilt_to), closed=True)
            starts = [file.start for file in self._log.files if file.start < rebuilt_to]
            # The last record that the rebuild read may have been incomplete.
            settled = max(starts, default=found.log_begin)
        else:
            known = indexes.check(known, closed)
        indexes.compare(self._log.files, known, settled, redo_last=True)
        self._lost_before = () if known is None else known.lost
        right_until = min(found.queues_from, found.index_from)
        is_as_closed = known is not None and closed and known.end == found.log_end
        self._batches = recover_batch_queues(
            output, self._topics.names, config, disk, known,
            compared=None if is_as_closed else indexes.batches, log=self._store,
        )  # fmt: skip
        if known is None or known.end > right_until:
            delete_recovery_point(output, disk, RECOVERY_POINT_FILE)
        elif is_as_closed:
            self._timestamp = facts_of(output).checkpoint.physic_msg_timestamp
            return reopen_unchanged(output, config, disk, known)
        with closing(CommitLogReader(StoreLog(self._store))) as log:
            return indexes.cut(log)

    def poll(self) -> bool:
        """Index the log up to the end seen by the previous poll, and note its present end.

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
        """Whether the last poll has seen messages that it did not index."""
        return self._log.seen > self.report.position

    def sync(self, closing: bool = False) -> None:
        """Make the indexes durable, then write their `checkpoint` file and the recovery point.

        Raises StoreAccessError.
        """
        # Save the state before the indexes: checkpoints of messages without entries do no harm.
        self._state.save(self._disk)
        self._queues.sync()
        self._index.sync()
        checkpoint = encode_checkpoint(
            Checkpoint(self._timestamp, self._timestamp, self._index_end_timestamp())
        )
        self._disk.replace(self._output / CHECKPOINT_FILE, checkpoint)
        if self._end is not None:
            reached = RecoveryPoint(
                self._end, self._queues.positions(), *self._last_item(),
                batches=self._queues.batch_ends(), lost=self._queues.lost_ranges(),
                refused=self._queues.refused_bytes(),
            )  # fmt: skip
            self._note.write(reached, closing)

    def close(self, sync: bool = True) -> None:
        """Close the files, after a `sync`."""
        if sync:
            self.sync(closing=True)
        self._index.close(sync=False)
        self._queues.close(sync=False)

    def _last_item(self) -> tuple[str, int]:
        """Return the last file with items, and the number after its last item.

        A file without items is named by its first item.
        """
        name, count = self._index.end
        if count > 1:
            return name, count
        names = [path.name for path in index_paths(self._output / INDEX_FOLDER) if path.name < name]
        return (names[-1], self._config.index_items) if names else ("", 1)

    def _index_end_timestamp(self) -> int:
        known, ends = self._index_ends, {}
        paths = index_paths(self._output / INDEX_FOLDER)
        for path in paths:
            ends[path] = known[path] if path in known else _end_timestamp(path)
        self._index_ends = {path: ends[path] for path in paths[:-1]}
        return max(ends.values(), default=0)

    def _is_same_log(self) -> bool:
        """Return whether the last indexed message is still there, or has expired."""
        log, last = self._log, self._last
        # The log is shorter than the indexed part: a broker cut it when it recovered.
        if log.files[-1].end < self.report.position:
            return False
        return last is None or last.physical_offset < log.begin or log.holds(last)

    def _dispatch(self, target: int) -> None:
        """Dispatch the messages before `target`, up to which the log no longer changes."""
        report, files, last, is_misplaced = self.report, self._log.files, None, False
        for file in files:
            if file.end <= report.position or file.start >= target:
                continue
            if file.start > report.position:
                missing = expired_before if file == files[0] else missing_before
                self._note_damage([missing(file, report.position)], 0)
                report.position = file.start
            stop = min(target, file.end)
            scan = FileScan(
                file, report.position, stop, GROWING, self._rules,
                end_offset=self._end_offset, buffers=self._buffers,
            )  # fmt: skip
            noted = 0
            for batch in scan.batches():
                noted = self._note_damage(scan.damage, noted)
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
            if scan.end.unreadable and report.position < stop:
                self._note_damage([file.lost(report.position, stop, scan.end.unreadable)], 0)
                report.position = stop
        if last is not None:
            self._remember(*last, is_misplaced)

    def _note_damage(self, found: list[Finding], noted: int) -> int:
        """Note the findings after the first `noted`; return the number of all findings."""
        if new := found[noted:]:
            self.report.damage += new
            self._queues.add_lost(ranges_of(new))
        return len(found)

    def _remember(self, offset: int, size: int, is_misplaced: bool) -> None:
        """Remember the last indexed message, unless it states another offset and so cannot identify the log."""
        head = None if is_misplaced else self._log.head_at(offset)
        self._end = None if head is None else offset + size
        if head is not None:
            self._last = LogCheckpoint.of(offset, head)
            self._state.add(self._last, self._log.files[0].size)

    def _follow_expiry(self) -> None:
        """Delete index files that cover only expired messages, as a broker does."""
        begin = self._log.begin
        if begin > self.report.log_begin:
            self.report.log_begin = begin
            self._remove_expired()

    def _remove_expired(self) -> None:
        expired = plan_of_indexes(self._output, self.report.log_begin)
        carry_out(expired, self._disk)
        self.report.expired_files += len(expired.queue_files) + len(expired.index_files)


def _end_timestamp(path: Path) -> int:
    with FileReader(str(path)) as reader:
        return decode_header(reader.read(0, HEADER_BYTES)).end_timestamp
