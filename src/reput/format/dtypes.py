"""NumPy dtypes of records and entries. They have their own module, so that a query by key need not import NumPy.

In RocketMQ: getCommitLogOffset, getConsumeQueueOffset, getTagsCode, getStoreTimestamp.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reput.format.commit_log import HEAD
from reput.format.consume_queue import BATCH_ENTRY, ENTRY, ENTRY_BYTES
from reput.format.index_file import ITEM, ITEM_BYTES
from reput.format.rocksdb_queue import VALUE
from reput.format.timer_log import TIMER_SLOT, TIMER_UNIT

ENTRY_DTYPE = np.dtype([*ENTRY.columns])
"""An entry in a ConsumeQueue file."""

BATCH_ENTRY_DTYPE = np.dtype([*BATCH_ENTRY.columns])
"""An entry in a file of a batch queue."""

ROCKSDB_VALUE_DTYPE = np.dtype([*VALUE.columns])
"""The value of an entry in RocksDB."""

ITEM_DTYPE = np.dtype([*ITEM.columns])
"""An item in an IndexFile."""

RawEntries = npt.NDArray[np.uint32]
"""The bytes of n ConsumeQueue entries or n IndexFile items: uint32[n, ENTRY_WORDS], big endian as in the file."""

ENTRY_WORDS = ENTRY_BYTES // 4
"""Number of 32-bit words in a ConsumeQueue entry. An IndexFile item has as many."""

TIMER_UNIT_DTYPE = np.dtype([*TIMER_UNIT.columns])
"""A unit of the timer log."""

TIMER_SLOT_DTYPE = np.dtype([*TIMER_SLOT.columns])
"""A slot of the timer wheel."""

HEAD_DTYPE = np.dtype([*HEAD.columns])
"""The fields before the body of a record with IPv4 hosts (see `reput.format.commit_log`)."""

MESSAGE_DTYPE = np.dtype(
    [
        ("physical_offset", "i8"),
        ("queue_offset", "i8"),
        ("store_timestamp", "i8"),
        ("tags_code", "i8"),
        ("size", "i4"),
        ("sys_flag", "i4"),
        ("queue", "i4"),
        ("key_count", "i4"),
    ]
)
"""A message of a DispatchBatch. `queue` is an index into the batch's queues; `key_count` counts its index entries."""

MULTI_DTYPE = np.dtype([("queue_offset", "i8"), ("row", "i4"), ("queue", "i4")])
"""A further queue of a message (INNER_MULTI_DISPATCH): it gets an entry besides the entry in the message's own queue.

`row` is the row of the message.
"""

assert ITEM_BYTES == ENTRY_BYTES


def new_entries(count: int) -> RawEntries:
    """Return an uninitialised array for the bytes of entries or items."""
    return np.empty((count, ENTRY_WORDS), np.uint32)


def raw_entries(data: npt.NDArray[Any]) -> RawEntries:
    """Return the bytes of entries or items, which `data` has one after the other."""
    return data.view(np.uint32).reshape(-1, ENTRY_WORDS)


def entry_fields(entries: RawEntries) -> npt.NDArray[np.void]:
    """Return entries as an array of ENTRY_DTYPE."""
    return entries.view(ENTRY_DTYPE)[:, 0]


def item_fields(items: RawEntries) -> npt.NDArray[np.void]:
    """Return items as an array of ITEM_DTYPE."""
    return items.view(ITEM_DTYPE)[:, 0]


def item_offsets(items: RawEntries) -> npt.NDArray[np.int64]:
    """Return the physical offsets of items."""
    return item_fields(items)["physical_offset"].astype(np.int64)


def item_hashes(items: RawEntries) -> npt.NDArray[np.int32]:
    """Return the key hashes of items."""
    return item_fields(items)["key_hash"].astype(np.int32)
