"""The IndexFiles of two stores compared: their entries whatever file holds them, and their headers."""

from __future__ import annotations

import numpy as np

from reput.compare.columns import Column, unmatched
from reput.examine.comparing.difference import Difference, Example, Part, Way, What
from reput.format.index_file import IndexHeader
from reput.index.entries import IndexEntries
from reput.index.reader import IndexFileReader
from reput.query.message_store import MessageStore

MOST_ITEMS = 4 << 20  # of one store, held at once
_OFFSETS_A_PART = 16  # bits of the physical offset that stay together
Stores = tuple[MessageStore, MessageStore]


def compare_index(stores: Stores, found: Difference) -> None:
    """Add what differs: entries by key hash and, where offsets are the same, physical offset.

    Raises StoreAccessError, StoreChangedError.
    """
    items = max(sum(file.next_item - 1 for file in store.index.current()) for store in stores)
    passes = max(-(-items // MOST_ITEMS), 1)
    for number in range(passes):
        _compare(stores, found, number, passes)
    _compare_headers(stores, found)


def _compare(stores: Stores, found: Difference, number: int, passes: int) -> None:
    tables = [_table(store, found.way, number, passes) for store in stores]
    columns = [(offset, key_hash) for offset, key_hash in tables]
    if found.way is Way.BY_QUEUE:
        columns = [(key_hash, key_hash) for _, key_hash in tables]
    alone = unmatched(columns[0], columns[1])
    for side, rows in enumerate(alone):
        what = What.ONLY_IN_B if side else What.ONLY_IN_A
        found.add(Part.INDEX_ENTRY, what, len(rows))
        for row in rows[: found.room(Part.INDEX_ENTRY, what)].tolist():
            offset, key_hash = (int(column[row]) for column in tables[side])
            places = (None, offset) if side else (offset, None)
            found.examples.append(Example(Part.INDEX_ENTRY, what, f"key hash {key_hash}", *places))


def _table(store: MessageStore, way: Way, number: int, passes: int) -> tuple[Column, Column]:
    """Physical offsets and key hashes of the entries that this pass takes."""
    offsets, hashes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for file in store.index.current():
        for block in IndexEntries(file).rows():
            offset = block["physical_offset"].astype(np.int64)
            key_hash = block["key_hash"].astype(np.int64)
            if passes > 1:
                part = key_hash if way is Way.BY_QUEUE else offset >> _OFFSETS_A_PART
                own = part % passes == number
                offset, key_hash = offset[own], key_hash[own]
            offsets.append(offset)
            hashes.append(key_hash)
    return np.concatenate(offsets), np.concatenate(hashes)


def _compare_headers(stores: Stores, found: Difference) -> None:
    """Of IndexFiles in their order; names are times of creation, and so differ."""
    files = [store.index.current() for store in stores]
    if len(files[0]) != len(files[1]):
        found.add(Part.HEADER, What.DIFFERENT, 1)
        detail = f"{len(files[0])} IndexFiles, but {len(files[1])}"
        found.examples.append(Example(Part.HEADER, What.DIFFERENT, "index/", detail=detail))
        return
    for left, right in zip(*files, strict=True):
        detail = _differing(left, right, found.way)
        if detail:
            if found.room(Part.HEADER, What.DIFFERENT) > 0:
                place = f"index/{left.name} and {right.name}"
                found.examples.append(Example(Part.HEADER, What.DIFFERENT, place, detail=detail))
            found.add(Part.HEADER, What.DIFFERENT, 1)


def _differing(left: IndexFileReader, right: IndexFileReader, way: Way) -> str:
    if (left.hash_slots, left.index_items) != (right.hash_slots, right.index_items):
        return (
            f"{left.hash_slots} slots and {left.index_items} items, but {right.hash_slots} and "
            f"{right.index_items}"
        )
    a, b = left.header(), right.header()
    names = [
        name
        for name in IndexHeader._fields
        if getattr(a, name) != getattr(b, name)
        and not (way is Way.BY_QUEUE and name.endswith("physical_offset"))
    ]
    return ", ".join(f"{name} {getattr(a, name)}, but {getattr(b, name)}" for name in names)
