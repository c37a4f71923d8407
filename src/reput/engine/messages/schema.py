"""Define the columns of a table with one row per message.

Every column may be null, because a row for a damaged range has only the range's place, its length and the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from reput.base import did_you_mean
from reput.errors import UsageError

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

store                  name of the store; its path unless another name was given
physical_offset        actual position in the CommitLog, even if the record states another one
size                   bytes of the record
times                  null if the stored milliseconds do not fit into 64 bits as microseconds
unique_key, tags       null if they are missing; missing keys and properties are empty
body                   decompressed, unless requested as stored; see BODY_ERROR
body_crc_ok            whether the stored body matches the stored CRC
"""

CORRUPT_REASON = pa.field("corrupt_reason", pa.string())
"""An optional column: why a range of the log could not be read. Null for messages."""

BODY_ERROR = pa.field("body_error", pa.string())
"""An optional column: the reason why a compressed body was not decompressed. `body` then has the stored bytes.

Such a body is damaged, or would exceed `reput.format.bodies.MAX_BODY_BYTES`. Null for all other bodies.
"""

UNIQUE_KEYS = pa.field("unique_keys", pa.list_(pa.field("element", pa.string())))
"""An optional column: all UNIQ_KEYs of a message, in order.

If a 5.x client sends a list of messages in one call, each has two: first its own id, which the producer receives, and
last the id of the list. The column `unique_key` has the last one.
"""

ORIGIN_COLUMNS = pa.schema(
    [
        ("broker", pa.string()),
        ("cluster", pa.string()),
        ("real_topic", pa.string()),
        ("real_queue_id", pa.int32()),
    ]
)
"""Optional columns: the origin of a message, and its destination.

broker, cluster   names; null if the store was given without names
real_topic        topic for which a delayed, timed, half, retry or dead-letter message is meant, null if unknown;
                  other messages: their topic
real_queue_id     queue of that topic; null for retry and dead-letter messages, whose records do not state it
"""

DAMAGE_COLUMNS = COLUMNS.append(CORRUPT_REASON)
"""The columns of tables that have a row for each damaged range."""

ALL_COLUMNS = pa.schema([*DAMAGE_COLUMNS, BODY_ERROR, UNIQUE_KEYS, *ORIGIN_COLUMNS])


def column_name(given: str) -> str:
    """Return the spelling of a column's name, given the name in any case. Spark ignores case."""
    known: dict[str, str] = {name.lower(): name for name in ALL_COLUMNS.names}
    return known.get(given.lower(), given)


def select(names: Iterable[str] | None) -> pa.Schema:
    """Return the schema of these columns, in this order; `COLUMNS` for None. Raises UsageError."""
    if names is None:
        return COLUMNS
    wanted: Sequence[str] = list(names)
    if unknown := [name for name in wanted if name not in ALL_COLUMNS.names]:
        known = ALL_COLUMNS.names
        meant = did_you_mean(unknown[0], known)
        raise UsageError(f"no column {unknown[0]}{meant}; the columns are {', '.join(known)}")
    if len(set(wanted)) < len(wanted):
        raise UsageError("a column is named twice")
    return pa.schema([ALL_COLUMNS.field(name) for name in wanted])
