"""Parse many JSON bodies at once into typed columns, and explain why bodies do not match.

Two functions treat a body that does not match the types differently:

parse_bodies         rejects the message
parse_permissively   keeps the message, with null for values that do not match
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from reput.base import counted
from reput.kernels.json_text import MAX_DEPTH, are_objects, join_lines
from reput.wings.lakes.body_shape import BodyShape, is_list
from reput.wings.lakes.parsed_bodies import (
    INTEGER,
    Misfit,
    NumberText,
    ParsedBodies,
    field_misfit,
    whole_misfit,
)
from reput.wings.lakes.request import UTF_8

Rows = npt.NDArray[np.int64]

_LOOKED_AT_ONE_BY_ONE = 256


_NO_OBJECT = whole_misfit(f"the body is not a JSON object, or is nested more than {MAX_DEPTH} deep")
_NO_UTF8 = whole_misfit("the body is not UTF-8")


class _Bodies:
    """The bytes of all bodies in one array, and the offset of each body."""

    def __init__(self, bodies: pa.BinaryArray) -> None:
        buffers = bodies.buffers()
        offsets = np.frombuffer(buffers[1] or bytes(4), np.int32)
        self.offsets = offsets[bodies.offset : bodies.offset + len(bodies) + 1]
        self.data = np.frombuffer(buffers[2] or b"", np.uint8)

    def text(self, row: int) -> bytes:
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def read(self, rows: Rows, schema: pa.Schema) -> pa.Table:
        """Parse bodies. Fields that the schema lacks are ignored.

        Raises pa.ArrowInvalid if any body does not match the schema.
        """
        room = int((self.offsets[rows + 1] - self.offsets[rows]).sum(dtype=np.int64)) + len(rows)
        # Arrow reads JSON lines, so each body is followed by a newline.
        lines = np.empty(room, np.uint8)
        join_lines(self.data, self.offsets, rows, lines)
        table = pa.json.read_json(
            pa.BufferReader(pa.py_buffer(lines)),
            # Read all lines as one block, because Arrow refuses a value that spans more than two blocks.
            pa.json.ReadOptions(use_threads=False, block_size=room + 1),
            pa.json.ParseOptions(
                explicit_schema=schema,
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )
        # With a row too many or too few, values would belong to the wrong bodies.
        if len(table) != len(rows):
            raise pa.ArrowInvalid(f"{len(rows)} bodies gave {counted(len(table), 'row')}")
        return table


def parse_bodies(bodies: pa.BinaryArray, shape: BodyShape) -> ParsedBodies:
    """Parse bodies into structs with the fields and types of `shape`.

    A null body becomes null, and counts as a body that matches the shape.
    """
    return _Parser(bodies, shape).parse()


class _Parser:
    def __init__(self, bodies: pa.BinaryArray, shape: BodyShape) -> None:
        self._count, self._shape = len(bodies), shape
        self._rows, self._misfits = _candidates(bodies)
        self._bodies = _Bodies(bodies)
        self._done: list[tuple[Rows, pa.StructArray]] = []

    def parse(self) -> ParsedBodies:
        self._take(self._rows)
        place = np.full(self._count, -1, np.int64)
        rows = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in self._done)])
        place[rows] = np.arange(len(rows))
        parts = [pa.array([], self._shape.type), *(values for _, values in self._done)]
        values = pa.concat_arrays(parts).take(pa.array(place, mask=place < 0))
        return ParsedBodies(values, {row: [misfit] for row, misfit in self._misfits.items()})

    def _take(self, rows: Rows) -> None:
        if not len(rows):
            return
        try:
            self._keep(rows, self._bodies.read(rows, self._shape.schema))
        except pa.ArrowInvalid as error:
            # Arrow does not report which body failed. Parse each half of the rows, down to a few rows that are tested
            # one by one.
            if len(rows) > _LOOKED_AT_ONE_BY_ONE:
                self._halve(rows)
            else:
                self._sort_out(rows, str(error))

    def _halve(self, rows: Rows) -> None:
        middle = len(rows) // 2
        self._take(rows[:middle])
        self._take(rows[middle:])

    def _sort_out(self, rows: Rows, error: str) -> None:
        """Test each of a few rows, whose bodies Arrow could not parse together.

        Set apart the rows whose body does not match the shape. Parse the rest of these few rows.
        """
        misfits = [_misfit(self._bodies.text(row), self._shape.type) for row in rows.tolist()]
        self._misfits.update(
            (row, misfit) for row, misfit in zip(rows.tolist(), misfits, strict=True) if misfit
        )
        fitting = rows[[misfit is None for misfit in misfits]]
        if len(fitting) < len(rows):
            self._take(fitting)
        # Python's parser accepts all these bodies, but Arrow's parser rejects at least one of them. Halve the rows
        # until a single body remains.
        elif len(rows) > 1:
            self._halve(rows)
        else:
            self._misfits[int(rows[0])] = whole_misfit(
                "the body cannot be read", error.splitlines()[0]
            )

    def _keep(self, rows: Rows, table: pa.Table) -> None:
        lacking = np.zeros(len(rows), np.bool_)
        for name in self._shape.required:
            missing = pc.is_null(table[name]).to_numpy() & ~lacking
            for row in rows[missing].tolist():
                self._misfits[row] = whole_misfit(f"the body has no {name}")
            lacking |= missing
        values = table.combine_chunks().to_struct_array()
        values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        if lacking.any():
            rows, values = rows[~lacking], values.filter(pa.array(~lacking))
        self._done.append((rows, values))


def _candidates(bodies: pa.BinaryArray) -> tuple[Rows, dict[int, Misfit]]:
    """Return the rows that may be JSON objects, and for each other row the `Misfit`, the reason why it cannot be one.

    Null bodies appear in neither result.
    """
    parts = _Bodies(bodies)
    valid = np.empty(len(bodies), np.uint8)
    are_objects(parts.data, parts.offsets, valid)
    present = bodies.is_valid().to_numpy(zero_copy_only=False)
    misfits = dict.fromkeys(np.flatnonzero((valid == 0) & present).tolist(), _NO_OBJECT)
    rows = np.flatnonzero((valid != 0) & present)
    try:
        bodies.cast(pa.string())
    except pa.ArrowInvalid:
        bad = [row for row in rows.tolist() if not _is_utf8(parts.text(row))]
        misfits.update(dict.fromkeys(bad, _NO_UTF8))
        rows = np.setdiff1d(rows, np.array(bad, np.int64))
    return rows, misfits


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _misfit(body: bytes, kind: pa.DataType) -> Misfit | None:
    """Return why a body does not match the type `kind`; None if Python's parser finds no reason."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        return whole_misfit("the body is not JSON", str(error))
    return _why_not(value, kind, "")


