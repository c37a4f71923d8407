"""Define the index objects of an archive: Parquet files of keys or queue entries, and the lists in their metadata.

`reput.wings.archive` writes them, and `reput.io.archive` reads them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import pyarrow as pa

from reput.format.consume_queue import ENTRY_BYTES
from reput.format.file_names import is_folder_name

DIGESTS, QUEUES = b"reput.digests", b"reput.queues"
"""Names under which the metadata of an index stores two lists: the SHA-256 of each row group, and the queues.

Only an index of queue entries has the list of queues. Both lists are in the order of the rows.
"""
GROUP_ROWS = 1 << 16
MOST_QUEUE_OFFSET = (1 << 62) // ENTRY_BYTES
KEY_SCHEMA = pa.schema([("key_hash", pa.int32()), ("physical_offset", pa.int64())])
QUEUE_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("size", pa.int32()),
        ("store_timestamp", pa.timestamp("ms", "UTC")),
        ("tags_code", pa.int64()),
        ("batch_size", pa.int16()),
    ]
)
MOST_TOPIC_BYTES = 1024
_MOST_QUEUES = 1 << 20
"""Maximum number of queues in an index. As objects, they take at most about 300 MB."""
_MOST_LIST_BYTES = 64 << 20


class QueueRows(NamedTuple):
    """The rows of one queue in a queue index.

    Attributes:
        topic, queue_id: the queue
        row: index of its first row
        rows: how many rows it has
        least, greatest: its least and greatest queue offset
        follows: whether its rows have consecutive queue offsets
        is_batch: whether it is a batch queue (5.x), in which a row covers several queue offsets
    """

    topic: str
    queue_id: int
    row: int
    rows: int
    least: int
    greatest: int
    follows: bool
    is_batch: bool


def packed(queues: Iterable[QueueRows]) -> bytes:
    """Return the list of queues for an index's metadata: JSON, compressed, in base 64."""
    text = json.dumps([list(queue) for queue in queues], separators=(",", ":")).encode()
    return base64.b64encode(
        len(text).to_bytes(8, "little") + pa.Codec("zstd").compress(text, asbytes=True)
    )


def digests_of(data: bytes, groups: int) -> list[str]:
    """Parse the digests of an index with this number of row groups. Raises ValueError."""
    # A digest has 64 digits, two quotes, and a comma with a space.
    if len(data) > 68 * groups + 2:
        raise ValueError(f"the index's list of digests has {len(data):,} bytes")
    return msgspec.json.decode(data, type=list[str])


def queues_of(data: bytes | None, rows: int) -> tuple[QueueRows, ...]:
    """Parse the queues of an index with this number of rows. Raises ValueError, TypeError."""
    text = b"[]" if data is None else _unpacked(data)
    if text.count(b"[") > _MOST_QUEUES:
        raise ValueError(f"the index's list of queues has more than {_MOST_QUEUES:,} queues")
    # With a type, decoding ends at the first other value. Such values could take thirty times the memory of their text.
    queues = tuple(msgspec.json.decode(text, type=list[QueueRows]))
    row = 0
    for queue in queues:
        is_right = is_folder_name(queue.topic) and 0 <= queue.queue_id < 1 << 31
        are_right = 0 <= queue.least <= queue.greatest < MOST_QUEUE_OFFSET
        if queue.follows and queue.rows != queue.greatest - queue.least + 1:
            are_right = False
        if not is_right or not are_right or queue.row != row or queue.rows < 1:
            raise ValueError(f"has an impossible queue: {queue.topic!r}")
        row += queue.rows
    if queues and row != rows:
        raise ValueError(
            f"the index's list of queues states {row:,} rows, but the index has {rows:,}"
        )
    return queues


def _unpacked(data: bytes) -> bytes:
    stored = base64.b64decode(data)
    length = int.from_bytes(stored[:8], "little")
    if length > _MOST_LIST_BYTES:
        raise ValueError(
            f"the index's list of queues has {length:,} bytes, more than {_MOST_LIST_BYTES:,}"
        )
    text: bytes = pa.Codec("zstd").decompress(stored[8:], length, asbytes=True)
    return text
