"""All queues of a store in RocksDB, the writing side.

Mirrors `RocksDBConsumeQueueStore.putMessagePosition` and `.truncateDirty`, and `RocksDBConsumeQueueOffsetTable` (tag
rocketmq-all-5.3.3). What one batch adds (entries, the ends of their queues, the offset up to which messages are
dispatched) is one write, without a log of the database's own: after a crash the database is as it was at some earlier
batch, and what it lacks is dispatched again from the CommitLog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from reput.errors import FormatError, StoreAccessError
from reput.format.commit_log import (
    SYS_FLAG_COMMIT,
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_TRANSACTION_MASK,
)
from reput.format.rocksdb_queue import (
    CHECKPOINT_KEY,
    OFFSETS_FAMILY,
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
from reput.log.dispatch_batch import DispatchBatch, Queue
from reput.log.offset_range import OffsetRange
from reput.queues.batch_writer import BatchSizeOf
from reput.queues.rocksdb_dispatch import (
    dispatched_entries,
    entry_columns,
    entry_keys,
    entry_values,
)
from reput.queues.rocksdb_writer import opened_to_write
from reput.queues.set_writer import BatchEnd

_log = logging.getLogger("reput.dispatch")


class RocksQueueSetWriter:
    """Appends batches; one thread appends. It takes the place of a ConsumeQueueSetWriter.

    try_again             see ConsumeQueueSetWriter
    has_logics_timestamp  whether a broker notes the time of the newest entry in `checkpoint`
    """

    has_logics_timestamp = False

    def __init__(
        self, folder: Path, batch_size_of: BatchSizeOf, close_log: Callable[[], None] = lambda: None
    ) -> None:
        """Open the database in `folder`, consumequeue/. `batch_size_of` asks the log, which `close_log` closes.

        Raises MissingExtraError, StoreAccessError, FormatError.
        """
        self._folder, self._batch_size_of, self._close_log = folder, batch_size_of, close_log
        self._database = opened_to_write(folder)
        self._next: dict[Queue, int] = {}
        self.try_again: Callable[[int], bool] = lambda tries: False

    def checkpoint(self) -> int:
        """Physical offset up to which messages are dispatched. Raises StoreAccessError."""
        return decode_checkpoint(self._database.value(OFFSETS_FAMILY, CHECKPOINT_KEY))

    def cut(self, physical_offset: int) -> None:
        """Remove the entries of messages from there on. Raises StoreAccessError.

        A broker leaves them, sets back the ends of their queues, and overwrites them later. A queue without entries
        left has no end either.
        """
        if self.checkpoint() <= physical_offset:
            return
        changes = self._database.changes()
        for end in list(self._ends()):
            if end.physical_offset >= physical_offset:
                kept = None
                for number, offset, key in self._backwards(end):
                    if offset < physical_offset:
                        kept = offset, number
                        break
                    changes.delete(key)
                for which in (b"max", b"min") if kept is None else ():
                    changes.delete(end_key(end.topic, end.queue_id, which), OFFSETS_FAMILY)
                if kept is not None:
                    changes.put(end_key(end.topic, end.queue_id), encode_end(*kept), OFFSETS_FAMILY)
        changes.put(CHECKPOINT_KEY, encode_checkpoint(physical_offset), OFFSETS_FAMILY)
        self._database.write(changes)
        self._database.flush()

    def _ends(self) -> Iterator[QueueEnd]:
        for key, value in self._database.items(OFFSETS_FAMILY):
            if (end := decode_end(key, value)) is not None:
                yield end

    def _backwards(self, end: QueueEnd) -> Iterator[tuple[int, int, bytes]]:
        """Queue offset, physical offset and key of the entries of a queue from its end to its beginning."""
        prefix = queue_prefix(end.topic, end.queue_id)
        for key, value in self._database.items_before(entry_key(prefix, end.queue_offset)):
            number, entry = queue_offset_of(key, prefix), decode_value(value)
            if number is None:
                return
            if entry is None:
                raise FormatError(str(self._folder), 0, f"queue offset {number}: not an entry")
            yield number, entry[0].physical_offset, key

    def load_ends(self, batch_topics: frozenset[str]) -> None:
        """Find out what the next message of each queue gets.

        The end of a queue names the first number of its last inner batch (topics of batch queues): unlike a broker,
        which goes on with the second after a restart, this counts all of them. Raises StoreAccessError.
        """
        for end in self._ends():
            size = 1
            if end.topic in batch_topics:
                size = self._batch_size_of(end.physical_offset)
            self._next[Queue(end.topic, end.queue_id)] = end.queue_offset + size

    def append(self, batch: DispatchBatch) -> list[tuple[Queue, int]]:
        """Append a batch; returns each queue that grew with its new end. Raises StoreAccessError."""
        changes = self._database.changes()
        ends: dict[Queue, int] = {}
        for queue, messages, queue_offset in dispatched_entries(batch):
            keys, values = entry_keys(queue, queue_offset), entry_values(entry_columns(messages))
            for key, value in zip(keys, values, strict=True):
                changes.put(key, value)
            at, last = int(messages["physical_offset"][-1]), int(queue_offset[-1])
            changes.put(end_key(*queue), encode_end(at, last), OFFSETS_FAMILY)
            is_inner = int(messages["sys_flag"][-1]) & SYS_FLAG_INNER_BATCH
            ends[queue] = last + (self._batch_size_of(at) if is_inner else 1)
        if (stop := _stop(batch)) is not None:
            changes.put(CHECKPOINT_KEY, encode_checkpoint(stop), OFFSETS_FAMILY)
        self._write(changes)
        self._next |= ends
        return list(ends.items())

    def _write(self, changes: Any) -> None:
        """Tried again as RocksDBConsumeQueueStore.putMessagePosition does."""
        tries = 1
        while True:
            try:
                self._database.write(changes)
                return
            except StoreAccessError as error:
                _log.warning("append to RocksDB failed, %d times now: %s", tries, error)
                if not self.try_again(tries):
                    raise
                tries += 1

    def ends(self) -> dict[tuple[str, int], int]:
        """What the next message of each queue gets."""
        return {(topic, queue_id): end for (topic, queue_id), end in self._next.items()}

    def positions(self) -> dict[Queue, tuple[int, int]]:
        """None: the database itself knows how far it reaches."""
        return {}

    def batch_ends(self) -> dict[Queue, BatchEnd]:
        """None, for the same reason."""
        return {}

    def add_lost(self, found: Iterable[OffsetRange]) -> None:
        """Do nothing: an entry's key is its queue offset, so that gaps stay without an explanation."""

    def lost_ranges(self) -> tuple[OffsetRange, ...]:
        return ()

    def refused_bytes(self) -> dict[Queue, int]:
        return {}

    def sync(self, least_pages: int = 0) -> None:
        """Do nothing: the database writes a table when its memory is full, and recovery dispatches the rest again."""

    def check_in_place(self) -> None:
        """See `WritableDatabase.check_in_place`. Raises StoreFailedError, StoreAccessError."""
        self._database.check_in_place()

    def disown(self) -> None:
        """In a forked child: leave the database to the parent, at the end of the process, too."""
        self._database.disown()

    def close(self, sync: bool) -> None:
        """Write what is in memory, and close the database. Raises StoreAccessError."""
        self._close_log()
        self._database.close()


def _stop(batch: DispatchBatch) -> int | None:
    """Physical offset after the newest message that a broker dispatches to queues; None without one."""
    messages = batch.messages
    kind = messages["sys_flag"] & SYS_FLAG_TRANSACTION_MASK
    dispatched = messages[(kind == 0) | (kind == SYS_FLAG_COMMIT)]
    if not len(dispatched):
        return None
    ends = dispatched["physical_offset"].astype(np.int64) + dispatched["size"]
    return int(ends.max())