def _why_not(value: Any, kind: pa.DataType, path: str) -> Misfit | None:
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, dict):
        parts = ((field.name, field.type) for field in kind if field.name in value)
        reasons = (_why_not(value[name], inner, f"{path}.{name}") for name, inner in parts)
        return next(filter(None, reasons), None)
    if pa.types.is_list(kind) and isinstance(value, list):
        reasons = (_why_not(inner, kind.value_type, f"{path}[]") for inner in value)
        return next(filter(None, reasons), None)
    return None if _is_one(value, kind) else field_misfit(path.lstrip("."), value, kind)


def _is_one(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, bool) or pa.types.is_boolean(kind):
        return isinstance(value, bool) and pa.types.is_boolean(kind)
    if pa.types.is_integer(kind):
        return isinstance(value, int) and -(1 << kind.bit_width - 1) <= value < 1 << (
            kind.bit_width - 1
        )
    if pa.types.is_floating(kind):
        return isinstance(value, int | float)
    if pa.types.is_decimal(kind):
        return isinstance(value, int | float | str)
    return isinstance(value, str)


def read_value(text: bytes, kind: pa.DataType) -> bool:
    """Return whether Arrow accepts one JSON value as this type."""
    options = pa.json.ParseOptions(explicit_schema=pa.schema([("value", kind)]))
    try:
        pa.json.read_json(pa.BufferReader(b'{"value":' + text + b"}"), parse_options=options)
    except pa.ArrowInvalid:
        return False
    return True


