"""Read and write ConsumeQueue entries and IndexFile items as 32-bit words.

Arrays hold the words as they are in the file, big endian (`reput.format.dtypes.RawEntries`). So entries are compared,
written and read without a copy; see `integers.swap32`.
"""

from __future__ import annotations

import numpy as np

from reput.format.consume_queue import ENTRY
from reput.format.index_file import ITEM
from reput.format.layout import Layout
from reput.kernels.integers import swap32
from reput.kernels.jit import njit


def _word(layout: Layout, field: str) -> np.uint64:
    # numba tests whether signed indexes are negative, so indexes are unsigned.
    return np.uint64(layout.positions[field] // 4)


# The word at which each field begins. A field of eight bytes has two words, the higher one first.
ENTRY_OFFSET = _word(ENTRY, "physical_offset")
ENTRY_SIZE = _word(ENTRY, "size")
ENTRY_TAGS_CODE = _word(ENTRY, "tags_code")
ITEM_HASH = _word(ITEM, "key_hash")
ITEM_OFFSET = _word(ITEM, "physical_offset")
ITEM_SECONDS = _word(ITEM, "time_diff_s")
ITEM_PREVIOUS = _word(ITEM, "previous")


@njit(inline="always")
def signed_word(word):
    """Return a stored word as a Java int."""
    value = swap32(word)
    return value - ((value & 0x80000000) << 1)


@njit(inline="always")
def read_long(words, field):
    """Return the field of eight bytes that begins at a word of an entry."""
    high = signed_word(words[field])
    return np.int64(high << 32 | swap32(words[field + np.uint64(1)]))


@njit(inline="always")
def write_long(words, field, value):
    """Write a field of eight bytes."""
    words[field] = swap32((value >> 32) & 0xFFFFFFFF)
    words[field + np.uint64(1)] = swap32(value & 0xFFFFFFFF)


@njit(inline="always")
def has_long(words, field, value):
    """Return whether a field of eight bytes has this value."""
    return words[field] == swap32((value >> 32) & 0xFFFFFFFF) and words[
        field + np.uint64(1)
    ] == swap32(value & 0xFFFFFFFF)


@njit(inline="always")
def item_offset(items, row):
    """Return the physical offset of an item."""
    high = signed_word(items[np.uint64(row), ITEM_OFFSET])
    return np.int64(high << 32 | swap32(items[np.uint64(row), ITEM_OFFSET + np.uint64(1)]))


@njit(inline="always")
def slot_of(key_hash, slot_total):
    """Return the slot of an item's hash: hash % slots, as Python computes it.

    Only a damaged hash is negative. Even then, its slot is not negative: % works as in Python, not as in Java.
    """
    # 32-bit division is twice as fast as 64-bit division.
    if key_hash >= 0:
        return np.uint32(np.uint32(key_hash) % np.uint32(slot_total))
    return np.uint32(np.int64(key_hash) % np.int64(slot_total))
