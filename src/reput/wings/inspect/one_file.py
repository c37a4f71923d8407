"""One IndexFile and one ConsumeQueue as objects, with the methods that RocketMQ's classes of these names have.

They are for teaching, tools and tests: they create files, put entries and read them, without a store around them. Bytes
are written by the same code as in a store (`reput.core.index.writer`, `reput.core.queues.writer`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

import numpy as np

# `core` loads a writer, with its kernels, when it is first used.
from reput import core
from reput.base import Closing, StoreConfig, checked
from reput.core import is_time_matched, select_physical_offsets
from reput.errors import FormatError, ReputError, UsageError, explained
from reput.format.consume_queue import ENTRY_BYTES, MAX_QUEUE_OFFSET, PRE_BLANK, ConsumeQueueEntry
from reput.format.dtypes import MESSAGE_DTYPE
from reput.format.file_names import is_index_file_name
from reput.format.index_file import IndexHeader, key_hash
from reput.io import DISK, LOCAL, Disk, Location, is_open_for_writing, size_of
from reput.wings.inspect.index_listing import (
    Chain,
    ItemRow,
    SlotRow,
    chain_of,
    list_items,
    list_slots,
)
from reput.wings.inspect.inspection import index_file_at

Mode = Literal["r", "rw"]
_MOST = (1 << 63) - 1
_DEFAULTS = StoreConfig()


class IndexFile(Closing):
    """One IndexFile (`index/IndexFile`, tag rocketmq-all-4.9.3). A context manager; for one thread at a time.

    Attributes:
        path: path of the file
        hash_slots, index_items: its numbers of slots (`hashSlotNum`) and items (`indexNum`)
    """

    def __init__(self, path: str, geometry: core.IndexGeometry, mode: Mode) -> None:
        self.path, self.hash_slots, self.index_items = path, *geometry
        self._open: core.IndexFileReader | None = core.IndexFileReader(path, *geometry)
        self._writer: core.IndexFileWriter | None = None
        if mode == "rw":
            config = StoreConfig(hash_slots=geometry.hash_slots, index_items=geometry.index_items)
            try:
                self._writer = core.IndexFileWriter(Path(path), config, Disk())
            except ReputError:
                self.close()
                raise

    @property
    def _reader(self) -> core.IndexFileReader:
        if self._open is None:
            raise UsageError(f"{self.path}: the file is closed; open it again")
        return self._open

    @classmethod
    @checked
    def create(
        cls,
        path: str | PathLike[str],
        hash_slots: int = _DEFAULTS.hash_slots,
        index_items: int = _DEFAULTS.index_items,
        end_physical_offset: int = 0,
        end_timestamp: int = 0,
    ) -> IndexFile:
        """Create a file of full size without items, and open it for writing.

        Args:
            path: Path of the new file.
            hash_slots: Number of slots.
            index_items: Number of items; item 0 is never used.
            end_physical_offset, end_timestamp: The end of the previous IndexFile, with which a new file begins.

        Raises:
            UsageError: the file exists, or a number is not valid.
            StoreAccessError: the file cannot be created.
        """
        path = _new(path)
        if not is_index_file_name(path.name):
            raise UsageError(
                f"{path}: an IndexFile needs a number as its name, as 20261120232222031"
            )
        if not (0 <= end_physical_offset <= _MOST and 0 <= end_timestamp <= _MOST):
            raise UsageError("end_physical_offset and end_timestamp must be 0 to 2**63 - 1")
        if path.exists():
            raise UsageError(f"{path}: the file exists; open it instead")
        geometry = core.IndexGeometry(hash_slots, index_items)
        config = StoreConfig(hash_slots=hash_slots, index_items=index_items)
        with explained(path, "be created"):
            writer = core.IndexFileWriter(path, config, Disk())
            writer.seed(core.IndexFileEnd(end_timestamp, end_physical_offset))
            writer.close()
        return cls(str(path), geometry, "rw")

    @classmethod
    @checked
    def open(
        cls,
        path: str | PathLike[str],
        hash_slots: int | None = None,
        index_items: int | None = None,
        mode: Mode = "r",
    ) -> IndexFile:
        """Open an existing file.

        Args:
            path: Path of the file.
            hash_slots, index_items: Numbers of slots and items; by default derived from the file.
            mode: "r" to read the file, "rw" to put keys as well.

        Raises:
            StoreNotFoundError, StoreAccessError: the file is missing, or cannot be read.
            FormatError: the file's length does not fit the given slots and items.
            UsageError: the file is not an IndexFile, its numbers of slots and items are unknown, or it is to be written
                while another process has it open for writing.
        """
        path, geometry, _ = index_file_at(path, hash_slots, index_items)
        if _is_writable(mode):
            _refuse_in_use(path)
        return cls(path, geometry, mode)

    @property
    def header(self) -> IndexHeader:
        """Return the header as it is stored (`IndexHeader`). Raises StoreAccessError."""
        return self._reader.header()

    @property
    def is_full(self) -> bool:
        """Return whether no further key fits (`isWriteFull`): the index count has reached the number of items."""
        return self.header.next_item >= self.index_items

    @checked
    def put_key(self, key: str, physical_offset: int, store_timestamp: int) -> bool:
        """Put an item for a key, as `putKey` does.

        Args:
            key: The text that is hashed. In a store it is TOPIC#KEY (`buildKey`).
            physical_offset: Where the message begins in the CommitLog.
            store_timestamp: Store time of the message (ms).

        Returns:
            Whether the item was put; False if the file is full.

        Raises:
            UsageError: the file is open for reading only.
            StoreAccessError: the file cannot be written.
        """
        if self._writer is None:
            raise UsageError(f'{self.path}: open the file with mode="rw" to put keys')
        if not (0 <= physical_offset <= _MOST and -_MOST <= store_timestamp <= _MOST):
            raise UsageError("physical_offset and store_timestamp must fit into 64 bits")
        messages = np.zeros(1, MESSAGE_DTYPE)
        messages["physical_offset"], messages["store_timestamp"] = physical_offset, store_timestamp
        hashes, rows = np.array([key_hash(key)], np.int32), np.zeros(1, np.int32)
        return self._writer.put(hashes, rows, messages, 0) == 1

    @checked
    def select_physical_offsets(
        self, key: str, max_num: int = 64, begin: int = 0, end: int = _MOST
    ) -> list[int]:
        """Return physical offsets of items with a key's hash, newest first, as `selectPhyOffset` does.

        Messages of other keys with the same hash are among them. The broker's limits are kept: whole seconds, and an
        early stop at the first item before `begin`.

        Args:
            key: The text that is hashed, TOPIC#KEY.
            max_num: Maximum number of offsets.
            begin, end: Store times (ms), both inclusive.

        Raises StoreAccessError.
        """
        return select_physical_offsets(self._reader, key_hash(key), max_num, begin, end)

    @checked
    def is_time_matched(self, begin: int, end: int) -> bool:
        """Return whether the header's times (ms) overlap a window, as `isTimeMatched` does."""
        return is_time_matched(self.header, begin, end)

    def slots(self) -> Iterator[SlotRow]:
        """Yield the used slots. Raises StoreAccessError."""
        return list_slots(self._reader.path, core.IndexGeometry(self.hash_slots, self.index_items))

    def items(self) -> Iterator[ItemRow]:
        """Yield the items that the header counts, oldest first. Raises StoreAccessError."""
        return list_items(self._reader.path, core.IndexGeometry(self.hash_slots, self.index_items))

    @checked
    def chain(self, topic: str, key: str) -> Chain:
        """Return the chain of the slot of TOPIC#KEY. Raises StoreAccessError, and FormatError at a broken link."""
        geometry = core.IndexGeometry(self.hash_slots, self.index_items)
        return chain_of(self._reader.path, geometry, topic, key)

    def sync(self) -> None:
        """Make all items durable. Raises StoreAccessError."""
        if self._writer is not None:
            self._writer.sync()

    def close(self) -> None:
        """Close the file. Without `sync`, the system writes the last items when it likes."""
        if self._open is not None:
            self._open.close()
            self._open = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class ConsumeQueue(Closing):
    """The ConsumeQueue files of one queue (`ConsumeQueue`, tag rocketmq-all-4.9.3). For one thread at a time.

    Attributes:
        folder: folder of the files, .../consumequeue/TOPIC/QUEUE
    """

    def __init__(self, folder: str, writer: core.ConsumeQueueWriter | None) -> None:
        self.folder, self._writer = folder, writer
        self._open: core.ConsumeQueueReader | None = core.ConsumeQueueReader(folder)

    @property
    def _reader(self) -> core.ConsumeQueueReader:
        if self._open is None:
            raise UsageError(f"{self.folder}: the queue is closed; open it again")
        self._open.refresh()
        return self._open

    @classmethod
    @checked
    def create(
        cls, folder: str | PathLike[str], file_entries: int = _DEFAULTS.queue_entries
    ) -> ConsumeQueue:
        """Create an empty queue, and open it for writing.

        Args:
            folder: Folder of the queue's files, which may not have files yet.
            file_entries: Number of entries per file (`mappedFileSizeConsumeQueue` / 20).

        Raises:
            UsageError: the folder has files.
            StoreAccessError: the folder cannot be created.
        """
        path = _new(folder)
        with explained(path, "be created"):
            if path.exists() and any(path.iterdir()):
                raise UsageError(f"{path}: the folder has files; open the queue instead")
            with DISK.writing_to(path):
                Disk().make_folder(path)
        config = StoreConfig(queue_entries=file_entries)
        return cls(str(path), core.ConsumeQueueWriter(path, config.queue_entries))

    @classmethod
    @checked
    def open(cls, folder: str | PathLike[str], mode: Mode = "r") -> ConsumeQueue:
        """Open the queue in a folder: "r" to read it, "rw" to append entries as well.

        Raises:
            UsageError: the folder has no ConsumeQueue files, or the queue is to be written while another process has
                its last file open for writing.
            FormatError: the queue is to be written, and its files differ in size or an entry before its end is missing.
            StoreAccessError: the files cannot be read.
        """
        path = str(_new(folder))
        files = core.list_queue_files(path)
        if not files:
            raise UsageError(f"{path}: no ConsumeQueue files")
        if not _is_writable(mode):
            return cls(path, None)
        _refuse_in_use(files[-1].path)
        sizes = {size_of(file.path, LOCAL) for file in files}
        size = files[-1].count * ENTRY_BYTES
        if sizes != {size} or not size:
            raise FormatError(path, 0, "the files do not have one size, a multiple of 20 bytes")
        if any(before.stop != after.start for before, after in pairwise(files)):
            raise FormatError(path, 0, "a file of the queue is missing, or two overlap")
        reader = core.ConsumeQueueReader(path)
        stop = reader.max_queue_offset()
        end = -1
        if stop > files[0].start and (last := next(reader.entries(stop - 1, stop))) != PRE_BLANK:
            end = last.physical_offset + last.size
            if end > _MOST:
                raise FormatError(path, (stop - 1) * ENTRY_BYTES, "the last entry ends after 2**63")
        for _ in reader.entries(files[0].start, stop):
            pass
        position = stop if stop > files[0].start else None
        return cls(path, core.ConsumeQueueWriter(Path(path), files[0].count, position, end))

    @property
    def min_queue_offset(self) -> int:
        """Return the queue offset of the first entry that leads to a message (`getMinOffsetInQueue`)."""
        return self._reader.min_queue_offset()

    @property
    def max_queue_offset(self) -> int:
        """Return the queue offset that the next message gets (`getMaxOffsetInQueue`)."""
        return self._reader.max_queue_offset()

    @property
    def min_logical_offset(self) -> int:
        """Return the byte of the queue at which its first entry begins (`getMinLogicOffset`): 20 bytes per entry.

        In RocketMQ: logicOffset, minLogicOffset.
        """
        return self.min_queue_offset * ENTRY_BYTES

    @property
    def max_logical_offset(self) -> int:
        """Return the byte of the queue after its last entry (`getMaxLogicOffset` in articles): 20 bytes per entry.

        In RocketMQ: maxLogicOffset.
        """
        return self.max_queue_offset * ENTRY_BYTES

    @checked
    def entries(
        self, queue_offset: int = 0, stop: int | None = None
    ) -> Iterator[tuple[int, ConsumeQueueEntry]]:
        """Yield queue offsets and entries from `queue_offset` to before `stop`, by default to the end of the queue.

        Pre-blank entries are included. Raises FormatError at a missing entry, and StoreAccessError.

        In RocketMQ: logicsOffset.
        """
        files = core.list_queue_files(self.folder)
        first = max(queue_offset, files[0].start if files else 0)
        return self._reader.numbered(first, self.max_queue_offset if stop is None else stop)

    @checked
    def append(
        self, physical_offset: int, size: int, tags_code: int, queue_offset: int | None = None
    ) -> bool:
        """Append an entry, as `putMessagePositionInfo` does.

        Args:
            physical_offset: Where the record begins in the CommitLog.
            size: Size of the record.
            tags_code: Hash of the tags, or due time of a delayed message (`reput.format.properties.tags_code`).
            queue_offset: Queue offset that the record states; by default that of the next entry. A queue that begins
                above 0 begins with pre-blank entries.

        Returns:
            Whether the entry was appended; False if the queue already has an entry of this or a later record.

        Raises:
            UsageError: the queue is open for reading only, or a number is negative.
            StoreAccessError: the file cannot be written.
        """
        if self._writer is None:
            raise UsageError(f'{self.folder}: open the queue with mode="rw" to append entries')
        is_size = 1 <= size < 1 << 31 and -_MOST <= tags_code <= _MOST
        if not (is_size and 0 <= physical_offset <= _MOST - size):
            raise UsageError("physical_offset must be 0 to 2**63 - 1 - size, size 1 to 2**31 - 1")
        if queue_offset is not None and not 0 <= queue_offset < MAX_QUEUE_OFFSET:
            raise UsageError(f"queue_offset must be 0 to {MAX_QUEUE_OFFSET - 1}")
        number = self._writer.count if queue_offset is None else queue_offset
        messages = np.zeros(1, MESSAGE_DTYPE)
        messages["physical_offset"], messages["size"] = physical_offset, size
        messages["tags_code"], messages["queue_offset"] = tags_code, number
        rows, numbers = np.zeros(1, np.int64), np.array([number], np.int64)
        return self._writer.append(messages, rows, numbers) == 1

    def sync(self) -> None:
        """Make all entries durable. Raises StoreAccessError."""
        if self._writer is not None:
            self._writer.sync()

    def close(self) -> None:
        """Close the files."""
        if self._open is not None:
            self._open.close()
            self._open = None
        if self._writer is not None:
            self._writer.close(sync=False)
            self._writer = None


def _new(path: str | PathLike[str]) -> Path:
    """Return a local path. Raises UsageError for a URL, and for a path that no file can have."""
    text = fspath(path)
    if Location.is_url(text) or "\0" in text:
        raise UsageError(f"{text!r}: pass a local path")
    return Path(text)


def _is_writable(mode: Any) -> bool:
    if mode not in ("r", "rw"):
        raise UsageError(f'mode must be "r" or "rw", not {mode!r}', arguments=["mode"])
    return bool(mode == "rw")


def _refuse_in_use(path: str) -> None:
    # The writer that opens the file next reports a file that the system refuses.
    with suppress(OSError):
        if is_open_for_writing(path):
            raise UsageError(f"{path}: another process has the file open for writing")