def parse_permissively(bodies: pa.BinaryArray, shape: BodyShape) -> ParsedBodies:
    """Parse bodies into structs of a shape, with null and a reason for each value that does not match the shape.

    A body that is not a JSON object becomes null as a whole. Matching bodies are parsed as by `parse_bodies`.
    """
    parsed = parse_bodies(bodies, shape)
    if not parsed.misfits:
        return parsed
    rows = sorted(parsed.misfits)
    misfits: dict[int, Sequence[Misfit]] = {}
    texts: list[bytes | None] = []
    for row in rows:
        pruned = _Pruned(bodies[row].as_py(), shape.type)
        texts.append(pruned.text)
        misfits[row] = pruned.misfits or parsed.misfits[row]
    # Parse again with all fields optional. A missing field was already reported, and is no reason to replace the whole
    # body by null.
    again = parse_bodies(pa.array(texts, pa.binary()), BodyShape(shape.schema))
    place = np.arange(len(bodies))
    place[rows] = len(bodies) + np.arange(len(rows))
    values = pa.concat_arrays([parsed.values, again.values]).take(pa.array(place))
    return ParsedBodies(values, misfits)


class _Pruned:
    """A body in which null replaces each value that does not match its column's type.

    text: the new body; None if the body is not a JSON object
    misfits: why each of these values does not match
    """

    def __init__(self, body: bytes, kind: pa.DataType) -> None:
        self.misfits: list[Misfit] = []
        self.text: bytes | None = None
        try:
            value = json.loads(
                body.decode(),
                parse_int=NumberText,
                parse_float=NumberText,
                parse_constant=NumberText,
            )
        except (ValueError, RecursionError):
            return
        if isinstance(value, dict):
            self.text = self._struct(value, kind, "").encode("utf-8", "replace")

    def _value(self, value: Any, kind: pa.DataType, path: str) -> str:
        if value is None:
            return "null"
        if pa.types.is_struct(kind) and isinstance(value, dict):
            return self._struct(value, kind, f"{path}.")
        if is_list(kind) and isinstance(value, list):
            inner = (self._value(element, kind.value_type, f"{path}[]") for element in value)
            return f"[{','.join(inner)}]"
        text = str(value) if isinstance(value, NumberText) else json.dumps(value)
        if not _fits(value, kind, text):
            self.misfits.append(field_misfit(path, value, kind))
            return "null"
        return text

    def _struct(self, value: dict[str, Any], kind: pa.DataType, path: str) -> str:
        fields = (
            f"{json.dumps(field.name)}:"
            + self._value(value[field.name], field.type, f"{path}{field.name}")
            for field in kind
            if field.name in value
        )
        return f"{{{','.join(fields)}}}"


def _is_unicode(text: str) -> bool:
    """Return whether a text can be encoded in UTF-8: it has no unpaired surrogate, which JSON can name in an escape."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _fits(value: Any, kind: pa.DataType, text: str) -> bool:
    """Return whether a value matches this scalar type."""
    if pa.types.is_string(kind):
        return isinstance(value, str) and not isinstance(value, NumberText) and _is_unicode(value)
    if pa.types.is_boolean(kind):
        return isinstance(value, bool)
    if pa.types.is_integer(kind):
        if not (isinstance(value, NumberText) and INTEGER.fullmatch(value)):
            return False
        limit = 1 << kind.bit_width - 1
        # The length is checked first, because Python converts very long integers slowly.
        return len(value) < 24 and -limit <= int(value) < limit
    # Only Arrow's reader defines which texts of times, decimals and doubles are valid.
    return isinstance(value, str) and read_value(text.encode(), kind)


def with_charset(
    bodies: pa.BinaryArray, charset: str, parse: Callable[[pa.BinaryArray], ParsedBodies]
) -> ParsedBodies:
    """Convert bodies to UTF-8, and parse them.

    A body that is not valid in the charset becomes null, and gets a `Misfit`, the reason why it has no value.
    """
    if charset == UTF_8:
        return parse(bodies)
    misfits: dict[int, list[Misfit]] = {}
    texts: list[bytes | None] = []
    for row, body in enumerate(bodies.to_pylist()):
        try:
            texts.append(None if body is None else body.decode(charset).encode())
        except UnicodeError:
            # Even encode() may fail: a text that was decoded from UTF-7 may contain unpaired surrogates, which UTF-8
            # cannot encode.
            texts.append(None)
            misfits[row] = [whole_misfit(f"the body is not {charset}")]
    parsed = parse(pa.array(texts, pa.binary()))
    return ParsedBodies(parsed.values, {**parsed.misfits, **misfits})
