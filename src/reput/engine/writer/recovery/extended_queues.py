"""Recover ConsumeQueues with extension files when a store is opened for writing.

A unit is a record in the extension files. Each unit belongs to one entry of the ConsumeQueue. Recovery removes the
units after the unit of the queue's last entry, as `ConsumeQueueExt.truncateByMaxAddress` does (tag rocketmq-all-5.3.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput.base import StoreConfig
from reput.core import ExtensionFiles, Queue, offset_entries, queue_folder
from reput.engine.compare import resolve_units
from reput.engine.writer.recovery.queue_files import QueueFiles
from reput.format.consume_queue_ext import LAST_ADDRESS, position_of
from reput.format.dtypes import ENTRY_DTYPE, RawEntries
from reput.io import LOCAL, Disk, FileReader, OpenFiles

_BLOCK_ENTRIES = 1 << 12


class ExtendedQueueFiles(QueueFiles):
    """The files of a queue with extension files.

    An entry in these files has, instead of a tags code, the address of a unit in the extension files. Reading an entry
    replaces the address with the tags code of this unit.
    """

    has_units = True

    def __init__(self, folder: Path, queue_entries: int, units: Path) -> None:
        super().__init__(folder, queue_entries)
        self.units = units

    @classmethod
    def _in(cls, queues: Path, extensions: Path, name: Queue, config: StoreConfig) -> QueueFiles:
        units = queue_folder(extensions, *name)
        return cls(queue_folder(queues, *name), config.queue_entries, units)

    @staticmethod
    def cut_units(
        files_of: Mapping[Queue, QueueFiles],
        ends_of: Mapping[Queue, int],
        config: StoreConfig,
        disk: Disk,
    ) -> dict[Queue, int]:
        """Remove the units after the unit of each queue's last entry.

        Return, for each queue, the byte offset in its extension files after the last remaining unit. `ends_of` has the
        position after each queue's last entry. Raises StoreAccessError.
        """
        ends = {}
        for name, queue in files_of.items():
            if isinstance(queue, ExtendedQueueFiles):
                ends[name] = end = queue.units_end(ends_of.get(name, 0))
                _cut(queue.units, end, config.extension_file_bytes, disk)
        return ends

    def read_padded(self, position: int, count: int) -> RawEntries:
        """See QueueFiles.

        Each entry of the result has the tags code of its unit. If the unit is unreadable, the entry has the unit's
        address instead, which is never equal to a tags code.
        """
        data = super().read_padded(position, count)
        resolve_units(data.reshape(-1).view(ENTRY_DTYPE)["tags_code"], self.units)
        return data

    def _addresses(self, begin: int, stop: int) -> npt.NDArray[np.int64]:
        """Return the unit addresses in the entries from `begin` to `stop`."""
        data = super().read_padded(begin, stop - begin)
        codes = data.reshape(-1).view(ENTRY_DTYPE)["tags_code"]
        # The entry of a message in a further queue (multi-dispatch) has no unit. It contains the tags code itself, not
        # an address, so skip it.
        return codes[codes <= LAST_ADDRESS]

    def has_bit_maps(self, position: int) -> bool:
        """See QueueFiles."""
        with closing(OpenFiles(LOCAL.open)) as files:
            units = ExtensionFiles(str(self.units), files)
            for begin in range(max(position, self.first), self.stop, _BLOCK_ENTRIES):
                addresses = self._addresses(begin, min(begin + _BLOCK_ENTRIES, self.stop))
                for unit in map(units.unit, addresses.tolist()):
                    if unit is not None and unit.bit_map:
                        return True
        return False

    def units_end(self, position: int) -> int:
        """Return the byte offset at which the last unit of the entries before `position` ends.

        A unit is a record in the queue's extension files, to which an entry may refer. The byte offset is counted from
        the beginning of the extension files. `position` is a position in the queue. Returns 0 if no entry before
        `position` has a unit.
        """
        for stop in range(position, self.first, -_BLOCK_ENTRIES):
            addresses = self._addresses(max(stop - _BLOCK_ENTRIES, self.first), stop)
            if len(addresses):
                # Units are written in entry order, so the highest address belongs to the last unit.
                last = int(addresses.max())
                with closing(OpenFiles(LOCAL.open)) as files:
                    unit = ExtensionFiles(str(self.units), files).unit(last)
                return position_of(last) + (0 if unit is None else unit.size_bytes)
        return 0


def _cut(folder: Path, end: int, file_bytes: int, disk: Disk) -> None:
    # Cut the newest file first, so that a power cut leaves no hole between the files.
    for start, entry in reversed(offset_entries(str(folder))):
        path = Path(entry.path)
        if start >= end:
            disk.delete(path)
            disk.sync_folder(folder)
        elif start + file_bytes > end:
            with FileReader(str(path)) as reader:
                last = reader.last_nonzero(reader.size)
            with disk.open(path, file_bytes) as file:
                file.write_zeros(end - start, 0 if last is None else last + 1)
                # Sync even if nothing is cleared: the units before `end` may be in memory only.
                file.sync()
