"""The columns of an Iceberg table: each has a number, by which readers know it in every file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Transaction


def evolve(transaction: Transaction, schema: pa.Schema) -> None:
    """Add the fields that a table lacks, and widen those that became wider; it keeps all others."""
    with transaction.update_schema() as update:
        update.union_by_name(schema)


def with_ids(schema: pa.Schema, known: Schema) -> pa.Schema:
    """The schema with the numbers by which readers of the table know the columns of a file."""
    ids = {known.find_column_name(n): n for n in known.field_ids}
    return pa.schema([_numbered(column, column.name, ids) for column in schema])


def _numbered(column: pa.Field, path: str, ids: dict[str | None, int]) -> pa.Field:
    kind = column.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_numbered(inner, f"{path}.{inner.name}", ids) for inner in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_numbered(kind.value_field, f"{path}.element", ids))
    elif pa.types.is_map(kind):
        kind = pa.map_(
            _numbered(kind.key_field, f"{path}.key", ids),
            _numbered(kind.item_field, f"{path}.value", ids),
        )
    return pa.field(column.name, kind, column.nullable, {"PARQUET:field_id": str(ids[path])})
