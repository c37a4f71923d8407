"""Write queues into a database: the entries of messages, and the ends of queues.

Mirrors `RocksDBConsumeQueueStore.putMessagePosition` and `.truncateDirty`, and `RocksDBConsumeQueueOffsetTable` (tag
rocketmq-all-5.3.3). All additions of a batch (entries, ends of queues, and the offset up to which messages are
dispatched) are written at once, without a write-ahead log. After a crash the database is in the state after an earlier
batch, and missing entries are dispatched again from the CommitLog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reput.core import BatchSizeOf, DispatchBatch, Queue, QueueSetWriter
from reput.engine.compare import dispatched_entries
from reput.engine.five import rocksdb_database
from reput.engine.five.rocksdb_writer import opened_to_write
from reput.errors import FormatError
from reput.format.commit_log import SYS_FLAG_COMMIT, SYS_FLAG_INNER_BATCH, SYS_FLAG_TRANSACTION_MASK
from reput.format.dtypes import ROCKSDB_VALUE_DTYPE
from reput.format.rocksdb_queue import (
    CHECKPOINT_KEY,
    OFFSETS_FAMILY,
    VALUE_BYTES,
    QueueEnd,
    decode_checkpoint,
    decode_end,
    decode_value,
    encode_checkpoint,
    encode_end,
    end_key,
    entry_key,
    queue_offset_of,
    queue_prefix,
)


class RocksQueueSetWriter(QueueSetWriter):
    """A writer of queues in a database. One thread appends.

    The database states the physical offset up to which it has entries. The key of an entry contains its queue offset,
    so gaps need no filler entries. Nothing is synced: the database writes a table when its memory is full, and recovery
    dispatches the messages after the stated offset again. Readers must keep all entries in memory that are not yet in a
    table, so a table is written at least every `MOST_UNDISPATCHED` entries.
    """

    has_logics_timestamp = False

    def __init__(
        self, folder: Path, batch_size_of: BatchSizeOf, close_log: Callable[[], None] = lambda: None
    ) -> None:
        """Open the database in `folder`, which is consumequeue/.

        `batch_size_of` reads from the log, which `close_log` closes. Raises MissingExtraError, StoreAccessError,
        FormatError.
        """
        super().__init__()
        self.database = folder.name
        self._folder, self._batch_size_of, self._close_log = folder, batch_size_of, close_log
        self._database = opened_to_write(folder)
        self._next: dict[Queue, int] = {}
        self._unwritten = 0
        # Messages before this physical offset keep their entries, and are not appended again.
        self.begin = 0

    def checkpoint(self) -> int:
        """Return the physical offset up to which messages are dispatched. Raises StoreAccessError."""
        return decode_checkpoint(self._database.value(OFFSETS_FAMILY, CHECKPOINT_KEY))

    def cut(self, physical_offset: int) -> None:
        """Remove the entries of messages at or after an offset. Raises StoreAccessError.

        If a queue has no entries left, its stored end is removed as well. A broker keeps the entries instead: it only
        moves the ends of the queues back, and overwrites the entries later.
        """
        if self.checkpoint() <= physical_offset:
            # The database has no entries of messages at or after this offset.
            return
        changes = self._database.changes()
        for end in list(self._ends()):
            if end.physical_offset >= physical_offset:
                end_before = None
                for number, offset, key in self._backwards(end):
                    if offset < physical_offset:
                        end_before = offset, number
                        break
                    changes.delete(key)
                for which in (b"max", b"min") if end_before is None else ():
                    changes.delete(end_key(end.topic, end.queue_id, which), OFFSETS_FAMILY)
                if end_before is not None:
                    changes.put(
                        end_key(end.topic, end.queue_id), encode_end(*end_before), OFFSETS_FAMILY
                    )
        changes.put(CHECKPOINT_KEY, encode_checkpoint(physical_offset), OFFSETS_FAMILY)
        self._database.write(changes)
        # Without a write-ahead log, only a flush makes the changes durable.
        self._database.flush()

    def _ends(self) -> Iterator[QueueEnd]:
        for key, value in self._database.items(OFFSETS_FAMILY):
            if (end := decode_end(key, value)) is not None:
                yield end

    def _backwards(self, end: QueueEnd) -> Iterator[tuple[int, int, bytes]]:
        """Yield queue offset, physical offset and key of a queue's entries, from its end to its beginning."""
        prefix = queue_prefix(end.topic, end.queue_id)
        for key, value in self._database.items_before(entry_key(prefix, end.queue_offset)):
            number, entry = queue_offset_of(key, prefix), decode_value(value)
            if number is None:
                return
            if entry is None:
                raise FormatError(
                    str(self._folder), 0, f"queue offset {number}: the value is not an entry"
                )
            yield number, entry[0].physical_offset, key

    def load_ends(self, batch_topics: frozenset[str]) -> None:
        """Find the next queue offset of each queue. Raises StoreAccessError.

        In topics with batch queues, the stored end of a queue is the first queue offset of its last inner batch. After
        a restart, a broker continues with the second queue offset of this batch. This method continues after the whole
        batch.
        """
        for end in self._ends():
            size = 1
            if end.topic in batch_topics:
                size = self._batch_size_of(end.physical_offset)
            self._next[Queue(end.topic, end.queue_id)] = end.queue_offset + size

    def append(self, batch: DispatchBatch) -> list[tuple[Queue, int]]:
        changes = self._database.changes()
        ends: dict[Queue, int] = {}
        for queue, messages, queue_offset in dispatched_entries(batch):
            is_new = messages["physical_offset"] >= self.begin
            messages, queue_offset = messages[is_new], queue_offset[is_new]
            if not len(messages):
                continue
            keys, values = entry_keys(queue, queue_offset), entry_values(entry_columns(messages))
            self._unwritten += len(keys)
            for key, value in zip(keys, values, strict=True):
                changes.put(key, value)
            at, last = int(messages["physical_offset"][-1]), int(queue_offset[-1])
            changes.put(end_key(*queue), encode_end(at, last), OFFSETS_FAMILY)
            is_inner = int(messages["sys_flag"][-1]) & SYS_FLAG_INNER_BATCH
            ends[queue] = last + (self._batch_size_of(at) if is_inner else 1)
        # Write the checkpoint together with the entries, so that both have the same state after a crash.
        if (stop := _stop(batch)) is not None:
            changes.put(CHECKPOINT_KEY, encode_checkpoint(stop), OFFSETS_FAMILY)
        self._try(partial(self._database.write, changes), "RocksDB")
        if self._unwritten >= rocksdb_database.MOST_UNDISPATCHED:
            self._try(self._database.flush, "RocksDB")
            self._unwritten = 0
        self._next |= ends
        return list(ends.items())

    def ends(self) -> dict[tuple[str, int], int]:
        return {(topic, queue_id): end for (topic, queue_id), end in self._next.items()}

    def check_in_place(self) -> None:
        self._database.check_in_place()

    def disown(self) -> None:
        """In a forked child, leave the database to the parent. The child never closes it, not even when it ends."""
        self._database.disown()

    def close(self, sync: bool) -> None:
        """Write the entries that are still in memory to files, and close the database. Raises StoreAccessError."""
        self._close_log()
        self._database.close()


