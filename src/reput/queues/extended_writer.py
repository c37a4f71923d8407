"""Units of ConsumeQueue entries in extension files, the writing side.

Mirrors `ConsumeQueue.putMessagePositionInfoWrapper` and `ConsumeQueueExt.put` (tag rocketmq-all-5.3.3): each message of
a queue has a unit, whose address takes the place of the tags code; an entry of a further queue keeps its tags code.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput.files.disk import Disk
from reput.format.consume_queue_ext import (
    END_BYTES,
    FILE_END,
    MAX_UNIT_BYTES,
    ExtensionUnit,
    address_of,
    encode_unit,
)
from reput.queues.queue_files import QueueFiles

_MOST_BUFFERED_BYTES = 1 << 20


class ExtensionWriter:
    """Appends units to the extension files of one queue; each file has the whole size from the beginning.

    position  byte offset at which the next unit begins, at the earliest
    """

    def __init__(
        self, folder: Path, file_bytes: int, position: int = 0, disk: Disk | None = None
    ) -> None:
        self._file_bytes, self.position = file_bytes, position
        self._files = QueueFiles(folder, file_bytes, 1, disk, position)
        self._buffer = bytearray()

    def put(self, unit: ExtensionUnit) -> int | None:
        """The address of the unit; None where the broker would not write it. Raises StoreAccessError."""
        data = encode_unit(unit) if unit.size_bytes <= MAX_UNIT_BYTES else b""
        if not data or len(data) + END_BYTES > self._file_bytes:
            return None
        within = self.position % self._file_bytes
        if within + len(data) + END_BYTES > self._file_bytes:
            self._buffer += FILE_END
            self.position += len(FILE_END)
            self.flush()
            self.position += self._file_bytes - self.position % self._file_bytes
        address = address_of(self.position)
        self._buffer += data
        self.position += len(data)
        if len(self._buffer) >= _MOST_BUFFERED_BYTES:
            self.flush()
        return address

    def put_all(self, messages: npt.NDArray[np.void]) -> None:
        """Put a unit without a bit map for each message, and its address in place of the message's tags code."""
        codes, times = messages["tags_code"], messages["store_timestamp"]
        for row, (code, time) in enumerate(zip(codes.tolist(), times.tolist(), strict=True)):
            address = self.put(ExtensionUnit(code, time, b""))
            if address is not None:
                codes[row] = address
        self.flush()

    def flush(self) -> None:
        """Write what is buffered. Raises StoreAccessError."""
        if self._buffer:
            with memoryview(bytes(self._buffer)) as data:
                self._files.write(data, self.position - len(data))
            self._buffer.clear()

    def sync(self) -> None:
        """Make the units durable. Raises StoreAccessError."""
        self._files.sync(self.position)

    def close(self) -> None:
        """Close the files; units can still be put."""
        self._files.close(sync=False)
