"""Write ConsumeQueues with extension files from staged entries, in one pass over the log per pack.

A pack is a group of queues that one task writes. The module mirrors `ConsumeQueue.putMessagePositionInfoWrapper` and
`ConsumeQueueExt.put` (tag rocketmq-all-5.3.3). Each message has a unit (record) in the extension files of its own
queue. The entry holds the unit's address instead of the tags code. Entries in further queues (multi-dispatch) have no
unit and keep their tags code. The broker writes a unit before it checks the entry, so the unit of a refused entry
remains.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput.base import StoreConfig
from reput.core import (
    ConsumeQueueSetReader,
    ConsumeQueueWriter,
    DispatchBatch,
    ExtendedQueueReader,
    ExtensionWriter,
    LostRanges,
    OffsetRange,
    Queue,
    queue_folder,
)
from reput.engine.rebuild.batch_queues import Batches
from reput.errors import MessageNotFoundError, StoreError, is_transient
from reput.format.consume_queue_ext import ExtensionUnit, is_address
from reput.format.file_names import CONSUME_QUEUE_FOLDER, EXTENSION_FOLDER
from reput.io import DISK, LOCAL, Storage

_FIELDS = (
    "physical_offset", "size", "tags_code", "store_timestamp", "sys_flag", "queue", "queue_offset",
    "multi",
)  # fmt: skip
_MOST_BUFFERED_BYTES = 1 << 20


def write_extended_queues(
    store: str,
    batches: Batches,
    new: Path,
    config: StoreConfig,
    pack: Collection[Queue],
    lost: Sequence[OffsetRange],
    begun: Mapping[Queue, tuple[ConsumeQueueWriter, int]] | None = None,
    storage: Storage = LOCAL,
) -> tuple[int, int, int]:
    """Write queues; return the numbers of entries written, entries refused, and pre-blank entries.

    As in a broker, an entry is refused if the queue already has this entry, or if the entry's queue offset lies before
    the queue's end.

    Args:
        store: The store with the old extension files, from which filter bit maps are copied.
        batches: The staged batches, in log order.
        new: Folder that receives consumequeue/ and consumequeue_ext/.
        config: Sizes of files.
        pack: The queues to write (a group of queues that one task writes).
        lost: Ranges of the log that cannot be read.
        begun: For each queue that already has entries: its writer, and the position in bytes at which its units
            (records in the extension files) end.
        storage: Storage of the store.

    Raises:
        StoreAccessError.
    """
    count = total = 0
    lost_ranges = np.array(lost, np.int64).reshape(-1, 2)
    queues: dict[Queue, _ExtendedQueue] = {}
    DISK.create_folder(new / EXTENSION_FOLDER)
    with closing(ConsumeQueueSetReader(store, storage)) as old:
        for batch in batches(_FIELDS):
            for number, queue, rows, queue_offset in batch.by_queue():
                if queue not in pack:
                    continue
                if queue not in queues:
                    start = (begun or {}).get(queue)
                    queues[queue] = _ExtendedQueue(new, queue, config, old, start)
                count += queues[queue].append(batch, number, rows, queue_offset, lost_ranges)
                total += len(rows)
    for writer in queues.values():
        writer.close()
    return count, total - count, sum(writer.blanks for writer in queues.values())


class _ExtendedQueue:
    """Writes the entries of one queue, and their units (records in the extension files).

    If the store already has units of the queue, their filter bit maps are copied.
    """

    def __init__(
        self, new: Path, queue: Queue, config: StoreConfig, old: ConsumeQueueSetReader,
        begun: tuple[ConsumeQueueWriter, int] | None,
    ) -> None:  # fmt: skip
        if begun is None:
            folder = queue_folder(new / CONSUME_QUEUE_FOLDER, *queue)
            begun = ConsumeQueueWriter(folder, config.queue_entries), 0
        self._entries, position = begun
        # `append` writes the unit of a message even if the queue then refuses the entry, as a broker does. Messages up
        # to this physical offset already have entries and units in the queue, so they get no second unit.
        self._written = self._entries.max_physical_offset
        folder = queue_folder(new / EXTENSION_FOLDER, *queue)
        self._units = ExtensionWriter(folder, config.extension_file_bytes, position)
        self._known: ExtendedQueueReader | None = None
        with suppress(MessageNotFoundError):
            reader = old.queue(*queue)
            self._known = reader if isinstance(reader, ExtendedQueueReader) else None

    def append(
        self,
        batch: DispatchBatch,
        number: int,
        rows: npt.NDArray[np.int64],
        queue_offset: npt.NDArray[np.int64],
        lost: LostRanges,
    ) -> int:
        """Append entries, and units to the extension files. Return the number of appended entries.

        A message has a unit only in its own queue, not in further queues (multi-dispatch).
        """
        messages = batch.messages[rows]
        ends = messages["physical_offset"] + messages["size"]
        with_units = np.flatnonzero((messages["queue"] == number) & (ends > self._written))
        columns = (queue_offset[with_units], *(messages[name][with_units] for name in _UNIT_FIELDS))
        for row, offset, at, code, timestamp in zip(
            with_units.tolist(), *(column.tolist() for column in columns), strict=True
        ):
            bit_map = self._bit_map(offset, at)
            address = self._units.put(ExtensionUnit(code, timestamp, bit_map))
            if address is not None:
                messages["tags_code"][row] = address
        count = self._entries.append(messages, np.arange(len(rows)), queue_offset, lost)
        # Close the file, because thousands of queues would exhaust the file descriptors. The writer opens it again when
        # needed.
        self._entries.close(sync=False)
        return count

    @property
    def blanks(self) -> int:
        return self._entries.blanks

    def _bit_map(self, queue_offset: int, physical_offset: int) -> bytes:
        if self._known is None:
            return b""
        # A bit map cannot be computed from the log: it depends on the consumers' filters at dispatch.
        try:
            entry = self._known.stored_entry(queue_offset)
            # If the old entry leads to another message, its bit map is not valid for the message at `physical_offset`.
            # A bit map is stored in a unit (record) of the extension files. An old entry without the address of a unit
            # has no bit map.
            if entry.physical_offset != physical_offset or not is_address(entry.tags_code):
                return b""
            unit = self._known.units.unit(entry.tags_code)
        except StoreError as error:
            if is_transient(error):
                raise
            # The old queue is damaged, so the old bit map is lost. The new unit gets an empty bit map, which is valid:
            # the broker then evaluates filters on the message.
            return b""
        return b"" if unit is None else unit.bit_map

    def close(self) -> None:
        self._entries.close(sync=False)
        self._units.flush()
        self._units.close()


_UNIT_FIELDS = ("physical_offset", "tags_code", "store_timestamp")
