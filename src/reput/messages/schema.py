"""The columns of a table of messages, with one row per message.

Every column may be null: a row for damage has only place, length and reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from reput.errors import UsageError
from reput.nearest import did_you_mean

_TIMESTAMP = pa.timestamp("us", tz="UTC")

COLUMNS = pa.schema(
    [
        ("store", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("size", pa.int64()),
        ("flag", pa.int32()),
        ("sys_flag", pa.int32()),
        ("born_timestamp", _TIMESTAMP),
        ("born_host", pa.string()),
        ("store_timestamp", _TIMESTAMP),
        ("store_host", pa.string()),
        ("reconsume_times", pa.int32()),
        ("prepared_transaction_offset", pa.int64()),
        ("transaction", pa.string()),
        ("unique_key", pa.string()),
        ("keys", pa.list_(pa.field("element", pa.string()))),
        ("tags", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("body", pa.binary()),
        ("body_crc_ok", pa.bool_()),
        ("message_id", pa.string()),
    ]
)
"""The columns of a message.

store            name of its store: its path, unless another name was given
physical_offset  its actual position in the CommitLog, which the record may state wrongly
size             bytes of its record
times            null if the stored milliseconds do not fit in microseconds of 64 bits
unique_key, tags null if they are missing; keys and properties are empty then
body             decompressed, unless requested as stored; see BODY_ERROR
body_crc_ok      whether the stored body has the stored CRC
"""

CORRUPT_REASON = pa.field("corrupt_reason", pa.string())
"""A further column, null for every message that could be read."""

BODY_ERROR = pa.field("body_error", pa.string())
"""A further column: the reason why a compressed body stays as stored.

It is damaged, or would be larger than `reput.messages.bodies.MAX_BODY_BYTES`. Null for all other bodies.
"""

UNIQUE_KEYS = pa.field("unique_keys", pa.list_(pa.field("element", pa.string())))
"""A further column: every UNIQ_KEY, in order.

For a message that a 5.x client sent in a list, its own id, which the producer got, comes first. `unique_key` is the
last, the list's.
"""

ORIGIN_COLUMNS = pa.schema(
    [
        ("broker", pa.string()),
        ("cluster", pa.string()),
        ("real_topic", pa.string()),
        ("real_queue_id", pa.int32()),
    ]
)
"""Further columns: where a message comes from, and where it belongs.

broker, cluster  names, if the store was given with them; else null
real_topic       the destination topic of a delayed, timed, half, retried or dead-letter message, null if unknown; for
                 other messages their topic
real_queue_id    the destination queue; null for retried and dead-letter messages, for which nothing records it
"""

DAMAGE_COLUMNS = COLUMNS.append(CORRUPT_REASON)
"""Further columns of tables in which damage is a row of its own."""

ALL_COLUMNS = pa.schema([*DAMAGE_COLUMNS, BODY_ERROR, UNIQUE_KEYS, *ORIGIN_COLUMNS])


def column_name(given: str) -> str:
    """Return the column of a name in any case: Spark ignores case."""
    known: dict[str, str] = {name.lower(): name for name in ALL_COLUMNS.names}
    return known.get(given.lower(), given)


def select(names: Iterable[str] | None) -> pa.Schema:
    """Return the schema of these columns in this order; None is all of a message's. Raises UsageError."""
    if names is None:
        return COLUMNS
    wanted: Sequence[str] = list(names)
    if unknown := [name for name in wanted if name not in ALL_COLUMNS.names]:
        known = ALL_COLUMNS.names
        meant = did_you_mean(unknown[0], known)
        raise UsageError(f"no column {unknown[0]}{meant}; columns are {', '.join(known)}")
    if len(set(wanted)) < len(wanted):
        raise UsageError("a column is named twice")
    return pa.schema([ALL_COLUMNS.field(name) for name in wanted])
