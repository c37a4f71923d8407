"""Columns as lines of JSON or CSV, many rows at once: the forms of `json_codec` and `csv_text` for tables and look-ups.

Only texts that need an escape are looked at one by one.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from reput.messages.csv_text import FORMULA, QUOTED
from reput.messages.json_codec import text_or_base64
from reput.messages.json_text import CONTROL, json_text

JSON_NAMES = {"size": "size_bytes"}
"""Columns of `reput.messages.schema` that have another name in JSON."""

_KEYS = "keys"
Text: TypeAlias = "pa.StringArray"


def json_lines(batch: pa.RecordBatch, names: Mapping[str, str] = JSON_NAMES) -> Text:
    """A JSON object a row, without the end of its line: names and values as docs/message-json.md has them.

    Args:
        batch: columns of messages, and others.
        names: the names of columns that JSON calls otherwise.
    """
    fields = [
        _json_field(names.get(name, name), column)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return _joined(["{", *_separated(fields, ","), "}"], len(batch))


def csv_names(schema: pa.Schema, names: Mapping[str, str] = JSON_NAMES) -> list[str]:
    """The header that goes with `csv_lines`."""
    found = []
    for field in schema:
        name = names.get(field.name, field.name)
        found += [name, f"{name}_base64"] if pa.types.is_binary(field.type) else [name]
    return found


def csv_lines(batch: pa.RecordBatch, *, is_safe: bool = False) -> Text:
    """A line of CSV a row, without its end.

    Args:
        batch: columns of messages, and others; bytes take two cells, as text where they are, and in base64.
        is_safe: whether to put a ' before texts that a spreadsheet would run as a formula.
    """
    cells: list[Text] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_binary(column.type):
            texts, base64 = _bytes_apart(column)
            cells += [_quoted(texts, is_safe), _quoted(base64, is_safe)]
        else:
            is_text = pa.types.is_string(column.type) or name == _KEYS
            cells.append(_quoted(_csv_text(name, column), is_safe and is_text))
    return _joined(_separated(cells, ","), len(batch))


def with_iso_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns with times as texts, 2026-10-14T08:35:06.637Z; without the Z where they have no zone."""
    columns = [
        _iso(column) if pa.types.is_timestamp(column.type) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _iso(times: pa.Array) -> Text:
    zone = "UTC" if times.type.tz else None
    millis = times.cast(pa.timestamp("ms", zone), safe=False)
    return pc.strftime(millis, "%Y-%m-%dT%H:%M:%SZ" if zone else "%Y-%m-%dT%H:%M:%S")


def _json_field(name: str, column: pa.Array) -> Text:
    label = json_text(name)
    if not pa.types.is_binary(column.type):
        return _joined([f"{label}:", _json(column)], len(column))
    texts, base64 = _bytes_apart(column)
    as_text = _joined([f"{label}:", _json(texts)], len(column))
    if base64.null_count == len(column):
        return as_text
    in_base64 = _joined([json_text(f"{name}_base64"), ":", _json(base64)], len(column))
    return pc.if_else(base64.is_valid(), in_base64, as_text)


def _json(column: pa.Array) -> Text:
    """Each value as JSON; `null` where there is none."""
    kind = column.type
    makers: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], Text]], ...] = (
        (pa.types.is_string, _json_strings),
        (pa.types.is_timestamp, lambda times: _epoch_ms(times).cast(pa.string())),
        (pa.types.is_floating, _json_floats),
        (pa.types.is_map, _json_maps),
        (pa.types.is_list, _json_lists),
        (pa.types.is_struct, _json_structs),
        (pa.types.is_binary, lambda data: _json_strings(_base64(data))),
        (_is_plain, lambda values: values.cast(pa.string())),
    )
    make = next((make for is_kind, make in makers if is_kind(kind)), None)
    texts = make(column) if make else _json_strings(column.cast(pa.string()))
    return pc.fill_null(texts, "null")


def _is_plain(kind: pa.DataType) -> bool:
    """Whether JSON has it as Arrow writes it."""
    of = pa.types
    return bool(of.is_boolean(kind) or of.is_integer(kind) or of.is_decimal(kind))


def _json_strings(texts: Text) -> Text:
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    quoted = pc.binary_join_element_wise('"', escaped, '"', "")
    special = pc.fill_null(pc.match_substring_regex(texts, CONTROL), False)
    if special.true_count:
        values = [json_text(text) for text in texts.filter(special).to_pylist()]
        quoted = pc.replace_with_mask(quoted, special, pa.array(values, pa.string()))
    return quoted


def _json_floats(values: pa.Array) -> Text:
    """JSON has no infinity: it is null."""
    return pc.if_else(pc.is_finite(values), values.cast(pa.string()), pa.scalar(None, pa.string()))


def _epoch_ms(times: pa.Array) -> pa.Array:
    kind = pa.timestamp("ms", times.type.tz)
    return times.cast(kind, safe=False).cast(pa.int64())


def _json_lists(lists: pa.ListArray) -> Text:
    texts = _lists_of(_json(lists.values), lists)
    return _joined(["[", pc.binary_join(texts, ","), "]"], len(lists))


def _json_maps(maps: pa.MapArray) -> Text:
    pairs = _joined([_json(maps.keys), ":", _json(maps.items)], len(maps.keys))
    return _joined(["{", pc.binary_join(_lists_of(pairs, maps), ","), "}"], len(maps))


def _lists_of(values: Text, like: pa.ListArray) -> pa.ListArray:
    """Lists of these values with the lengths, and the nulls, of others."""
    offsets = pa.array(
        like.offsets.to_numpy()
    )  # those of a slice are one, which a mask cannot go with
    return pa.ListArray.from_arrays(
        offsets, values, mask=like.is_null() if like.null_count else None
    )


def _json_structs(structs: pa.StructArray) -> Text:
    fields = [
        _json_field(field.name, column)
        for field, column in zip(structs.type, structs.flatten(), strict=True)
    ]
    texts = _joined(["{", *_separated(fields, ","), "}"], len(structs))
    return pc.if_else(structs.is_valid(), texts, pa.scalar(None, pa.string()))


def _bytes_apart(column: pa.Array) -> tuple[Text, Text]:
    """Bytes that are UTF-8 as texts, the others in base64; null where they are in the other one."""
    try:
        return column.cast(pa.string()), pa.nulls(len(column), pa.string())
    except pa.ArrowInvalid:
        parts = [
            (None, None) if data is None else text_or_base64(data) for data in column.to_pylist()
        ]
        texts, base64 = zip(*parts, strict=True)
        return pa.array(texts, pa.string()), pa.array(base64, pa.string())


def _base64(column: pa.Array) -> Text:
    values = [None if data is None else _encoded(data) for data in column.to_pylist()]
    return pa.array(values, pa.string())


def _encoded(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _csv_text(name: str, column: pa.Array) -> Text:
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if name == _KEYS and pa.types.is_list(kind):
        return pc.binary_join(column, " ")
    if pa.types.is_timestamp(kind):
        return _epoch_ms(column).cast(pa.string())
    if pa.types.is_nested(kind):
        return pc.if_else(column.is_valid(), _json(column), pa.scalar(None, pa.string()))
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
    """Texts one after the other; null where one of them is."""
    if not length:
        return pa.array([], pa.string())
    return pc.binary_join_element_wise(*parts, "")
