"""ConsumeQueues with extension files, written from what the scan staged: one walk over it, in this process.

Mirrors `ConsumeQueue.putMessagePositionInfoWrapper` and `ConsumeQueueExt.put` (tag rocketmq-all-5.3.3): each message
of a queue has a unit, whose address takes the place of the tags code; an entry of a further queue keeps its tags code.
A unit is written before the entry is looked at, so one that the broker drops leaves its unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput.config import StoreConfig
from reput.errors import MessageNotFoundError, StoreError
from reput.files.writer import make_folder
from reput.format.consume_queue_ext import (
    ExtensionUnit,
    is_address,
)
from reput.format.file_names import CONSUME_QUEUE_FOLDER, EXTENSION_FOLDER
from reput.log.dispatch_batch import DispatchBatch, Queue
from reput.log.offset_range import OffsetRange
from reput.pipeline.batch_file import read_batches
from reput.pipeline.write_files import QueuesWritten
from reput.queues.kinds import queue_folder
from reput.queues.reader import ExtendedQueueReader
from reput.queues.store_queues import ConsumeQueueSetReader
from reput.queues.writer import ConsumeQueueWriter, ExtensionWriter, LostRanges

_FIELDS = (
    "physical_offset", "size", "tags_code", "store_timestamp", "sys_flag", "queue", "queue_offset",
    "multi",
)  # fmt: skip
_MOST_BUFFERED_BYTES = 1 << 20


def write_extended_queues(
    store: str,
    staged: Iterable[str],
    new: Path,
    config: StoreConfig,
    left_out: frozenset[str],
    lost: Sequence[OffsetRange],
) -> QueuesWritten:
    """Write the queues of all topics but those `left_out`.

    Args:
        store: whose own extension files tell the bit maps of units, as far as they are there.
        staged: what the scan left, in the order of the log.
        new: gets consumequeue/ and consumequeue_ext/.
        config: sizes of files.
        left_out: topics.
        lost: ranges of the log that cannot be read.

    Raises:
        StoreAccessError.
    """
    taken = given = 0
    lost_ranges = np.array(lost, np.int64).reshape(-1, 2)
    queues: dict[Queue, _ExtendedQueue] = {}
    make_folder(new / EXTENSION_FOLDER)
    with closing(ConsumeQueueSetReader(store)) as known:
        for path in staged:
            for batch in read_batches(Path(path), _FIELDS):
                grouped = batch.queue_entries()
                for number, queue in enumerate(batch.queues):
                    rows = grouped.rows[grouped.bounds[number] : grouped.bounds[number + 1]]
                    if queue.topic in left_out or not len(rows):
                        continue
                    if queue not in queues:
                        with suppress(StoreError):  # a topic that cannot name a folder
                            queues[queue] = _ExtendedQueue(new, queue, config, known)
                    if (writer := queues.get(queue)) is not None:
                        offsets = grouped.queue_offset[
                            grouped.bounds[number] : grouped.bounds[number + 1]
                        ]
                        taken += writer.append(batch, number, rows, offsets, lost_ranges)
                        given += len(rows)
    for writer in queues.values():
        writer.close()
    return QueuesWritten(taken, given - taken, sum(writer.blanks for writer in queues.values()))


class _ExtendedQueue:
    def __init__(
        self, new: Path, queue: Queue, config: StoreConfig, known: ConsumeQueueSetReader
    ) -> None:
        """Raises StoreError for a topic that cannot name a folder."""
        folder = queue_folder(new / CONSUME_QUEUE_FOLDER, *queue)
        self._entries = ConsumeQueueWriter(folder, config.queue_entries)
        folder = queue_folder(new / EXTENSION_FOLDER, *queue)
        self._units = ExtensionWriter(folder, config.extension_file_bytes)
        self._known: ExtendedQueueReader | None = None
        with suppress(MessageNotFoundError):
            reader = known.queue(*queue)
            self._known = reader if isinstance(reader, ExtendedQueueReader) else None

    def append(
        self,
        batch: DispatchBatch,
        number: int,
        rows: npt.NDArray[np.int64],
        queue_offset: npt.NDArray[np.int64],
        lost: LostRanges,
    ) -> int:
        """Append entries, and units for those of the queue's own messages. Returns how many were taken."""
        messages = batch.messages[rows]
        own = np.flatnonzero(messages["queue"] == number)
        columns = (queue_offset[own], *(messages[name][own] for name in _UNIT_FIELDS))
        for row, offset, at, code, timestamp in zip(
            own.tolist(), *(column.tolist() for column in columns), strict=True
        ):
            bit_map = self._bit_map(offset, at)
            address = self._units.put(ExtensionUnit(code, timestamp, bit_map))
            if address is not None:
                messages["tags_code"][row] = address
        taken = self._entries.append(messages, np.arange(len(rows)), queue_offset, lost)
        self._entries.close(sync=False)
        return taken

    @property
    def blanks(self) -> int:
        return self._entries.blanks

    def _bit_map(self, queue_offset: int, physical_offset: int) -> bytes:
        if self._known is None:
            return b""
        try:
            entry = self._known.stored_entry(queue_offset)
            if entry.physical_offset != physical_offset or not is_address(entry.tags_code):
                return b""
            unit = self._known.units.unit(entry.tags_code)
        except StoreError:
            return b""
        return b"" if unit is None else unit.bit_map

    def close(self) -> None:
        self._entries.close(sync=False)
        self._units.flush()
        self._units.close()


_UNIT_FIELDS = ("physical_offset", "tags_code", "store_timestamp")
