"""Write columns as lines of JSON or CSV, many rows at once, in the forms of `codec`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.engine.messages.codec import FORMULA, QUOTED, text_or_base64
from reput.engine.messages.json_columns import epoch_ms, fields_of, json_values, render
from reput.format.message_fields import FIELDS

JSON_NAMES = {field.name: field.json for field in FIELDS if field.json}
"""The JSON names of those columns of a message that have another name in JSON."""

_KEYS = "keys"
Text: TypeAlias = "pa.StringArray"


def json_rows(
    batch: pa.RecordBatch, names: Mapping[str, str] = JSON_NAMES, end: str = ""
) -> pa.LargeStringArray:
    """Return one JSON object per row, with the names and values of docs/message-json.md.

    Args:
        batch: Columns of messages, and further columns.
        names: The JSON names of columns that have another name in JSON.
        end: The end of each line.
    """
    fields = fields_of(batch.schema.names, batch.columns, names, len(batch))
    return render(fields, len(batch), f"}}{end}".encode()).texts()


def csv_names(schema: pa.Schema, names: Mapping[str, str] = JSON_NAMES) -> list[str]:
    """Return the column names for the lines that `csv_rows` writes."""
    names_of_cells = []
    for field in schema:
        name = names.get(field.name, field.name)
        names_of_cells += [name, f"{name}_base64"] if pa.types.is_binary(field.type) else [name]
    return names_of_cells


def csv_rows(batch: pa.RecordBatch, *, is_safe: bool = False, end: str = "") -> Text:
    """Return one line of CSV per row.

    Args:
        batch: Columns of messages, and further columns. A binary column becomes two cells: text, and base64.
        is_safe: Whether to put a ' before texts that a spreadsheet would run as a formula.
        end: The end of each line.
    """
    cells: list[Text] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_binary(column.type):
            texts, base64 = _bytes_apart(column)
            cells += [_quoted(texts, is_safe), _quoted(base64, is_safe)]
        else:
            is_text = pa.types.is_string(column.type) or name == _KEYS
            cells.append(_quoted(_csv_text(name, column), is_safe and is_text))
    return _joined([*_separated(cells, ","), end], len(batch))


def bytes_of(lines: Text | pa.LargeStringArray) -> memoryview:
    """Return the concatenated lines as UTF-8, without a copy."""
    if not len(lines):
        return memoryview(b"")
    whole = lines.cast(pa.large_string())
    _, offsets, data = whole.buffers()
    first, last = np.frombuffer(offsets, np.int64)[[whole.offset, whole.offset + len(whole)]]
    return memoryview(data)[first:last]


def with_iso_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert times to texts such as 2026-10-14T08:35:06.637Z. The Z is omitted if the type has no zone."""
    columns = [
        _iso(column) if pa.types.is_timestamp(column.type) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _iso(times: pa.Array) -> Text:
    zone = "UTC" if times.type.tz else None
    millis = times.cast(pa.timestamp("ms", zone), safe=False)
    return pc.strftime(millis, "%Y-%m-%dT%H:%M:%SZ" if zone else "%Y-%m-%dT%H:%M:%S")


def _bytes_apart(column: pa.Array) -> tuple[Text, Text]:
    """Return a column of texts, and a column of base64 for bytes that are not UTF-8.

    Each row is null in at least one of the two.
    """
    # Usually all values are UTF-8. Then one cast checks the whole column.
    try:
        return column.cast(pa.string()), pa.nulls(len(column), pa.string())
    except pa.ArrowInvalid:
        parts = [
            (None, None) if data is None else text_or_base64(data) for data in column.to_pylist()
        ]
        texts, base64 = zip(*parts, strict=True)
        return pa.array(texts, pa.string()), pa.array(base64, pa.string())


def _csv_text(name: str, column: pa.Array) -> Text:
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if name == _KEYS and pa.types.is_list(kind):
        return pc.binary_join(column, " ")
    if pa.types.is_timestamp(kind):
        return epoch_ms(column).cast(pa.string())
    if pa.types.is_nested(kind):
        return pc.if_else(
            column.is_valid(), json_values(column).cast(pa.string()), pa.scalar(None, pa.string())
        )
    return column.cast(pa.string())


def _quoted(texts: Text, is_safe: bool) -> Text:
    if is_safe:
        marked = pc.binary_join_element_wise("'", texts, "")
        texts = pc.if_else(pc.match_substring_regex(texts, FORMULA), marked, texts)
    needed = pc.match_substring_regex(texts, QUOTED)
    if needed.true_count:
        doubled = pc.replace_substring(texts, '"', '""')
        quoted = pc.binary_join_element_wise('"', doubled, '"', "")
        texts = pc.if_else(needed, quoted, texts)
    return pc.fill_null(texts, "")


def _separated(parts: list[Text], by: str) -> list[Text | str]:
    return [piece for part in parts for piece in (by, part)][1:]


def _joined(parts: list[Text | str], length: int) -> Text:
    """Concatenate texts row by row; null if one of them is null."""
    if not length:
        return pa.array([], pa.string())
    return pc.binary_join_element_wise(*parts, "")
