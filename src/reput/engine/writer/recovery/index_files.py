"""Read the IndexFiles of a store after a crash, and remove the last items if they are invalid.

Items are numbered across all files. A broker trusts every file that it finds (`IndexService.load`, tag
rocketmq-all-4.9.3) and never removes an item. Here, the valid items of a file end before the first item that a broker
cannot have written: an item that does not point to the previous item of its slot, or whose message lies before the
previous item's message.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput.base import StoreConfig, usable_cpus
from reput.core import CommitLogReader, IndexFileWriter, index_paths
from reput.errors import ReputError
from reput.format import index_file
from reput.format.dtypes import RawEntries, item_hashes, item_offsets, raw_entries
from reput.format.file_names import INDEX_FOLDER
from reput.io import Disk, MappedFiles
from reput.kernels.entry_checks import check_items

_MOST_THREADS = 4


class FoundIndexFile:
    """One IndexFile, memory-mapped during recovery.

    count     number of its last valid item, plus 1; items are numbered from 1
    is_whole  whether header and slots refer to exactly the valid items
    problem   description of the damage, or an empty string
    """

    def __init__(self, path: Path, config: StoreConfig, maps: MappedFiles) -> None:
        """Map the file. Raises StoreAccessError."""
        self.path, self._config, self._maps = path, config, maps
        self.count, self.is_whole, self.problem = 1, False, ""
        self._has_size = False
        self.header = index_file.IndexHeader(0, 0, 0, 0, 0, 0)
        self._items_at = index_file.item_position(config.hash_slots, 0)
        size = path.stat().st_size
        if size != config.index_file_bytes:
            self.problem = f"has {size} bytes, not {config.index_file_bytes}"
            return
        self._has_size = True
        self.header = index_file.decode_header(self._bytes()[: index_file.HEADER_BYTES].tobytes())
        if not 1 < self.header.index_count <= config.index_items:
            self.problem = "has no entries"
        elif self.offset(1) != self.header.begin_physical_offset:
            self.problem = "its header does not match its first entry"
        else:
            self.count, self.is_whole = self.header.index_count, True

    def _bytes(self) -> npt.NDArray[np.uint8]:
        return self._maps.array(str(self.path))

    @property
    def items(self) -> RawEntries:
        """Return all items, as in the file."""
        return raw_entries(self._bytes()[self._items_at :])

    @property
    def is_begun(self) -> bool:
        """Return whether the file was created after a full one and has no items yet."""
        return self._has_size and 0 <= self.header.index_count <= 1

    @property
    def is_full(self) -> bool:
        return self.is_whole and self.count == self._config.index_items

    def check(self) -> None:
        """Check every item and slot, and end the file before the first wrong item."""
        if self.problem:
            return
        # `check_items` puts the number of the newest item of each slot into `newest`, as a broker would have written it
        # to the slot.
        newest = np.zeros(self._config.hash_slots, np.uint32)
        slots = self._bytes()[index_file.HEADER_BYTES : self._items_at].view(np.uint32)
        header, stop = self.header, int(check_items(self.items, self.count, newest))
        if stop < self.count:
            self.problem = f"item {stop} does not continue its slot"
        elif header.end_physical_offset != self.offset(stop - 1):
            self.problem = "its header does not match its last entry"
        elif header.hash_slot_count != np.count_nonzero(newest) or not np.array_equal(
            slots, newest.byteswap()
        ):
            self.problem = "its slots do not lead to its entries"
        self.count, self.is_whole = stop, not self.problem

    def offset(self, number: int) -> int:
        return int(item_offsets(self.items[number : number + 1])[0])

    def matching(
        self, number: int, key_hash: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]
    ) -> int:
        """Count the consecutive items from `number` on that have these hashes and physical offsets."""
        items = self.items[number : number + len(key_hash)]
        matches = (item_hashes(items) == key_hash) & (item_offsets(items) == offsets)
        return len(matches) if matches.all() else int(np.argmin(matches))

    def time_of(self, number: int) -> int:
        """Return the store timestamp (ms) of an item's message, rounded down to the second."""
        item = index_file.decode_item(self.items[number].tobytes())
        return self.header.begin_timestamp + item.time_diff_s * 1000

    def close(self) -> None:
        self._maps.close(str(self.path))


