"""Find the physical offset at which a starting broker begins to check its log.

The broker walks back from the newest file to the first one that fits, or else takes the oldest. What fits depends on
the release and on how the store was shut down:

    release   after a clean shutdown                        after a crash
    4.9.3     the third-last file, whatever it contains     a first record stored before the checkpoint's times
    5.3.3     a file name at or before the queues' end      the same; in RocksDB, a first record that states an offset
                                                            at or before the queues' end
    5.4, 5.5  a whole first record with the right CRC that  the same; for queues in files, the record must be stored
              states an offset at or before the queues' end  before the checkpoint's times instead

A broker of 5.4 or later also compares the offset with the marks of its other databases (`DispatchPoint.others`), and
takes the tenth file from the end if none before it fits (`commitLogRecoverMaxNum`).

This mirrors `CommitLog.recoverNormally`, `recoverAbnormally` and `isMappedFileMatchedRecover`, and
`CombineConsumeQueueStore.isMappedFileMatchedRecover` (tags rocketmq-all-4.9.3, 5.3.3, 5.4.0 and the classes of 5.5).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from os import PathLike, fspath
from typing import NamedTuple

from reput.core import FILE_FORM, CommitLogFile, CommitLogReader, first_readable_record, queue_forms
from reput.format.checkpoint import Checkpoint
from reput.format.commit_log import (
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    MIN_RECORD_BYTES,
    read_size_and_magic,
    read_size_and_physical_offset,
    read_store_timestamp,
)

# The first release that checks the whole first record of a file.
_RELEASE = "5.4"
_CHECKED_FILES = 3
_MOST_FILES = 10
_MORE_FILES = 3
_CHECKPOINT_SLACK_MS = 3_000
# A 5.x broker writes a record with message version V2, and another magic, if the topic is longer than 127 bytes.
_MAGICS = (MESSAGE_MAGIC, MESSAGE_MAGIC_V2)


class KnownOffset(NamedTuple):
    """The greatest physical offset in a store's queues, and whether the queues state that they have all entries before.

    ConsumeQueues show where their newest record ends. Batch queues show where their newest record begins. A database
    states the offset up to which it has entries. The offset is -1 if the store has no queue files, and 0 for a database
    without entries.
    """

    physical_offset: int
    is_stated: bool = False


def known_offset(store: str | PathLike[str]) -> KnownOffset:
    """Return the greatest physical offset in the queues of a store. The recovery of a 5.x broker uses it.

    Mirrors `ConsumeQueueStoreInterface.getMaxPhyOffsetInConsumeQueue` (tag rocketmq-all-5.3.3). Queues whose last
    entry cannot be read are ignored. If a store has queues in files and in RocksDB, a broker takes those in files
    (`combineAssignOffsetCQType`).

    Raises StoreAccessError, and for queues in RocksDB also FormatError and MissingExtraError.
    """
    path = fspath(store)
    in_files = FILE_FORM.end(path)
    if in_files < 0 and (stated := stated_offset(path)) is not None:
        return KnownOffset(stated, True)
    further = (form.end(path) for form in queue_forms(path) if not form.states_end)
    return KnownOffset(max((in_files, *further)))


def stated_offset(store: str | PathLike[str]) -> int | None:
    """Return the offset that queues in RocksDB state; None without such queues. Raises as `known_offset` does."""
    path = fspath(store)
    return next((form.end(path) for form in queue_forms(path) if form.states_end), None)


@dataclass(frozen=True, slots=True)
class DispatchPoint:
    """How far a store is dispatched, as its broker knows it when it starts.

    Attributes:
        checkpoint: The checkpoint of the store.
        is_clean: Whether the store was shut down cleanly: `abort` does not exist.
        queues_end: The end of the log according to the queues of a 5.x store; None for a 4.9 store.
        release: The release of the broker: "4.9", "5.3", "5.4" or "5.5".
        second_end: The end according to queues in RocksDB beside queues in files; None without them.
        others: The marks of the key index and of the transactions in RocksDB; empty if a broker does not use them.
        whole_records: Whether the CRCs of records are compared, not of bodies (`StoreConfig.check_record_crc`).
        is_accelerated: Whether the check begins at the dispatch point (`StoreConfig.accelerated_recovery`).
    """

    checkpoint: Checkpoint
    is_clean: bool
    queues_end: KnownOffset | None = None
    release: str = "4.9"
    second_end: int | None = None
    others: tuple[int, ...] = ()
    whole_records: bool = False
    is_accelerated: bool = False

    @property
    def latest(self) -> int:
        """Return the time (ms) up to which the checkpoint's files are complete.

        Like `StoreCheckpoint.getMinTimestamp`, take the earlier time minus three seconds.
        """
        times = min(self.checkpoint.physic_msg_timestamp, self.checkpoint.logics_msg_timestamp)
        return max(times - _CHECKPOINT_SLACK_MS, 0)


def checked_from(log: CommitLogReader, point: DispatchPoint) -> int:
    """Return the physical offset from which a broker checks records when it starts. Raises StoreAccessError."""
    first, end = _first_file(log, point), point.queues_end
    if end is not None and end.is_stated and point.is_accelerated and point.release >= _RELEASE:
        # If the dispatch point is not in this file, a broker checks the whole file, or does not start.
        dispatched = min((end.physical_offset, *point.others))
        if first.start < dispatched < first.end:
            return dispatched
    return first.start


def _first_file(log: CommitLogReader, point: DispatchPoint) -> CommitLogFile:
    files, end = log.files, point.queues_end
    if end is None:
        if point.is_clean:
            return files[-_CHECKED_FILES:][0]
    elif point.release >= _RELEASE:
        return _newest_right(log, point, end)
    elif point.is_clean:
        return _newest(log, lambda file: file.start <= end.physical_offset)
    elif end.is_stated:
        return _newest(log, lambda file: _says_it_lies_by(log, file, end.physical_offset))
    return _newest(log, lambda file: _was_stored_by(log, file, point.latest))


def _newest(log: CommitLogReader, fits: Callable[[CommitLogFile], bool]) -> CommitLogFile:
    """Return the newest file for which `fits` returns True, or else the oldest file."""
    return next((file for file in reversed(log.files) if fits(file)), log.files[0])


def _newest_right(log: CommitLogReader, point: DispatchPoint, end: KnownOffset) -> CommitLogFile:
    """Return the file from which a broker of 5.4 or later checks the log."""
    by_time = not point.is_clean and not end.is_stated
    more = _MORE_FILES

    def fits(file: CommitLogFile) -> bool:
        nonlocal more
        record = first_readable_record(log, file, whole_records=point.whole_records)
        if record is None or not record.store_timestamp():
            return False
        stated = record.stated_offset()
        is_before = (
            record.store_timestamp() <= point.latest if by_time else stated <= end.physical_offset
        )
        if not is_before or any(stated > mark for mark in point.others):
            return False
        if point.second_end is None or point.second_end <= 0 or stated <= point.second_end:
            return True
        # Queues in RocksDB that lag behind the files let the broker look at a few earlier files only.
        more -= 1
        return more < 0

    newest = log.files[-_MOST_FILES:]
    return next((file for file in reversed(newest) if fits(file)), newest[0])


def _first_head(log: CommitLogReader, file: CommitLogFile) -> bytes:
    """Return the head of a file's first record; empty bytes if the file does not begin with a record.

    Like a broker before 5.4, this does not notice damage in the rest of the record.
    """
    with closing(log.source.open(file.path)) as reader:
        head = reader.read(0, min(MIN_RECORD_BYTES, file.size))
    is_record = len(head) == MIN_RECORD_BYTES and read_size_and_magic(head, 0)[1] in _MAGICS
    return head if is_record else b""


def _was_stored_by(log: CommitLogReader, file: CommitLogFile, latest: int) -> bool:
    head = _first_head(log, file)
    timestamp = read_store_timestamp(head) if head else 0
    # `isMappedFileMatchedRecover` rejects a file whose first message has the time 0.
    return timestamp != 0 and timestamp <= latest


def _says_it_lies_by(log: CommitLogReader, file: CommitLogFile, physical_offset: int) -> bool:
    head = _first_head(log, file)
    return bool(head) and read_size_and_physical_offset(head, 0)[1] <= physical_offset
