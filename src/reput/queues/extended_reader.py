"""ConsumeQueues whose entries have a unit in an extension file: the tags code is taken from there.

Mirrors `ConsumeQueueExt.get` (tag rocketmq-all-5.3.3). Where a unit cannot be read the entry keeps its address,
which is no tags code: whoever filters by tags then looks at the message itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from reput.errors import StoreNotFoundError
from reput.files.open_files import OpenFiles
from reput.files.storage import LOCAL, Storage
from reput.format.consume_queue import ConsumeQueueEntry
from reput.format.consume_queue_ext import (
    UNIT_BYTES,
    ExtensionUnit,
    decode_unit,
    is_address,
    position_of,
    unit_size,
)
from reput.queues.files import QueueFile, list_queue_files
from reput.queues.reader import ConsumeQueueReader


class ExtensionFiles:
    """The extension files of one queue.

    folder  <topic>/<queue id>, where they lie
    """

    def __init__(self, folder: str, open_files: OpenFiles, storage: Storage = LOCAL) -> None:
        self.folder, self._storage, self._open_files = folder, storage, open_files
        self._watch = storage.watch(folder)
        self._files: list[QueueFile] = []

    def unit(self, address: int) -> ExtensionUnit | None:
        """The unit with this address; None where there is none that can be read. Raises StoreAccessError."""
        if self._watch.changed():
            self._files = list_queue_files(self.folder, self._storage, 1)
        position = position_of(address)
        place = bisect_right(self._files, position, key=lambda file: file.start) - 1
        if place < 0 or position >= self._files[place].stop:
            return None
        file = self._files[place]
        try:
            reader, at = self._open_files.get(file.path, file.inode), position - file.start
            head = reader.read(at, min(UNIT_BYTES, file.count - at))
            size = unit_size(head) if len(head) == UNIT_BYTES else 0
            if not UNIT_BYTES <= size <= file.count - at:
                return None
            return decode_unit(head if size == UNIT_BYTES else reader.read(at, size))
        except StoreNotFoundError:  # expired
            return None

    def files_before(self, address: int) -> list[str]:
        """Files that end before the unit with this address, oldest first. Raises StoreAccessError."""
        if self._watch.changed():
            self._files = list_queue_files(self.folder, self._storage, 1)
        position = position_of(address)
        return [file.path for file in self._files if file.stop <= position]


class ExtendedQueueReader(ConsumeQueueReader):
    """A ConsumeQueueReader whose entries have their real tags codes."""

    def __init__(
        self, folder: str, units: ExtensionFiles, open_files: OpenFiles, storage: Storage = LOCAL
    ) -> None:
        super().__init__(folder, open_files, storage)
        self.units = units

    def entry(self, queue_offset: int) -> ConsumeQueueEntry:
        return self._resolved(super().entry(queue_offset))

    def entries(self, queue_offset: int, stop: int) -> Iterator[ConsumeQueueEntry]:
        return map(self._resolved, super().entries(queue_offset, stop))

    def stored_entry(self, queue_offset: int) -> ConsumeQueueEntry:
        """The entry as it is stored, with the address of its unit."""
        return super().entry(queue_offset)

    def unit_files_before(self, min_physical_offset: int) -> list[str]:
        """Extension files, oldest first, all of whose units are of messages before that offset."""
        stop = self.max_queue_offset()
        for number in range(self.min_queue_offset(min_physical_offset), stop):
            entry = self.stored_entry(number)
            if is_address(entry.tags_code):
                return self.units.files_before(entry.tags_code)
        return []

    def _resolved(self, entry: ConsumeQueueEntry) -> ConsumeQueueEntry:
        if not is_address(entry.tags_code):
            return entry
        unit = self.units.unit(entry.tags_code)
        return entry if unit is None else entry._replace(tags_code=unit.tags_code)
