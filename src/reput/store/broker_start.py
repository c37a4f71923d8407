"""Find where a starting broker begins to check a log, and where it then ends the log.

Mirrors `CommitLog.recoverNormally`, `.recoverAbnormally` and `isMappedFileMatchedRecover` (tags rocketmq-all-4.9.3,
rocketmq-all-5.3.3).
"""

from __future__ import annotations

from collections.abc import Callable

from reput.files.reader import FileReader, OpenFile
from reput.format.checkpoint import Checkpoint
from reput.format.commit_log import (
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    MIN_RECORD_BYTES,
    read_size_and_magic,
    read_size_and_physical_offset,
    read_store_timestamp,
)
from reput.log.files import CommitLogFile
from reput.queues.store_queues import KnownOffset

_CHECKED_FILES = 3
_CHECKPOINT_SLACK_MS = 3_000
_MAGICS = (MESSAGE_MAGIC, MESSAGE_MAGIC_V2)  # The second magic is of 5.x.


def first_file_to_check(
    files: list[CommitLogFile],
    checkpoint: Checkpoint,
    is_clean: bool,
    known: KnownOffset | None = None,
    open_file: OpenFile = FileReader,
) -> CommitLogFile:
    """Return the first log file whose records a broker checks when it starts.

    After a clean shutdown 4.9.3 starts with the third-last file, and 5.3.3 with the newest file that begins at or
    before `known`. After a crash both start with the newest file whose first message was stored well before the
    checkpoint's times. 5.3.3 with queues in RocksDB starts with the newest file whose first message states a physical
    offset at or before `known` (`recoverNormally`, `isMappedFileMatchedRecover`).

    Args:
        files: the log.
        checkpoint: checkpoint of the store.
        is_clean: `abort` does not exist.
        known: the end of the log according to the queues of a 5.x store; None for a store of 4.9.
        open_file: opens a file.
    """
    if is_clean and known is None:
        return files[-_CHECKED_FILES:][0]
    if is_clean and known is not None:
        return _newest(files, lambda file: file.start <= known.physical_offset)
    if known is not None and known.in_rocksdb:
        return _newest(files, lambda file: _says_it_lies_by(file, known.physical_offset, open_file))
    # This is `StoreCheckpoint.getMinTimestamp`, which subtracts three seconds.
    times = min(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp)
    latest = max(times - _CHECKPOINT_SLACK_MS, 0)
    return _newest(files, lambda file: _was_stored_by(file, latest, open_file))


def _newest(files: list[CommitLogFile], fits: Callable[[CommitLogFile], bool]) -> CommitLogFile:
    """Return the newest file that fits, or the oldest of all."""
    return next((file for file in reversed(files) if fits(file)), files[0])


def _first_record(file: CommitLogFile, open_file: OpenFile) -> bytes:
    """Return the head of a file's first record, or empty bytes if the file begins with something else.

    A broker reads only the head, so damage in the rest does not matter.
    """
    with open_file(file.path) as reader:
        head = reader.read(0, min(MIN_RECORD_BYTES, file.size))
    is_record = len(head) == MIN_RECORD_BYTES and read_size_and_magic(head, 0)[1] in _MAGICS
    return head if is_record else b""


def _was_stored_by(file: CommitLogFile, latest: int, open_file: OpenFile) -> bool:
    head = _first_record(file, open_file)
    timestamp = read_store_timestamp(head) if head else 0
    return timestamp != 0 and timestamp <= latest


def _says_it_lies_by(file: CommitLogFile, physical_offset: int, open_file: OpenFile) -> bool:
    head = _first_record(file, open_file)
    return bool(head) and read_size_and_physical_offset(head, 0)[1] <= physical_offset
