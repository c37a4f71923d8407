"""Derive the geometry of an IndexFile, its numbers of slots and items, from the file, if its content proves them.

Many geometries fit one file size. A file of the default size is tested for the default geometry. Other files have two
candidates: either the items end at the last byte that is not zero, or the file is full and its header counts all of its
items. A geometry is accepted only if the slots and the chains of items agree with it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from reput.base import StoreConfig
from reput.core.index.reader import IndexFileReader
from reput.core.index.spot_checks import FEW_ITEMS, lost_items
from reput.errors import FormatError, StoreNotFoundError, UsageError
from reput.format.index_file import HEADER_BYTES, ITEM_BYTES, SLOT_BYTES, decode_header, file_bytes
from reput.io import LOCAL, SparseReader, Storage

# Arguments with which a caller can state the geometry.
_GIVEN = ("hash_slots", "index_items", "broker_config")
# A file that changes while it is tested is tested again, for half a second at most.
_LOOKS = 50
_PAUSE_S = 0.01
# The first number is the size of the sample: each sampled item should be in the chain of its slot. The second number is
# a step: a quicker first test examines only every 8th sampled item.
_ITEM_SAMPLES, _FIRST_STEP = 256, 8
# If a file has more items than this, a wrong geometry cannot pass the test of the chains.
_MANY_ITEMS = 256
# A broker maps the whole file, and Java cannot map more bytes at once.
_MOST_BYTES = (1 << 31) - 1


class IndexGeometry(NamedTuple):
    """Numbers of slots and items of an IndexFile."""

    hash_slots: int
    index_items: int

    @property
    def file_bytes(self) -> int:
        return file_bytes(self.hash_slots, self.index_items)

    @staticmethod
    def default() -> IndexGeometry:
        """Return the numbers in a broker's default settings."""
        return _DEFAULT


_DEFAULT = IndexGeometry(StoreConfig().hash_slots, StoreConfig().index_items)


def from_slots(size: int, hash_slots: int) -> IndexGeometry | None:
    """Return the geometry of a file of this size with `hash_slots` slots; None if no number of items fits."""
    # Item 0 is never used, so a file with an entry has at least two items.
    items, rest = divmod(size - HEADER_BYTES - SLOT_BYTES * hash_slots, ITEM_BYTES)
    return (
        IndexGeometry(hash_slots, items) if rest == 0 and hash_slots >= 1 and items >= 2 else None
    )


def from_items(size: int, index_items: int) -> IndexGeometry | None:
    """Return the geometry of a file of this size with `index_items` items; None if no number of slots fits."""
    slots, rest = divmod(size - HEADER_BYTES - ITEM_BYTES * index_items, SLOT_BYTES)
    return (
        IndexGeometry(slots, index_items) if rest == 0 and slots >= 1 and index_items >= 2 else None
    )


