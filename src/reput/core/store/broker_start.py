"""Find the file at which a starting broker begins to check its log.

This mirrors `CommitLog.recoverNormally`, `recoverAbnormally` and `isMappedFileMatchedRecover` (tags
rocketmq-all-4.9.3, rocketmq-all-5.3.3).
"""

from __future__ import annotations

from collections.abc import Callable

from reput.core.log.files import CommitLogFile
from reput.core.queues.store_queues import KnownOffset
from reput.format.checkpoint import Checkpoint
from reput.format.commit_log import (
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    MIN_RECORD_BYTES,
    read_size_and_magic,
    read_size_and_physical_offset,
    read_store_timestamp,
)
from reput.io import FileReader, OpenFile

_CHECKED_FILES = 3
_CHECKPOINT_SLACK_MS = 3_000
# A 5.x broker writes a record with message version V2, and another magic, if the topic is longer than 127 bytes.
_MAGICS = (MESSAGE_MAGIC, MESSAGE_MAGIC_V2)


def first_file_to_check(
    files: list[CommitLogFile],
    checkpoint: Checkpoint,
    is_clean: bool,
    queues_end: KnownOffset | None = None,
    open_file: OpenFile = FileReader,
) -> CommitLogFile:
    """Return the first log file whose records a broker checks when it starts.

    The broker starts with:

    - after a clean shutdown, 4.9.3: the third-last file
    - after a clean shutdown, 5.3.3: the newest file that begins at or before `queues_end`
    - after a crash: the newest file whose first message was stored at least three seconds before the checkpoint's times
    - after a crash, 5.3.3 with queues in RocksDB: the newest file whose first message states a physical offset at or
      before `queues_end`

    Args:
        files: The files of the log.
        checkpoint: The checkpoint of the store.
        is_clean: Whether the store was shut down cleanly: `abort` does not exist.
        queues_end: The end of the log according to the queues of a 5.x store; None for a 4.9 store.
        open_file: Opens a file.
    """
    if is_clean and queues_end is None:
        return files[-_CHECKED_FILES:][0]
    if is_clean and queues_end is not None:
        return _newest(files, lambda file: file.start <= queues_end.physical_offset)
    if queues_end is not None and queues_end.is_stated:
        return _newest(
            files, lambda file: _says_it_lies_by(file, queues_end.physical_offset, open_file)
        )
    # Like `StoreCheckpoint.getMinTimestamp`, take the earlier time minus three seconds.
    times = min(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp)
    latest = max(times - _CHECKPOINT_SLACK_MS, 0)
    return _newest(files, lambda file: _was_stored_by(file, latest, open_file))


def _newest(files: list[CommitLogFile], fits: Callable[[CommitLogFile], bool]) -> CommitLogFile:
    """Return the newest file for which `fits` returns True, or else the oldest file."""
    return next((file for file in reversed(files) if fits(file)), files[0])


def _first_record(file: CommitLogFile, open_file: OpenFile) -> bytes:
    """Return the head of a file's first record; empty bytes if the file does not begin with a record.

    Like a broker, this does not notice damage in the rest of the record.
    """
    with open_file(file.path) as reader:
        head = reader.read(0, min(MIN_RECORD_BYTES, file.size))
    is_record = len(head) == MIN_RECORD_BYTES and read_size_and_magic(head, 0)[1] in _MAGICS
    return head if is_record else b""


def _was_stored_by(file: CommitLogFile, latest: int, open_file: OpenFile) -> bool:
    head = _first_record(file, open_file)
    timestamp = read_store_timestamp(head) if head else 0
    # `isMappedFileMatchedRecover` rejects a file whose first message has the time 0.
    return timestamp != 0 and timestamp <= latest


def _says_it_lies_by(file: CommitLogFile, physical_offset: int, open_file: OpenFile) -> bool:
    head = _first_record(file, open_file)
    return bool(head) and read_size_and_physical_offset(head, 0)[1] <= physical_offset
