"""Compaction logs (5.x): the newest message of each key, and messages that are not compacted yet.

Mirrors `kv.CompactionLog` (tag rocketmq-all-5.3.3). The log of a queue is in a folder below
`compaction/compactionLog/`. It contains records as in a CommitLog. The physical offset of a record is its position in
this log. Compaction leaves gaps between the files. A file that compaction wrote ends with zeros, not with a blank
record.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from reput.base import Finding, Kind
from reput.core import COMPACTION_LOGS, CommitLogFile, CommitLogReader, LocatedRecord, StoreLog
from reput.errors import CorruptMessageError, MessageNotFoundError, StoreNotFoundError
from reput.format.commit_log import BLANK_BYTES, BLANK_MAGIC, read_size_and_magic
from reput.format.file_names import parse_queue_id
from reput.format.properties import KEYS
from reput.io import LOCAL, Storage


class CompactedQueue(NamedTuple):
    """A queue with a compaction log, and the folder of the log."""

    topic: str
    queue_id: int
    folder: str


def compacted_queues(store: str, storage: Storage = LOCAL) -> list[CompactedQueue]:
    """Return the queues of a store that have a compaction log, sorted. Raises StoreAccessError."""
    root = os.path.join(store, COMPACTION_LOGS)
    if storage.entry(root) is None:
        return []
    return sorted(
        CompactedQueue(topic.name, queue_id, queue.path)
        for topic in storage.list(root)
        if topic.is_dir()
        for queue in storage.list(topic.path)
        if queue.is_dir() and (queue_id := parse_queue_id(queue.name)) is not None
    )


class CompactedLog:
    """The records of one compaction log, oldest first.

    Attributes:
        damage: unreadable parts; complete after the iteration
    """

    def __init__(self, queue: CompactedQueue, storage: Storage = LOCAL) -> None:
        self._queue, self._storage = queue, storage
        self.damage: list[Finding] = []

    def __iter__(self) -> Iterator[LocatedRecord]:
        source = StoreLog(self._queue.folder, self._storage, (self._queue.folder,))
        try:
            log = CommitLogReader(source)
        # The log has no file yet.
        except StoreNotFoundError:
            return
        with closing(log):
            for file in log.files:
                yield from self._records(log, file)

    def latest(self) -> list[LocatedRecord]:
        """Return the newest record of each key, in log order. Omit keys whose newest record has no body.

        The key of a record is its whole property KEYS, even if it has several words.
        """
        newest: dict[str, LocatedRecord] = {}
        for record in self:
            keys = record.properties().get(KEYS, "")
            # Remove the older record first, so that the newer record is last in the order.
            newest.pop(keys, None)
            newest[keys] = record.alone()
        # A message without a body deletes its key (CompactionLog).
        return [record for record in newest.values() if record.layout.body_bytes]

    def _records(self, log: CommitLogReader, file: CommitLogFile) -> Iterator[LocatedRecord]:
        position = file.start
        while position + BLANK_BYTES <= file.end:
            size, magic = read_size_and_magic(log.read(file, position, BLANK_BYTES), 0)
            if magic == BLANK_MAGIC or (size, magic) == (0, 0):
                return
            try:
                record = log.locate(position, in_place=False)
            except (CorruptMessageError, MessageNotFoundError) as error:
                reason = error.reason if isinstance(error, CorruptMessageError) else "no record"
                kind = Kind.UNREADABLE_RECORD
                self.damage.append(file.lost(position, file.end, reason, kind))
                # Without a valid size, the next record cannot be found.
                return
            size = record.layout.total_bytes
            offset = record.keyed().stated_offset
            if offset == position:
                yield record
            else:
                reason = f"the record here states physical offset {offset}"
                self.damage.append(
                    file.lost(position, position + size, reason, Kind.MISPLACED_RECORD)
                )
            position += size
