"""Batch queues (5.x) written from what the scan staged: one walk over it, after all tasks, in this process.

Mirrors `BatchConsumeQueue.putBatchMessagePositionInfo` (tag rocketmq-all-5.3.3): an entry for each record, dropped
where the queue has one of a later record; files follow each other without a pre-blank.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from reput.errors import CorruptMessageError, MessageNotFoundError
from reput.files.writer import FileWriter, make_folder
from reput.format.batch_consume_queue import BATCH_ENTRY_BYTES, batch_entry, encode_batch_entry
from reput.format.commit_log import SYS_FLAG_INNER_BATCH
from reput.format.consume_queue import ConsumeQueueEntry
from reput.format.file_names import offset_file_name
from reput.format.properties import INNER_NUM
from reput.log.dispatch_batch import DispatchBatch, Queue
from reput.log.keyed_record import read_properties
from reput.log.reader import CommitLogReader
from reput.log.sources import StoreLog
from reput.queues.writer import queue_folder
from reput.rebuild.batch_file import read_batches

_FIELDS = (
    "physical_offset", "size", "tags_code", "store_timestamp", "sys_flag", "queue", "queue_offset",
    "multi",
)  # fmt: skip
_MOST_BATCH = (1 << 15) - 1


def write_batch_queues(
    store: str | Path, staged: Iterable[str], topics: frozenset[str], folder: Path, file_bytes: int
) -> int:
    """Write the queues of these topics below `folder`; return how many entries they have.

    Args:
        store: has the log, in which the number of messages of each inner batch stands.
        staged: what the scan left, in order of the log.
        topics: those with batch queues.
        folder: batchconsumequeue/ of the new store.
        file_bytes: of a file (mapperFileSizeBatchConsumeQueue).

    Raises:
        StoreAccessError, StoreChangedError.
    """
    queues: dict[Queue, _BatchQueueWriter] = {}
    make_folder(folder)
    with closing(CommitLogReader(StoreLog(store))) as log:
        for path in staged:
            for batch in read_batches(Path(path), _FIELDS):
                for number, queue in enumerate(batch.queues):
                    if queue.topic in topics:
                        if queue not in queues:
                            place = queue_folder(folder, *queue)
                            queues[queue] = _BatchQueueWriter(place, file_bytes)
                        _append(log, batch, number, queues[queue])
    for writer in queues.values():
        writer.flush()
    return sum(writer.count for writer in queues.values())


class _BatchQueueWriter:
    """Appends entries to the files of one queue."""

    def __init__(self, folder: Path, file_bytes: int) -> None:
        self._folder, self._file_bytes = folder, file_bytes
        self._entries, self._file = bytearray(), 0
        self._last = -1
        self.count = 0

    def put(self, entry: bytes, physical_offset: int) -> None:
        if physical_offset <= self._last:
            return
        if len(self._entries) + BATCH_ENTRY_BYTES > self._file_bytes:
            self.flush()
            self._file += 1
            self._entries.clear()
        self._entries += entry
        self._last = physical_offset
        self.count += 1

    def flush(self) -> None:
        if self._entries:
            make_folder(self._folder)
            path = self._folder / offset_file_name(self._file * self._file_bytes)
            with FileWriter(path, self._file_bytes) as file:
                file.write(bytes(self._entries), 0)
                file.sync()


def _append(
    log: CommitLogReader, batch: DispatchBatch, number: int, writer: _BatchQueueWriter
) -> None:
    grouped = batch.queue_entries()
    begin, end = int(grouped.bounds[number]), int(grouped.bounds[number + 1])
    rows = batch.messages[grouped.rows[begin:end]]
    columns = (
        rows["physical_offset"], rows["size"], rows["tags_code"], rows["store_timestamp"],
        grouped.queue_offset[begin:end], rows["sys_flag"],
    )  # fmt: skip
    for at, size, code, timestamp, base, flag in zip(*(c.tolist() for c in columns), strict=True):
        count = _inner_messages(log, at) if flag & SYS_FLAG_INNER_BATCH else 1
        entry = batch_entry(ConsumeQueueEntry(at, size, code), timestamp, base, count)
        writer.put(encode_batch_entry(entry), at)


def _inner_messages(log: CommitLogReader, physical_offset: int) -> int:
    """How many messages the record holds; 1 where it does not say."""
    try:
        stated = read_properties(log.locate(physical_offset)).get(INNER_NUM, "")
    except (MessageNotFoundError, CorruptMessageError):  # states another offset than its own
        return 1
    is_number = stated.isascii() and stated.isdigit() and len(stated) < 6
    return min(int(stated), _MOST_BATCH) if is_number else 1