def _stop(batch: DispatchBatch) -> int | None:
    """Return the physical offset after the newest message that a broker dispatches to queues.

    Returns None if a broker dispatches no message of the batch.
    """
    messages = batch.messages
    kind = messages["sys_flag"] & SYS_FLAG_TRANSACTION_MASK
    dispatched = messages[(kind == 0) | (kind == SYS_FLAG_COMMIT)]
    if not len(dispatched):
        return None
    ends = dispatched["physical_offset"].astype(np.int64) + dispatched["size"]
    return int(ends.max())


def entry_columns(messages: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Return the values of these messages' entries, ROCKSDB_VALUE_DTYPE."""
    values = np.empty(len(messages), ROCKSDB_VALUE_DTYPE)
    for name in ROCKSDB_VALUE_DTYPE.names or ():
        values[name] = messages[name]
    return values


def entry_values(columns: npt.NDArray[np.void]) -> list[bytes]:
    """Return the stored values of entries."""
    # Stored values are big endian, even if the input is not.
    big_endian = columns.astype(ROCKSDB_VALUE_DTYPE, copy=False)
    values: list[bytes] = big_endian.view(f"V{VALUE_BYTES}").tolist()
    return values


def entry_keys(queue: Queue, queue_offset: npt.NDArray[Any]) -> list[bytes]:
    """Return the keys of one queue's entries."""
    prefix = np.frombuffer(queue_prefix(*queue), np.uint8)
    offsets = queue_offset.astype(">i8" if queue_offset.dtype.kind == "i" else ">u8")
    keys = np.empty((len(offsets), len(prefix) + offsets.itemsize), np.uint8)
    keys[:, : len(prefix)] = prefix
    keys[:, len(prefix) :] = offsets.view(np.uint8).reshape(len(offsets), -1)
    rows: list[bytes] = keys.view(f"V{keys.shape[1]}")[:, 0].tolist()
    return rows
