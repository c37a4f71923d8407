"""Read an IndexFile: from the hash of a key to physical offsets.

Mirrors `IndexFile.selectPhyOffset` (tag rocketmq-all-4.9.3) without its cap, time window and early stops, which are in
`reput.core.query.compat`. The layout is described in `reput.format.index_file`.

Nothing in the file is trusted. An item's chain must lead from its slot to ever older items of the same slot, and their
physical offsets must not increase. Any other chain is reported as broken.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reput.core.index.key_index import UntrustedIndexError
from reput.errors import CorruptMessageError, FormatError, MessageNotFoundError, StoreError
from reput.format.file_names import is_index_file_name
from reput.format.index_file import (
    HEADER,
    HEADER_BYTES,
    ITEM,
    ITEM_BYTES,
    SLOT_BYTES,
    IndexHeader,
    IndexItem,
    decode_header,
    decode_item,
    file_bytes,
    item_position,
    item_seconds,
)
from reput.io import LOCAL, PooledReader, Storage

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from reput.core.log.reader import CommitLogReader

# A slot, or another number of four bytes.
_SLOT = struct.Struct(">i")
_COUNT_AT = HEADER.positions["index_count"]
_CHAINED = "key_hash", "physical_offset", "previous"
_CHAINED_ITEM = ITEM.reader(*_CHAINED)
_ITEM_OFFSET = ITEM.reader("physical_offset")
# Three adjacent items: the offset of the first one, the fields of the middle one, the offset of the last one.
_NEIGHBOURS = struct.Struct(
    ">" + ITEM.whole("physical_offset") + ITEM.whole(*_CHAINED) + ITEM.whole("physical_offset")
)
_NEIGHBOURS_BYTES = _NEIGHBOURS.size
_SECONDS_AT = ITEM.positions["time_diff_s"]
OFFSET_MAX = 2**63 - 1
_READS_OF_HEADER = 5
# At most this many items of a chain are checked, because the chains of frequent keys are long.
_CHAIN_STEPS = 256
# The first items of many chains, up to this many per chain, are requested together. Later items are requested one by
# one.
_ANNOUNCED_STEPS = 16
_UNUSED = bytes(1 << 16)
# One read of this many slots takes less time than a few reads of one slot.
_FEW_SLOTS = 1 << 12
_SEARCHED_ITEMS = 1 << 16
# A power cut loses whole pages of memory, so slots are checked by page.
SLOT_PAGE_BYTES = 1 << 12


class BrokenChainError(UntrustedIndexError):
    """A chain of items is broken or circular, or leads to an item of another slot.

    `offset` is a position in the IndexFile.
    """


def index_paths(folder: Path) -> list[Path]:
    """Return the IndexFiles in a folder, oldest first; an empty list if the folder is missing.

    Raises StoreAccessError.
    """
    names = (entry.name for entry in LOCAL.list(str(folder)))
    return sorted(folder / name for name in names if is_index_file_name(name))


class IndexFileReader:
    """One IndexFile. Another process may be adding keys to it, or may cut it short.

    The file is read, not memory-mapped: if it were cut short, the next access to the map would kill this process.

    Raises StoreNotFoundError, StoreAccessError, and FormatError for a file whose size or header cannot be right. Every
    method raises StoreAccessError, StoreChangedError.
    """

    # A writer puts at most this many items between two updates of the header. So another process may have added up to
    # this many items that the header does not count yet.
    UNCOUNTED_ITEMS = 1 << 12

    __slots__ = (
        "_file", "_items_at", "_seen_next", "hash_slots", "index_items", "name", "path", "storage",
    )  # fmt: skip

    def __init__(
        self, path: str, hash_slots: int, index_items: int, storage: Storage = LOCAL
    ) -> None:
        self.path, self.name = path, path.rpartition("/")[2]
        self.hash_slots, self.index_items, self.storage = hash_slots, index_items, storage
        self._file = PooledReader(path, storage.open)
        self._items_at = item_position(hash_slots, 0)
        self._seen_next = 1
        try:
            self._check()
        except StoreError:
            self.close()
            raise

    def _check(self) -> None:
        size, expected = self._file.size, file_bytes(self.hash_slots, self.index_items)
        if size == 0:
            raise FormatError(self.path, 0, "the file is empty")
        if size != expected:
            geometry = f"{self.hash_slots} slots and {self.index_items} items"
            raise FormatError(self.path, size, f"{size} bytes, but {geometry} take {expected}")
        count = self.header().index_count
        if not 0 <= count <= self.index_items:
            raise FormatError(
                self.path,
                _COUNT_AT,
                f"index count {count}, but the file has room for {self.index_items} items",
            )

    def close(self) -> None:
        self._file.close()

    def read(self, position: int, length: int, dtype: type[np.uint32]) -> npt.NDArray[np.uint32]:
        """Return part of the file as an array."""
        # Imported here: loading NumPy would slow down every small query.
        import numpy as np

        data = np.empty(length, np.uint8)
        self._file.read_into(data, position)
        return data.view(dtype)

    def announce(self, numbers: Iterable[int]) -> None:
        """Prepare reads of items and their neighbours. Over a network, all of them are requested at once."""
        if not self.storage.is_local:
            before = self._items_at - ITEM_BYTES
            self._file.announce([before + n * ITEM_BYTES for n in numbers], _NEIGHBOURS_BYTES)

    def announce_chains(self, numbers: Sequence[int]) -> None:
        """Prepare calls of `reaches`: request the first items of all chains at once, then the second, and so on."""
        if self.storage.is_local:
            return
        self.announce(numbers)
        slots = [max(self.item(number).key_hash, 0) % self.hash_slots for number in numbers]
        self._file.announce([HEADER_BYTES + SLOT_BYTES * slot for slot in slots], SLOT_BYTES)
        chains = [(number, self.slot(slot)) for number, slot in zip(numbers, slots, strict=True)]
        for _ in range(_ANNOUNCED_STEPS):
            chains = [(to, item) for to, item in chains if to < item < self.index_items]
            if len(chains) < 2:
                break
            self.announce(item for _, item in chains)
            chains = [(to, self.item(item).previous) for to, item in chains]

    def header_bytes(self) -> bytes:
        """Return the bytes of the header as they are now."""
        return self._file.read(0, HEADER_BYTES)

    def header(self) -> IndexHeader:
        """Return the header as it is now."""
        return decode_header(self.header_bytes())

    @property
    def next_item(self) -> int:
        """Return the number that the next item gets; items 1 to next_item - 1 exist."""
        count: int = _SLOT.unpack(self._file.read(_COUNT_AT, _SLOT.size))[0]
        self._seen_next = min(max(count, 1), self.index_items)
        return self._seen_next

    def used_bytes(self) -> int:
        """Return the number of bytes up to the end of the last item that the header counts."""
        return self._items_at + ITEM_BYTES * self.next_item

    def item(self, number: int) -> IndexItem:
        """Return an item, 0 <= number < index_items."""
        return decode_item(self.item_bytes(number))

    def around(self, number: int) -> tuple[IndexItem, IndexItem, IndexItem]:
        """Return an item, 0 < number < index_items, between its neighbours; zeros if the file has none."""
        begin = self._items_at + ITEM_BYTES * (number - 1)
        count = min(_NEIGHBOURS_BYTES, ITEM_BYTES * (self.index_items - number + 1))
        data = self._file.read(begin, count).ljust(_NEIGHBOURS_BYTES, b"\0")
        before, item, after = (
            decode_item(data[at : at + ITEM_BYTES]) for at in range(0, len(data), ITEM_BYTES)
        )
        return before, item, after

    def item_bytes(self, number: int) -> bytes:
        """Return the bytes of an item."""
        return self._file.read(self._items_at + number * ITEM_BYTES, ITEM_BYTES)

    def offset(self, number: int) -> int:
        """Return the physical offset of an item."""
        at = self._items_at + number * ITEM_BYTES
        offset: int = _ITEM_OFFSET.unpack(self._file.read(at, _ITEM_OFFSET.size))[0]
        return offset

    def seconds(self, number: int) -> int:
        """Return an item's time difference in seconds."""
        at = self._items_at + number * ITEM_BYTES + _SECONDS_AT
        seconds: int = _SLOT.unpack(self._file.read(at, _SLOT.size))[0]
        return seconds

    def slot(self, number: int) -> int:
        """Return the number of the newest item of a slot, or a number <= 0 if the slot is empty or damaged.

        In RocketMQ: slotValue.
        """
        value: int = _SLOT.unpack(self._file.read(HEADER_BYTES + SLOT_BYTES * number, SLOT_BYTES))[
            0
        ]
        return value

    def few_newest(self, last: int) -> dict[int, int]:
        """Return a mapping from each slot's number to the newest of items 1 to `last` in the slot's chain.

        For a slot without such an item, the mapping has a number outside of 1 to `last` (see `newest_counted`).

        Return an empty mapping if the file has too many slots for one small read.
        """
        if not self.has_few_slots:
            return {}
        data = self._file.read(HEADER_BYTES, SLOT_BYTES * self.hash_slots)
        slots = enumerate(struct.unpack(f">{self.hash_slots}i", data))
        return {n: item if item <= last else self.newest_counted(n, last) for n, item in slots}

    @property
    def has_few_slots(self) -> bool:
        """Return whether one small read returns all slots."""
        return self.hash_slots <= _FEW_SLOTS

    def used_slots(self) -> int:
        """Count the slots that are not zero; reads them all."""
        used = 0
        for begin in range(HEADER_BYTES, self._items_at, len(_UNUSED)):
            part = self._file.read(begin, min(len(_UNUSED), self._items_at - begin))
            if part != _UNUSED:  # In a file with few entries, most slots are zero.
                slots = array("i", part)
                used += len(slots) - slots.count(0)
        return used

    @property
    def slot_pages(self) -> int:
        """Return the number of the file's pages that contain slots."""
        return self.slot_page_of(self.hash_slots - 1) + 1

    @staticmethod
    def slot_page_of(slot: int) -> int:
        """Return the number of the file's page that contains a slot."""
        return (HEADER_BYTES + SLOT_BYTES * slot) // SLOT_PAGE_BYTES

    def slot_page(self, page: int) -> array[int]:
        """Return the slots of a page (native byte order)."""
        at = page * SLOT_PAGE_BYTES
        begin, end = max(at, HEADER_BYTES), min(at + SLOT_PAGE_BYTES, self._items_at)
        slots = array("i", self._file.read(begin, end - begin))
        if sys.byteorder == "little":
            slots.byteswap()
        return slots

    def search(self, key_hash: int, last: int) -> Iterator[int]:
        """Yield the numbers of all items 1 to `last` with this hash, oldest first, without using the slots."""
        hash_bytes = _SLOT.pack(key_hash)
        for first in range(1, last + 1, _SEARCHED_ITEMS):
            begin = self._items_at + ITEM_BYTES * first
            end = self._items_at + ITEM_BYTES * min(first + _SEARCHED_ITEMS, last + 1)
            part = self._file.read(begin, end - begin)
            at = part.find(hash_bytes)
            while at >= 0:
                number, rest = divmod(at, ITEM_BYTES)
                # Only the first four bytes of an item are its hash. The same bytes may occur elsewhere in an item.
                if rest == 0:
                    yield first + number
                at = part.find(hash_bytes, at + ITEM_BYTES - rest)

    def links(self, last: int) -> list[tuple[int, int, int]]:
        """Return the key hash, physical offset and previous item of items 1 to `last`."""
        begin = self._items_at + ITEM_BYTES
        return list(_CHAINED_ITEM.iter_unpack(self._file.read(begin, ITEM_BYTES * last)))

    def is_consistent(self) -> bool:
        """Return whether header and items agree on begin and end. If they do not, a write was lost."""
        # A broker updates count and end one after the other, so a reader may see them disagree.
        for _ in range(_READS_OF_HEADER):
            last, header = self.next_item - 1, self.header()
            if last == 0 or self.item(last).physical_offset == header.end_physical_offset:
                return last == 0 or self.item(1).physical_offset == header.begin_physical_offset
        return False

    def agrees_on_time(self, log: CommitLogReader, number: int, begin_ms: int) -> bool:
        """Return whether an item's seconds, which count from `begin_ms`, agree with its message's store timestamp."""
        item = self.item(number)
        try:
            record = log.locate(item.physical_offset)
        except (MessageNotFoundError, CorruptMessageError):
            return False
        return item_seconds(record.store_timestamp(), begin_ms) == item.time_diff_s

    def newest_counted(self, slot: int, last: int) -> int:
        """Return the newest of items 1 to `last` in a slot's chain.

        Return a number outside of 1 to `last` if no such item is found.
        """
        number = self.slot(slot)
        # Skip newer items, which the header does not count yet.
        for _ in range(_CHAIN_STEPS):
            if not last < number < min(last + self.UNCOUNTED_ITEMS, self.index_items):
                break
            number = self.item(number).previous
        return number

    def reaches(self, number: int) -> bool:
        """Return whether an item is in the chain of its hash's slot. If the chain is very long, return True."""
        item = self.item(number)
        if item.key_hash < 0 or item.physical_offset < 0 or not 0 <= item.previous < number:
            return False
        reached = self.slot(item.key_hash % self.hash_slots)
        stop = min(self.next_item + self.UNCOUNTED_ITEMS, self.index_items)
        for _ in range(_CHAIN_STEPS):
            if not number < reached < stop:
                return reached == number
            reached = self.item(reached).previous
        # The chain is long, so its check ends here. The item may be further along the chain.
        return True

    def offsets(self, key_hash: int) -> Iterator[int]:
        """Yield physical offsets of the items with this hash, newest first.

        Raises BrokenChainError where the chain breaks; more items with this hash may exist.

        In RocketMQ: phyOffsets.
        """
        begin = self.chain_begin(key_hash)
        return iter(()) if begin is None else self.chain(key_hash, *begin)

    def chain_begin(self, key_hash: int) -> tuple[int, int] | None:
        """Return the item that the slot of this hash leads to, and the last item that the header counts.

        Return None for an empty slot.
        """
        item = self.slot(key_hash % self.hash_slots)
        if item == 0:
            return None
        # A slot leads to a new item before the header counts the item, so a chain may begin with uncounted items.
        counted = self._seen_next if item < self._seen_next else self.next_item
        return item, counted - 1

    def chain(
        self, key_hash: int, item: int, count: int, newest: int = OFFSET_MAX
    ) -> Iterator[int]:
        """Yield offsets as `offsets` does, beginning at an item of the chain.

        count   number of the last item that the header counts
        newest  physical offset of the last item with this hash that the caller has already read, if it has read the
                chain up to `item`. Offsets never increase along a chain, so an item with a higher offset is damaged
        """
        slots, most = self.hash_slots, self.index_items - 1
        slot, last = key_hash % slots, most
        position = HEADER_BYTES + SLOT_BYTES * slot
        read, items_at, unpack = self._file.read, self._items_at, _NEIGHBOURS.unpack
        while 0 < item <= last:
            position = items_at + ITEM_BYTES * item
            if item < most:
                # Inlined: a call of `_with_neighbours` takes twice as long.
                data = read(position - ITEM_BYTES, _NEIGHBOURS_BYTES)
                before, item_hash, offset, previous, after = unpack(data)
            else:
                before, item_hash, offset, previous, after = self._with_neighbours(item)
            if item > count:
                # Items that the header does not count yet are followed, but not returned. If such an item is of another
                # slot, the chain ends.
                if item_hash % slots != slot:
                    break
            elif item_hash == key_hash:
                is_in_order = (item == 1 or before <= offset) and (item == count or offset <= after)
                if not (0 <= offset <= newest and is_in_order):
                    raise BrokenChainError(self.path, position, f"item {item} is damaged")
                newest = offset
                yield offset
            elif item_hash % slots != slot:
                raise BrokenChainError(self.path, position, f"item {item} is not of slot {slot}")
            elif previous == 0 and not (
                # A partly lost write can end a chain in its middle: the lost link reads as zero.
                (item == 1 or before <= offset) and (item == count or offset <= after)
            ):
                raise BrokenChainError(self.path, position, f"item {item} is damaged")
            if previous == 0:
                return
            # Follow only links to older items, so that a damaged chain cannot become an endless loop.
            last, item = item - 1, previous
        reason = f"slot {slot}: its chain leads to item {item}, which is missing or not older"
        raise BrokenChainError(self.path, position, reason)

    def with_neighbours(self, numbers: Sequence[int]) -> bytes:
        """Return the bytes of items, each with its two neighbours. The file's first and last item are not allowed."""
        positions = [self._items_at + ITEM_BYTES * (number - 1) for number in numbers]
        return b"".join(self._file.read_each(positions, [_NEIGHBOURS_BYTES] * len(positions)))

    def is_in_order(self, number: int, last: int) -> bool:
        """Return whether the offset of item `number` lies between the offsets of the items before and after it.

        An item before item 1 or after item `last` does not count. If item `number` was partly lost, its offset is
        probably not in this order.
        """
        before, _, offset, _, after = self._with_neighbours(number)
        return (number == 1 or before <= offset) and (number >= last or offset <= after)

    def _with_neighbours(self, number: int) -> tuple[int, int, int, int, int]:
        """Return the previous item's offset; the item's key hash, offset and link; the next item's offset.

        For the last item for which the file has room, 0 is returned as the next item's offset.
        """
        begin = self._items_at + ITEM_BYTES * (number - 1)
        count = min(_NEIGHBOURS_BYTES, ITEM_BYTES * (self.index_items - number + 1))
        data = self._file.read(begin, count)
        fields: tuple[int, int, int, int, int] = _NEIGHBOURS.unpack(
            data.ljust(_NEIGHBOURS_BYTES, b"\0")
        )
        return fields
