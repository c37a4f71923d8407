"""NumPy dtypes of records and entries. They have their own module, so that a query by key need not import NumPy.

The layouts mirror `reput.format.consume_queue` and `.index_file`, and must have the same sizes.

In RocketMQ: getCommitLogOffset, getConsumeQueueOffset, getTagsCode, getStoreTimestamp.
"""

from __future__ import annotations

import numpy as np

from reput.format.commit_log import body_length_position
from reput.format.consume_queue import ENTRY_BYTES
from reput.format.index_file import ITEM_BYTES
from reput.format.rocksdb_queue import VALUE_BYTES

ENTRY_DTYPE = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
"""An entry in a ConsumeQueue file."""

ROCKSDB_VALUE_DTYPE = np.dtype([*ENTRY_DTYPE.descr, ("store_timestamp", ">i8")])
"""The value of an entry in RocksDB."""

ITEM_DTYPE = np.dtype(
    [("key_hash", ">i4"), ("physical_offset", ">i8"), ("time_diff_s", ">i4"), ("previous", ">i4")]
)
"""An item in an IndexFile."""

HEAD_DTYPE = np.dtype(
    {
        "names": [
            "total_bytes", "magic", "queue_id", "queue_offset", "physical_offset", "sys_flag", "body_bytes",
        ],
        "formats": [">i4", ">i4", ">i4", ">i8", ">i8", ">i4", ">i4"],
        "offsets": [0, 4, 12, 20, 28, 36, 84],
        "itemsize": 88,
    }
)  # fmt: skip
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

assert HEAD_DTYPE.itemsize == body_length_position(0) + 4
assert ENTRY_DTYPE.itemsize == ENTRY_BYTES
assert ROCKSDB_VALUE_DTYPE.itemsize == VALUE_BYTES
assert ITEM_DTYPE.itemsize == ITEM_BYTES
