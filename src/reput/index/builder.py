"""IndexFile: topic#key -> positions in the CommitLog. The writing side, for a file built from its first entry on.

Mirrors `index/IndexFile.putKey` and the seeding in its constructor (tag rocketmq-all-4.9.3); the layout is described in
`reput.format.index_file`. A file is full at index_items - 1 entries. The first entry of a file that follows
another is stamped with the seconds since that one's last message, because the header is seeded with its end;
then the header takes the entry's own time. Recovery and readers check nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.config import StoreConfig
from reput.errors import IndexFullError
from reput.files.writer import FileWriter
from reput.format.index_file import (
    HEADER_BYTES,
    IndexHeader,
    encode_header,
    file_bytes,
    item_position,
)
from reput.kernels.index_chains import INDEX_COUNT, put_keys

_WINDOW_ITEMS = 1 << 16


class FileEnd(NamedTuple):
    """What an IndexFile hands on to the next: timestamp (ms) and physical offset of its last entry."""

    timestamp: int = 0
    physical_offset: int = 0

    def next_header(self) -> IndexHeader:
        """The header in memory of the next file before its first entry (IndexFile's constructor)."""
        timestamp, offset = max(self.timestamp, 0), max(self.physical_offset, 0)
        return IndexHeader(timestamp, timestamp, offset, offset, 0, 1)


class IndexFileBuilder:
    """Builds one file front to back: slots in memory, items written a window at a time.

    Memory: 4 bytes a slot and 1.3 MB. Nothing is a valid IndexFile before `close`. Leaving its context without that
    gives the file up.
    """

    def __init__(self, path: Path, config: StoreConfig, previous: FileEnd) -> None:
        self._config = config
        self._slots = np.zeros(config.hash_slots, np.uint32)
        self._window = np.empty((min(_WINDOW_ITEMS, config.index_items), 5), np.uint32)
        self._header = np.array(previous.next_header(), np.int64)
        size = file_bytes(config.hash_slots, config.index_items)
        self._file = FileWriter(path, size=size)

    def __enter__(self) -> IndexFileBuilder:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def put(
        self,
        key_hash: npt.NDArray[np.int32],
        key_row: npt.NDArray[np.int32],
        messages: npt.NDArray[np.void],
    ) -> None:
        """Put entries, one `putKey` each; `key_row` names each entry's row of `messages`.

        Raises IndexFullError when they do not fit, StoreAccessError.
        """
        done = 0
        while done < len(key_hash):
            first = int(self._header[INDEX_COUNT])
            stop = put_keys(
                self._header, self._slots, self._window, first, self._config.index_items,
                key_hash, key_row, messages, done, len(key_hash),
            )  # fmt: skip
            if stop == done:
                raise IndexFullError(f"{self._file.path}: holds {first - 1} entries and is full")
            items = self._window[: stop - done]
            self._file.write(items.data, item_position(self._config.hash_slots, first))
            done = stop
        self._file.start_writeback()

    def close(self, sync: bool = True) -> IndexHeader:
        """Write slots and header; with `sync`, make the file durable."""
        count = int(self._header[INDEX_COUNT])
        stored = self._header.tolist()
        # The broker writes the count with the first entry
        stored[INDEX_COUNT] = count if count > 1 else 0
        header = IndexHeader(*stored)
        if count > 1:
            self._file.write(self._slots.data, HEADER_BYTES)
        self._file.write(encode_header(header), 0)
        if sync:
            self._file.sync()
        self._file.close()
        return header
