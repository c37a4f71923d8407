"""Write columns as JSON with kernels (compiled functions), in the form of `reput.base.visible_json`.

All rows of a batch are written at once.

A row is a sequence of values, each preceded by a label such as `,"topic":`. `render` works in two passes: it measures
all columns, to find where each row begins in the buffer, and then writes one column after the other. Lists, maps and
structs are rendered first, and then copied like texts, so types can be nested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.base import INVISIBLE_RANGES, json_text
from reput.engine.messages.schema import room
from reput.kernels import json_rows as kernel
from reput.kernels.json_rows import MISSING, PRESENT, SKIPPED

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
NULL = b"null"


class Rendered(NamedTuple):
    """The concatenated JSON of all rows: row i is data[offsets[i]:offsets[i + 1]]."""

    data: Bytes
    offsets: Offsets

    def texts(self) -> pa.LargeStringArray:
        """Return the rows as an Arrow array, without a copy."""
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_string(), len(self.offsets) - 1, buffers)


class JsonColumn(Protocol):
    """A column with one value per row.

    `measure` adds the number of bytes of each value to `sizes`. `put` writes each value at its row's cursor, and
    advances the cursor.
    """

    def measure(self, sizes: Offsets) -> None: ...
    def put(self, out: Bytes, cursors: Offsets) -> None: ...


def render(columns: Sequence[JsonColumn], rows: int, end: bytes) -> Rendered:
    """Render rows: each consists of the columns in order, followed by `end`."""
    every = [*columns, Constant(end, rows)]
    sizes = np.zeros(rows, np.int64)
    for column in every:
        column.measure(sizes)
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    out, cursors = room(int(offsets[-1]), np.uint8), offsets[:-1].copy()
    for column in every:
        column.put(out, cursors)
    return Rendered(out, offsets)


class Runs(NamedTuple):
    """The place of each row's bytes in `data`, and whether the row is PRESENT, MISSING (null) or SKIPPED."""

    data: Bytes
    starts: Offsets
    stops: Offsets
    kinds: Bytes

    def only(self, rows: npt.NDArray[Any]) -> Runs:
        """Return a copy in which all rows are marked as SKIPPED, except those of the mask `rows`."""
        return self._replace(kinds=np.where(rows, self.kinds, SKIPPED).astype(np.uint8))


@dataclass(frozen=True, slots=True)
class Constant:
    """A column with the same bytes in each row."""

    text: bytes
    rows: int

    def measure(self, sizes: Offsets) -> None:
        sizes += len(self.text)

    def put(self, out: Bytes, cursors: Offsets) -> None:
        nowhere = np.zeros(self.rows, np.int64)
        # The kernel writes a label and a value in each row. Here the label is `text`, and the value is empty.
        runs = Runs(_bytes(b"-"), nowhere, nowhere, np.ones(self.rows, np.uint8))
        _put_runs(runs, self.text, b"", b"", out, cursors)


@dataclass(frozen=True, slots=True)
class JsonTexts:
    """A column of UTF-8 texts as JSON strings. Malformed bytes are replaced as Java replaces them.

    Each value is written after `label`, for instance its field name and a colon. For a missing value, only the bytes
    `missing` are written.
    """

    runs: Runs
    label: bytes
    missing: bytes = b""

    def measure(self, sizes: Offsets) -> None:
        kernel.measure_texts(
            *self.runs, len(self.label), len(self.missing), _invisible_characters(), sizes
        )

    def put(self, out: Bytes, cursors: Offsets) -> None:
        label, missing = _bytes(self.label), _bytes(self.missing)
        kernel.put_texts(*self.runs, label, missing, _invisible_characters(), out, cursors)


@dataclass(frozen=True, slots=True)
class Integers:
    """A column of integers, int32 or int64."""

    values: npt.NDArray[Any]
    kinds: Bytes
    label: bytes
    missing: bytes = b""

    def measure(self, sizes: Offsets) -> None:
        kernel.measure_integers(self.values, self.kinds, len(self.label), len(self.missing), sizes)

    def put(self, out: Bytes, cursors: Offsets) -> None:
        label, missing = _bytes(self.label), _bytes(self.missing)
        kernel.put_integers(self.values, self.kinds, label, missing, out, cursors)