def work_out(
    path: str, size: int, storage: Storage = LOCAL, count: int | None = None
) -> IndexGeometry | None:
    """Return the geometry that matches the file's content; None if several geometries match, or no geometry does.

    A file that is being written may be inconsistent, so it is read again as long as its count changes. `count` is the
    count in its header, if the caller has just read it.

    Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    if size > _MOST_BYTES:
        return None
    for _ in range(_LOOKS):
        before = _index_count(path, size, storage) if count is None else count
        count = None
        geometry = _work_out(path, size, before, storage) if before else None
        if geometry is not None or _index_count(path, size, storage) == before:
            return geometry
        time.sleep(_PAUSE_S)
    return None


def _work_out(path: str, size: int, count: int, storage: Storage) -> IndexGeometry | None:
    is_default_size = size == _DEFAULT.file_bytes
    # If the default geometry passes all tests, no other geometry can. So skip the search for another geometry, which
    # would read more of the file: from its end back to the last nonzero byte.
    if is_default_size and _agrees(path, _DEFAULT, storage, beyond_doubt=True):
        return _DEFAULT
    with storage.open(path) as reader:
        candidates = {from_items(size, count), _from_last_item(reader, size, count)}
        if is_default_size:
            candidates.add(_DEFAULT)
    fitting = [one for one in candidates if one is not None and _agrees(path, one, storage)]
    return fitting[0] if len(fitting) == 1 else None


def _from_last_item(reader: SparseReader, size: int, count: int) -> IndexGeometry | None:
    """Derive the geometry from the last nonzero byte: it shows where the last used item lies."""
    last_byte = reader.last_nonzero(size) or 0
    # The place for items ends at the end of the file, so each item begins at a multiple of ITEM_BYTES before the end.
    # The last used item is the one with the last nonzero byte.
    begin = size - -(-(size - last_byte) // ITEM_BYTES) * ITEM_BYTES
    slots, rest = divmod(begin - ITEM_BYTES * (count - 1) - HEADER_BYTES, SLOT_BYTES)
    return from_slots(size, slots) if rest == 0 else None


def _agrees(
    path: str, geometry: IndexGeometry, storage: Storage, *, beyond_doubt: bool = False
) -> bool:
    """Return whether header, slots and a sample of the items are consistent with a geometry.

    Args:
        beyond_doubt: Return True only if no other geometry can be consistent. For a file with few items, all of them
            must be linked and match the header's offsets.
    """
    try:
        file = IndexFileReader(path, *geometry, storage)
    except FormatError:
        return False
    try:
        if beyond_doubt and file.next_item <= _MANY_ITEMS and not _is_unmistakable(file):
            return False
        # The test that reads less comes first: `_counts_agree` may read all slots.
        if file.has_few_slots:
            return _counts_agree(file) and _chains_agree(file)
        return _chains_agree(file) and _counts_agree(file)
    finally:
        file.close()


def _counts_agree(file: IndexFileReader) -> bool:
    header = file.header()
    # Every used slot leads to at least one item.
    if not 1 <= header.hash_slot_count <= min(file.hash_slots, header.index_count - 1):
        return False
    # In a small file, a wrong geometry may pass the test of the chains, so the used slots are counted as well.
    return header.index_count > _MANY_ITEMS or header.hash_slot_count == file.used_slots()


def _chains_agree(file: IndexFileReader) -> bool:
    """Return whether most items are in the chain of their hash's slot. With a wrong geometry, hardly any is.

    The other items may be damaged, which is examined after the geometry is known.
    """
    last = file.next_item - 1
    if last <= FEW_ITEMS:
        return 4 * len(lost_items(file, last)) <= last
    # A geometry is accepted if at least three quarters of the sampled items are in their chains.
    sample = range(last, 0, -max(last // _ITEM_SAMPLES, 1))
    few = sample[::_FIRST_STEP]
    file.announce_chains(few)
    if all(map(file.reaches, few)):
        return True
    file.announce_chains(sample)
    return 4 * sum(map(file.reaches, sample)) >= 3 * len(sample)


def _is_unmistakable(file: IndexFileReader) -> bool:
    """Return whether the geometry of a file with few items is certain.

    All items must have a hash, match the header, and be in the chains of their slots.
    """
    last = file.next_item - 1
    has_hashes = all(key_hash for key_hash, _, _ in file.links(last))
    return has_hashes and file.is_consistent() and not lost_items(file, last)


class GeometryFinder:
    """Finds the geometry (numbers of slots and items) of IndexFiles by the caller's settings and the files' content."""

    def __init__(
        self, hash_slots: int | None, index_items: int | None, storage: Storage = LOCAL
    ) -> None:
        self._hash_slots, self._index_items, self._storage = hash_slots, index_items, storage
        self._by_size: dict[int, IndexGeometry] = {}

    def find(self, files: list[tuple[str, int]]) -> dict[int, IndexGeometry]:
        """Return a geometry for each file size. `files` are pairs (path, size).

        Files whose size is missing in the result are damaged.

        Raises UsageError if there are entries and no geometry fits any file.
        """
        undecided = ""
        for path, size, count in self._best_first(files):
            try:
                if size in self._by_size:
                    continue
                geometry = (
                    self._known(size)
                    if self._is_given
                    else work_out(path, size, self._storage, count)
                )
            except StoreNotFoundError:  # The file expired after the folder was listed.
                continue
            if geometry is not None:
                self._by_size[size] = geometry
            elif not self._is_cut_short(size):
                undecided = undecided or self._explain(path, size)
        if undecided and not self._by_size:
            raise UsageError(undecided, arguments=_GIVEN)
        return self._by_size

    def _best_first(self, files: list[tuple[str, int]]) -> Iterator[tuple[str, int, int]]:
        """Yield (path, size, index count) of each file that has items, newest first.

        Files with too few items to show their geometry come last.
        """
        last = []
        for path, size in reversed(files):
            if size in self._by_size:
                continue
            count = 0
            with suppress(StoreNotFoundError):  # The file has expired.
                count = _index_count(path, size, self._storage)
            if count > _MANY_ITEMS:
                yield path, size, count
            elif count:
                last.append((path, size, count))
        yield from last

    @property
    def _is_given(self) -> bool:
        return self._hash_slots is not None or self._index_items is not None

    def _known(self, size: int) -> IndexGeometry | None:
        if self._hash_slots is not None and self._index_items is not None:
            given = IndexGeometry(self._hash_slots, self._index_items)
            return given if given.file_bytes == size else None
        if self._hash_slots is not None:
            return from_slots(size, self._hash_slots)
        return from_items(size, self._index_items) if self._index_items is not None else None

    def _is_cut_short(self, size: int) -> bool:
        """Return whether the caller stated the numbers of slots and items, and the file is too short for them."""
        if self._hash_slots is None or self._index_items is None:
            return False
        return size < file_bytes(self._hash_slots, self._index_items)

    def _explain(self, path: str, size: int) -> str:
        options = "hash_slots and index_items, or broker_config"
        if not self._is_given:
            return f"{path}: its numbers of slots and items are uncertain; pass {options}"
        slots, items = self._hash_slots or "any number of", self._index_items or "any number of"
        return f"{path}: {size} bytes do not fit {slots} slots and {items} items; check {options}"


def _index_count(path: str, size: int, storage: Storage) -> int:
    """Return the header's index count; 0 if the file has no items, or is too short for this count."""
    if size < file_bytes(1, 2):
        return 0
    with storage.open(path) as reader:
        count = decode_header(reader.read(0, HEADER_BYTES)).index_count
    return count if 1 < count <= (size - file_bytes(1, 0)) // ITEM_BYTES else 0
