"""How old a CommitLog file is: the store timestamp of the last message in it.

A broker goes by the file's modification time (`MappedFileQueue.deleteExpiredFileByTime`, tag rocketmq-all-4.9.3), which
a copy or a restored backup loses. The last message is found from the file's end, so that not all of it is read.
"""

from __future__ import annotations

import os
import struct

from reput.files.reader import FileReader
from reput.log.files import CommitLogFile
from reput.log.reader import CommitLogReader
from reput.log.record_search import find_record
from reput.log.walk import LogWalk

_FIRST_BYTES = 64 << 10
_GROWTH = 8
_LONG = struct.Struct(">q")


def newest_timestamp(log: CommitLogReader, file: CommitLogFile) -> int:
    """Store timestamp (ms) of the file's last message; where it has none, when it was last modified.

    Raises StoreNotFoundError, StoreAccessError.
    """
    length = _FIRST_BYTES
    while True:
        start = max(file.end - length, file.start)
        first: int | None = start
        if start > file.start:
            with FileReader(file.path) as reader:
                first = find_record(reader, file, start, file.end)
        timestamp = None if first is None else _last_timestamp(log, file, first)
        if timestamp is not None:
            return timestamp
        if start == file.start:
            return os.stat(file.path).st_mtime_ns // 1_000_000
        length *= _GROWTH


def _last_timestamp(log: CommitLogReader, file: CommitLogFile, start: int) -> int | None:
    """Of the last message from `start` on; None where that was no message's begin, as what follows shows."""
    walk, timestamp = LogWalk(log, start, file.end), None
    for _, data, layout in walk:
        timestamp = int(_LONG.unpack_from(data, layout.store_timestamp_position)[0])
    return None if walk.damage and start > file.start else timestamp