@dataclass(frozen=True, slots=True)
class Raw:
    """A column of bytes that are copied unchanged: rendered JSON, or texts that need no escapes."""

    runs: Runs
    label: bytes
    end: bytes = b""
    missing: bytes = b""

    def measure(self, sizes: Offsets) -> None:
        _, starts, stops, kinds = self.runs
        around = len(self.label) + len(self.end)
        sizes += np.where(kinds == PRESENT, stops - starts + around, 0)
        sizes += np.where(kinds == MISSING, len(self.missing), 0)

    def put(self, out: Bytes, cursors: Offsets) -> None:
        _put_runs(self.runs, self.label, self.end, self.missing, out, cursors)


@dataclass(frozen=True, slots=True)
class Base64:
    """A column of bytes as JSON strings in base64."""

    runs: Runs
    label: bytes
    missing: bytes = b""

    def measure(self, sizes: Offsets) -> None:
        _, starts, stops, kinds = self.runs
        lengths = (stops - starts + 2) // 3 * 4 + len(self.label) + 2
        sizes += np.where(kinds == PRESENT, lengths, 0)
        sizes += np.where(kinds == MISSING, len(self.missing), 0)

    def put(self, out: Bytes, cursors: Offsets) -> None:
        label, missing = _bytes(self.label), _bytes(self.missing)
        kernel.put_base64(*self.runs, label, missing, out, cursors)


def text_or_base64(
    runs: Runs, before: bytes, name: str, name_of_base64: str = ""
) -> list[JsonColumn]:
    """Return one or two columns: values that are UTF-8 or null become the field `name`.

    Other values become the field `name_of_base64` (by default, `name` followed by "_base64"), in base64.
    """
    valid = room(len(runs.starts), np.uint8)
    kernel.are_utf8(runs.data, runs.starts, runs.stops, valid)
    is_text = valid.view(np.bool_) | (runs.kinds != PRESENT)
    label = label_of(before, name)
    columns: list[JsonColumn] = [JsonTexts(runs.only(is_text), label, label + NULL)]
    if not is_text.all():
        columns.append(
            Base64(runs.only(~is_text), label_of(before, name_of_base64 or f"{name}_base64"))
        )
    return columns


def label_of(before: bytes, name: str) -> bytes:
    """Return the label of a field: a brace or a comma, the name, and a colon."""
    return before + json_text(name).encode() + b":"


def fields_of(
    names: Sequence[str], columns: Sequence[pa.Array], renamed: Mapping[str, str], rows: int
) -> list[JsonColumn]:
    """Return the fields of an object, including the opening brace but not the closing one."""
    fields: list[JsonColumn] = []
    for name, column in zip(names, columns, strict=True):
        before, json_name = b"," if fields else b"{", renamed.get(name, name)
        if pa.types.is_binary(column.type):
            fields += text_or_base64(runs_of(column), before, json_name)
        else:
            fields.append(column_of(column, label_of(before, json_name)))
    return fields or [Constant(b"{", rows)]


def column_of(column: pa.Array, label: bytes) -> JsonColumn:
    """Return the `JsonColumn` that renders a column, which may have any type. A null value is written as `null`."""
    of, kind, missing = pa.types, column.type, label + NULL
    if of.is_string(kind):
        return JsonTexts(runs_of(column), label, missing)
    if of.is_timestamp(kind):
        return column_of(epoch_ms(column), label)
    # The kernel takes signed integers, which cannot hold all values of uint64.
    if of.is_integer(kind) and kind != pa.uint64():
        return Integers(_int64(column), _kinds(column), label, missing)
    if of.is_boolean(kind) or of.is_integer(kind) or of.is_decimal(kind):
        return Raw(runs_of(column.cast(pa.string())), label, b"", missing)
    if of.is_floating(kind):  # JSON has no infinity and no NaN: write null.
        finite = pc.if_else(pc.is_finite(column), column.cast(pa.string()), _NO_TEXT)
        return Raw(runs_of(finite), label, b"", missing)
    if of.is_map(kind):
        return _map(column, label)
    if of.is_list(kind):
        return _list(column, label)
    if of.is_struct(kind):
        return _struct(column, label)
    if of.is_binary(kind):
        return Base64(runs_of(column), label, missing)
    return JsonTexts(runs_of(column.cast(pa.string())), label, missing)


