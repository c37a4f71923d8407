"""Define the columns of a table with one row per message. `reput.format.message_fields` lists and describes them.

Every column may be null, because a row for a damaged range has only the range's place, its length and the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from reput.base import did_you_mean
from reput.errors import UsageError
from reput.format.message_fields import FIELDS

_TYPES = {
    "text": pa.string(), "host": pa.string(), "texts": pa.list_(pa.field("element", pa.string())),
    "map": pa.map_(pa.string(), pa.string()), "bytes": pa.binary(), "boolean": pa.bool_(),
    "int32": pa.int32(), "int64": pa.int64(), "time": pa.timestamp("us", tz="UTC"),
}  # fmt: skip


def _columns(*groups: str) -> pa.Schema:
    return pa.schema(
        [(field.name, _TYPES[field.type]) for field in FIELDS if field.group in groups]
    )


COLUMNS = _columns("message")
"""The columns of a message."""

ORIGIN_COLUMNS = _columns("origin")
"""Optional columns: the origin of a message, and its destination."""

ALL_COLUMNS = _columns("message", "damage", "origin")

CORRUPT_REASON = ALL_COLUMNS.field("corrupt_reason")
BODY_ERROR = ALL_COLUMNS.field("body_error")

DAMAGE_COLUMNS = COLUMNS.append(CORRUPT_REASON)
"""The columns of tables that have a row for each damaged range."""


def column_name(spelling: str) -> str:
    """Return the name of a column, given the name in any case. Spark ignores case."""
    names: dict[str, str] = {name.lower(): name for name in ALL_COLUMNS.names}
    return names.get(spelling.lower(), spelling)


def select(names: Iterable[str] | None) -> pa.Schema:
    """Return the schema of these columns, in this order; `COLUMNS` for None. Raises UsageError."""
    if names is None:
        return COLUMNS
    columns: Sequence[str] = list(names)
    if unknown := [name for name in columns if name not in ALL_COLUMNS.names]:
        possible = ALL_COLUMNS.names
        similar = did_you_mean(unknown[0], possible)
        raise UsageError(f"no column {unknown[0]}{similar}; the columns are {', '.join(possible)}")
    if len(set(columns)) < len(columns):
        raise UsageError("a column is named twice")
    return pa.schema([ALL_COLUMNS.field(name) for name in columns])