class RecoveredIndexFiles:
    """All IndexFiles of a store. Items are numbered over all files, from 0. Items from `stop` on are invalid.

    stop   number of the last valid item, plus 1
    notes  the problems found
    """

    def __init__(self, store: Path, config: StoreConfig) -> None:
        self._folder, self._config = store / INDEX_FOLDER, config
        maps = MappedFiles()
        self.files = [FoundIndexFile(path, config, maps) for path in index_paths(self._folder)]
        self.notes: list[str] = []
        self._firsts: list[int] = []
        self.stop = 0

    def check(self, from_name: str) -> None:
        """Find the first wrong item. Files with names before `from_name` are trusted."""
        before = self.stop = 0
        self.notes, self._firsts = [], []
        with ThreadPoolExecutor(min(_MOST_THREADS, usable_cpus())) as pool:
            list(
                pool.map(FoundIndexFile.check, [f for f in self.files if f.path.name >= from_name])
            )
        for place, file in enumerate(self.files):
            # `IndexService.getAndCreateLastIndexFile` creates the next file only when the last file is full. So a file
            # that is not full has lost items if another file follows.
            if place + 1 < len(self.files) and not file.problem and not file.is_full:
                file.problem = "is not full, although another file follows"
            if file.count > 1 and file.offset(1) < before:
                file.problem, file.count = "begins before the previous file ends", 1
            self._firsts.append(self.stop)
            self.stop += file.count - 1
            if file.problem:
                # An empty last file is normal: a broker creates it before the first item.
                if place + 1 < len(self.files) or not file.is_begun:
                    self.notes.append(f"{file.path}: {file.problem}")
                return
            before = file.offset(file.count - 1)

    def number(self, name: str, count: int) -> int | None:
        """Convert the end of the index, as a recovery point states it, to an item number counted over all files.

        Args:
            name: Name of the last IndexFile, or an empty string for an empty index.
            count: Number of the item after the file's last item. Items of a file are numbered from 1.

        Returns:
            The number over all files, or None if the file is missing or has fewer items.
        """
        if not name:
            return 0
        for first, file in zip(self._firsts, self.files, strict=False):
            if file.path.name == name and file.count >= count:
                return first + count - 1
        return None

    def _place(self, number: int) -> tuple[FoundIndexFile, int]:
        """Return the file of an item, and the item's number in it."""
        place = bisect_right(self._firsts, number) - 1
        return self.files[place], number - self._firsts[place] + 1

    def offset(self, number: int) -> int:
        file, item = self._place(number)
        return file.offset(item)

    def first_at(self, physical_offset: int, stop: int) -> int:
        """Return the number of the first item whose message is at or after `physical_offset`.

        Return `stop` if no item before `stop` has such a message.
        """
        return bisect_left(range(stop), physical_offset, key=self.offset)

    def matching(
        self, number: int, key_hash: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]
    ) -> int:
        """Count the consecutive items from `number` on that have these hashes and physical offsets."""
        done = 0
        while done < len(key_hash) and number + done < self.stop:
            file, item = self._place(number + done)
            part = slice(done, done + file.count - item)
            count = file.matching(item, key_hash[part], offsets[part])
            done += count
            if count < len(key_hash[part]):
                break
        return done

    def items(self, number: int, stop: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Return the key hashes and physical offsets of the items [number, stop)."""
        hashes, offsets = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
        while number < stop:
            file, item = self._place(number)
            items = file.items[item : min(file.count, item + stop - number)]
            hashes.append(item_hashes(items))
            offsets.append(item_offsets(items))
            number += len(items)
        return np.concatenate(hashes), np.concatenate(offsets)

    def cut(
        self, number: int, durable: int, log: CommitLogReader, disk: Disk, is_dirty: bool
    ) -> IndexFileWriter | None:
        """Keep the items before `number`, durably, and return a writer for the last remaining file.

        Items before `durable` are already durable. If `is_dirty`, as after a crash, bytes after the items are cleared.
        """
        # Files after the first damage are deleted as well: dispatch writes their items again, in sequence.
        count = [first < number for first in self._firsts].count(True)
        for file in reversed(self.files[count:]):
            file.close()
            disk.delete(file.path)
        if len(self.files) > count:
            disk.sync_folder(self._folder)
        del self.files[count:]
        last = None
        if count:
            file, item = self._place(number - 1)
            last = IndexFileWriter(file.path, self._config, disk)
            if is_dirty or not file.is_whole or item + 1 < file.count:
                last.cut(item + 1, _store_timestamp(log, file, item))
            last.sync()
            for first, full in zip(self._firsts, self.files[:-1], strict=False):
                # The process that wrote these items died, so they may exist only in the page cache.
                if durable < first + full.count - 1:
                    with disk.open(full.path, self._config.index_file_bytes) as written:
                        written.sync()
        return last

    def close(self) -> None:
        for file in self.files:
            file.close()


def _store_timestamp(log: CommitLogReader, file: FoundIndexFile, item: int) -> int:
    try:
        return log.get(file.offset(item)).store_timestamp
    # The message has expired, so take its store timestamp from the item, which has it in whole seconds.
    except ReputError:
        return file.time_of(item)