def json_values(column: pa.Array) -> pa.LargeStringArray:
    """Return each value of a column as a JSON text. A null value becomes `null`."""
    return render([column_of(column, b"")], len(column), b"").texts()


def _list(lists: pa.ListArray, label: bytes) -> Raw:
    ends = lists.offsets.to_numpy()
    values = lists.values.slice(ends[0], ends[-1] - ends[0])
    return _within(lists, render([column_of(values, b",")], len(values), b""), label, b"[", b"]")


def _map(maps: pa.MapArray, label: bytes) -> Raw:
    ends = maps.offsets.to_numpy()
    span = ends[0], ends[-1] - ends[0]
    keys, items = maps.keys.slice(*span), maps.items.slice(*span)
    pairs = [column_of(keys, b","), column_of(items, b":")]
    return _within(maps, render(pairs, len(keys), b""), label, b"{", b"}")


def _within(
    lists: pa.ListArray, values: Rendered, label: bytes, opening: bytes, closing: bytes
) -> Raw:
    """Enclose the values of each row in brackets.

    Each value begins with a comma; the first comma of a row is dropped.
    """
    ends = lists.offsets.to_numpy().astype(np.int64)
    places = values.offsets[ends - ends[0]]
    starts, stops = places[:-1], places[1:]
    runs = Runs(values.data, starts + (starts < stops), stops, _kinds(lists))
    return Raw(runs, label + opening, closing, label + NULL)


def _struct(structs: pa.StructArray, label: bytes) -> Raw:
    names = [field.name for field in structs.type]
    objects = render(fields_of(names, structs.flatten(), {}, len(structs)), len(structs), b"}")
    runs = Runs(objects.data, objects.offsets[:-1], objects.offsets[1:], _kinds(structs))
    return Raw(runs, label, b"", label + NULL)


def runs_of(column: pa.Array) -> Runs:
    """Return, for each value of a string or binary column, where its bytes are in the column's buffer."""
    kind = np.int64 if pa.types.is_large_string(column.type) else np.int32
    _, ends, data = column.buffers()
    if ends is None or not len(column):  # An empty Arrow array may have no buffers.
        nowhere = np.zeros(len(column), np.int64)
        return Runs(_bytes(b"-"), nowhere, nowhere, _kinds(column))
    offsets: npt.NDArray[Any] = np.frombuffer(ends, kind)
    places: Offsets = offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)
    content = _bytes(b"-") if data is None or not data.size else np.frombuffer(data, np.uint8)
    return Runs(content, places[:-1], places[1:], _kinds(column))


_NO_TEXT = pa.scalar(None, pa.string())


def _kinds(column: pa.Array) -> Bytes:
    if not column.null_count:
        return np.ones(len(column), np.uint8)
    kinds: Bytes = column.is_valid().cast(pa.uint8()).to_numpy()
    return kinds


def _int64(column: pa.Array) -> npt.NDArray[np.int64]:
    values = column.cast(pa.int64())
    numbers: npt.NDArray[np.int64] = (
        values.fill_null(0) if values.null_count else values
    ).to_numpy()
    return numbers


def epoch_ms(times: pa.Array) -> pa.Array:
    """Return times as milliseconds since 1970."""
    kind = pa.timestamp("ms", times.type.tz)
    return times.cast(kind, safe=False).cast(pa.int64())


def _put_runs(
    runs: Runs, label: bytes, end: bytes, missing: bytes, out: Bytes, cursors: Offsets
) -> None:
    kernel.put_runs(*runs, _bytes(label), _bytes(end), _bytes(missing), out, cursors)


def _bytes(text: bytes) -> Bytes:
    return np.frombuffer(text, np.uint8)


@cache
def _invisible_characters() -> Bytes:
    """Return a table by code point: 1 for invisible characters. They are escaped, although JSON does not require it."""
    table = np.zeros(0x110000, np.uint8)
    for first, last in INVISIBLE_RANGES:
        table[first : last + 1] = 1
    return table
