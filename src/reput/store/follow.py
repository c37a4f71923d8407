"""ConsumeQueues and IndexFiles kept beside a log that this process only reads.

A broker writes the log, or a replica of one, or nobody any more; the indexes lie in another folder. They are always
those that a rebuild would make of the log up to `position`: the same scan, append and put, and a start that takes off
what a run before it left half-done. What is at the end of the log counts when it has been there for a moment, for a
broker copies a record into its file while others read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from reput.files.disk import Disk
from reput.files.reader import FileReader
from reput.format.checkpoint import Checkpoint, encode_checkpoint
from reput.format.commit_log import BLANK_BYTES, MIN_RECORD_BYTES
from reput.format.file_names import (
    CHECKPOINT_FILE,
    CONSUME_QUEUE_FOLDER,
    INDEX_FOLDER,
    index_file_name_of,
)
from reput.format.index_file import HEADER_BYTES, decode_header
from reput.store.commit_log import CommitLog
from reput.store.commit_log_files import CommitLogFile, list_commit_log_files
from reput.store.damage import Damage
from reput.store.expiry import carry_out, plan_of_indexes
from reput.store.follow_state import FollowState, Mark
from reput.store.index_file_reader import index_paths
from reput.store.index_writer import IndexWriter
from reput.store.queues_writer import QueuesWriter
from reput.store.record_search import is_copied_whole
from reput.store.recovery.indexes import CutIndexes, FoundIndexes
from reput.store.recovery.queue_files import find_queues
from reput.store.recovery.report import RecoveryReport
from reput.store.scan import FileScan, ScanBuffers

_SETTLED_S = 0.2
_STEP_BYTES = 1 << 30  # between two syncs, and before anyone is asked whether to go on
_EXPIRED = "expired before it was read"
_NO_FILE = "no file holds these offsets"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class FollowReport:
    """What was found and done since the start. Offsets are physical.

    log_begin    where the followed log begins now
    position     the indexes have every message before it
    messages, keys  dispatched by this run; its start repeats a few
    expired_files  files of the indexes that were deleted because their messages have expired
    """

    log_begin: int = 0
    position: int = 0
    messages: int = 0
    keys: int = 0
    expired_files: int = 0
    damage: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Follower:
    """Indexes of the log of `store` in `output`, opened to be carried on; one thread uses it.

    Raises StoreNotFoundError, StoreAccessError, StoreError for files of other sizes.
    """

    def __init__(
        self, store: Path, output: Path, state: FollowState, disk: Disk | None = None
    ) -> None:
        self._store, self._output, self._state = store, output, state
        self._config, self._disk = state.config, disk or Disk()
        self._buffers = ScanBuffers()
        self.report = FollowReport()
        for folder in (CONSUME_QUEUE_FOLDER, INDEX_FOLDER):
            self._disk.make_folder(output / folder)
        self._open()

    def _open(self) -> None:
        """Take off what goes beyond the log or was left half-done; be ready for what is missing."""
        self._files = list_commit_log_files(self._store)
        self._seen_at = time.monotonic()
        self._seen = self._visible_end(self._last_with_data().start)
        found = RecoveryReport(log_begin=self._files[0].start)
        found.log_end = min(self._seen, self._unchanged_until())
        queues, last = self._recover(found)
        self._end_offset = max(found.index_from, found.log_begin)
        self._queues = QueuesWriter(
            self._output / CONSUME_QUEUE_FOLDER, self._config, self._disk, queues
        )
        self._index = IndexWriter(
            self._output / INDEX_FOLDER, self._config, self._disk, now_ms, last,
            name_file=lambda before, first: index_file_name_of(before, first, now_ms()),
        )  # fmt: skip
        self._timestamp = 0
        self._last: Mark | None = None
        self.report.position = min(found.queues_from, self._end_offset)
        self.report.log_begin = found.log_begin
        self.report.notes += found.notes
        self._settle()
        while self.has_more:
            self._dispatch(min(self._seen, self.report.position + _STEP_BYTES))
        self._state.is_fresh = False
        self._state.save(self._disk)

    def _recover(self, found: RecoveryReport) -> CutIndexes:
        """Compare all with the log. The last message that is indexed is always dispatched again, and with it the file
        that was begun behind it."""
        queues = find_queues(self._output, self._config)
        indexes = FoundIndexes(self._output, queues, self._config, self._disk, found)
        indexes.check(None)
        with closing(CommitLog(self._store)) as log:
            return indexes.cut(self._files, log, None, redo_last=True)

    def _settle(self) -> None:
        time.sleep(max(self._seen_at + _SETTLED_S - time.monotonic(), 0))

    def poll(self) -> bool:
        """Take in what was there a moment ago, and look what is there now; whether anything was taken in.

        Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
        """
        self._files = list_commit_log_files(self._store)
        if not self._is_same_log():
            self.report.notes.append(
                f"the log has changed before {self.report.position}: cut back to what is left of it"
            )
            self.close(sync=False)
            self._open()
        before = self.report.position
        if self._seen > before:
            self._settle()
            self._dispatch(min(self._seen, before + _STEP_BYTES))
        self._seen_at = time.monotonic()
        self._seen = self._visible_end(max(self._seen, self.report.position))
        self._follow_expiry()
        return self.report.position > before

    @property
    def has_more(self) -> bool:
        """Whether the last poll has seen what it did not take in."""
        return self._seen > self.report.position

    def sync(self) -> None:
        """Make the indexes durable, and write a checkpoint that speaks of them. Raises StoreAccessError."""
        self._state.save(self._disk)
        self._queues.sync()
        self._index.sync()
        index = max(self._index_ends(), default=0)
        checkpoint = encode_checkpoint(Checkpoint(self._timestamp, self._timestamp, index))
        self._disk.replace(self._output / CHECKPOINT_FILE, checkpoint)

    def close(self, sync: bool = True) -> None:
        """Give the files back, after a `sync`."""
        if sync:
            self.sync()
        self._index.close(sync=False)
        self._queues.close(sync=False)

    def _index_ends(self) -> Iterator[int]:
        for path in index_paths(self._output / INDEX_FOLDER):
            with FileReader(str(path)) as reader:
                yield decode_header(reader.read(0, HEADER_BYTES)).end_timestamp

    def _last_with_data(self) -> CommitLogFile:
        for file in reversed(self._files):
            with FileReader(file.path) as reader:
                if any(reader.read(0, min(BLANK_BYTES, file.size))):
                    return file
        return self._files[0]

    def _visible_end(self, start: int) -> int:
        """Where the log ends now for who reads it from `start` on, at which a record or a file begins."""
        last = self._last_with_data()
        position = start
        for file in self._files:
            if file.end <= position or file.start > last.start:
                continue
            position = (
                file.end if file != last else self._end_within(file, max(position, file.start))
            )
        return position

    def _end_within(self, file: CommitLogFile, start: int) -> int:
        scan = FileScan(file, start, file.end, self._config, buffers=self._buffers, live=True)
        begin = end = start
        for piece in scan.pieces():
            begin = piece.base + int(piece.positions[-1])
            end = begin + int(piece.batch.messages["size"][-1])
        position = scan.end.position
        while scan.end.unreadable and scan.damage and _end(scan.damage[-1]) == position:
            position = scan.damage.pop().physical_offset  # may be half of a record
        if scan.end.unreadable and begin < end == position:
            with FileReader(file.path) as reader:
                if not is_copied_whole(reader.read(begin - file.start, end - begin)):
                    return begin
        return position

    def _unchanged_until(self) -> int:
        """Before this offset the log is the one that the indexes are of; what they have from there on is done again."""
        if self._state.is_fresh:
            return self._seen
        held = [mark.physical_offset for mark in self._state.marks if self._holds(mark)]
        return max(held, default=self._files[0].start)

    def _holds(self, mark: Mark) -> bool:
        head = self._head_at(mark.physical_offset)
        return head is not None and Mark.of(mark.physical_offset, head) == mark

    def _is_same_log(self) -> bool:
        """Whether what was taken in last is still there, unless it has expired."""
        if self._files[-1].end < self.report.position:
            return False
        last = self._last
        return last is None or last.physical_offset < self._files[0].start or self._holds(last)

    def _head_at(self, offset: int) -> bytes | None:
        """The first bytes of the record there, None where no file has it."""
        for file in self._files:
            if file.start <= offset < file.end - MIN_RECORD_BYTES:
                with FileReader(file.path) as reader:
                    return reader.read(offset - file.start, MIN_RECORD_BYTES)
        return None

    def _dispatch(self, target: int) -> None:
        """Dispatch the messages before `target`, which `_visible_end` has found."""
        report, last = self.report, None
        for file in self._files:
            if file.end <= report.position or file.start >= target:
                continue
            if file.start > report.position:
                reason = _EXPIRED if file == self._files[0] else _NO_FILE
                self._lose(file.start, file.path, reason)
            stop = min(target, file.end)
            scan = FileScan(
                file, report.position, stop, self._config,
                end_offset=self._end_offset, buffers=self._buffers, live=True,
            )  # fmt: skip
            for batch in scan.batches():
                self._queues.append(batch)
                self._index.put(batch)
                report.messages += len(batch)
                report.keys += len(batch.key_hash)
                self._timestamp = int(batch.messages["store_timestamp"][-1])
                last = int(batch.messages["physical_offset"][-1])
            report.damage += scan.damage
            self._end_offset = scan.end_offset
            report.position = scan.end.position
            if scan.end.unreadable and report.position < stop:
                self._lose(stop, file.path, scan.end.unreadable)
        head = None if last is None else self._head_at(last)
        if last is not None and head is not None:
            self._last = Mark.of(last, head)
            self._state.add(self._last, self._files[0].size)

    def _follow_expiry(self) -> None:
        """A broker deletes the files of its indexes that speak of nothing but expired messages."""
        begin = self._files[0].start
        if begin > self.report.log_begin:
            self.report.log_begin = begin
            expired = plan_of_indexes(self._output, begin)
            carry_out(expired, self._disk)
            self.report.expired_files += len(expired.queue_files) + len(expired.index_files)

    def _lose(self, stop: int, path: str, reason: str) -> None:
        position = self.report.position
        self.report.damage.append(Damage(position, stop - position, path, reason))
        self.report.position = stop


def _end(damage: Damage) -> int:
    return damage.physical_offset + damage.length
