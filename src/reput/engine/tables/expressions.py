"""Derive conditions from an Arrow filter, which DuckDB and Polars push down to a dataset.

pyarrow does not expose the parts of an expression to Python, but it can serialize an expression as Substrait, a
protocol buffer. This module decodes comparisons of a column with a value, and their combinations by `and`. It ignores
all other parts. That is correct because conditions only reduce the rows to read: the whole filter is applied to the
rows afterwards.

Source: Substrait, proto/substrait/algebra.proto and extended_expression.proto.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from reput.engine.tables.filters import Condition
from reput.errors import UsageError

_COMPARISONS = {"equal": "=", "not_equal": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MAX_DEPTH = 100
# Field numbers of the Substrait messages.
_EXTENSIONS, _REFERRED = 2, 3
_LITERAL, _SELECTION, _FUNCTION, _IF_THEN, _ONE_OF = 1, 2, 3, 6, 8
_INTEGERS = (2, 3, 5, 7, 27)
"""Fields of a Substrait literal for integers: i8, i16, i32, i64, and microseconds since 1970 in UTC."""
_TEXT = 12

_Fields = dict[int, list[Any]]


class _UnknownError(Exception):
    """Raised for a part of an expression that cannot be turned into a condition."""


def used_columns(expression: pc.Expression, schema: pa.Schema) -> list[str]:
    """Return the columns that an expression uses.

    A column is used if Arrow refuses the expression for a schema without the column.
    """
    return [name for name in schema.names if not _binds(expression, schema, name)]


def _binds(expression: pc.Expression, schema: pa.Schema, without: str) -> bool:
    fields = pa.schema([field for field in schema if field.name != without])
    try:
        ds.Scanner.from_batches([], schema=fields, columns={"value": expression})
    except pa.ArrowException:
        return False
    return True


def conditions_of(expression: pc.Expression, schema: pa.Schema) -> list[Condition]:
    """Return conditions that every row must meet for the expression to be true.

    The expression may still be false for a row that meets all these conditions: parts of the expression that are too
    complex give no condition.
    """
    try:
        message = _message(bytes(expression.to_substrait(schema)))
        names = {}
        for extension in message.get(_EXTENSIONS, []):
            function = _message(_one(_message(extension), 3))
            names[_number(function, 2)] = _one(function, 3).decode()
        referred = _message(_one(message, _REFERRED))
        return list(_Conditions(names, schema).of(_one(referred, 1), 0))
    except (pa.ArrowException, _UnknownError, UnicodeDecodeError):
        return []


class _Conditions:
    def __init__(self, functions: dict[int, str], schema: pa.Schema) -> None:
        self._functions, self._schema = functions, schema

    def of(self, expression: bytes, depth: int) -> Iterator[Condition]:
        """Yield conditions that are true whenever this expression is true."""
        if depth > _MAX_DEPTH:
            return
        parts = _message(expression)
        try:
            if _IF_THEN in parts:
                yield from self.of(self._only_way(_message(_one(parts, _IF_THEN))), depth + 1)
            elif _ONE_OF in parts:
                yield self._one_of(_message(_one(parts, _ONE_OF)))
            elif _FUNCTION in parts:
                name, arguments = self._call(_message(_one(parts, _FUNCTION)))
                if name == "and":
                    for argument in arguments:
                        yield from self.of(argument, depth + 1)
                elif name == "or" and len(arguments) == 2:
                    yield from _either(*(list(self.of(part, depth + 1)) for part in arguments))
                else:
                    yield self._comparison(name, arguments)
        except (_UnknownError, UsageError):
            return

    def _call(self, function: _Fields) -> tuple[str, list[bytes]]:
        arguments = [_one(_message(argument), 3) for argument in function.get(4, [])]
        return self._functions.get(_number(function, 1), ""), arguments

    def _only_way(self, choice: _Fields) -> bytes:
        """Return the then branch of an if-then-else whose else branch is false or null.

        When a column that may be null is compared with a list, DuckDB generates this form.
        """
        clause = _message(_one(choice, 1))
        otherwise = _message(_one(_message(_one(choice, 2)), _LITERAL))
        # If the else branch is neither null nor false, the expression can also be true through the else branch.
        if 29 not in otherwise and otherwise.get(1) != [0]:
            raise _UnknownError
        return _one(clause, 2)

    def _one_of(self, choice: _Fields) -> Condition:
        values = tuple(_value(literal) for literal in choice.get(2, []))
        return Condition(self._column(_one(choice, 1)), "in", values)

    def _comparison(self, name: str, arguments: list[bytes]) -> Condition:
        operator = _COMPARISONS.get(name)
        if operator is None or len(arguments) != 2:
            raise _UnknownError
        one, other = arguments
        if _SELECTION not in _message(one):  # The literal comes first, as in `3 < queue_id`.
            one, other, operator = other, one, _SWAPPED.get(operator, operator)
        return Condition(self._column(one), operator, _value(other))

    def _column(self, expression: bytes) -> str:
        selection = _message(_one(_message(expression), _SELECTION))
        segment = _message(_one(_message(_one(selection, 1)), 2))
        if 2 in segment:  # The expression selects a field of a struct column.
            raise _UnknownError
        place = _number(segment, 1)
        if place >= len(self._schema):
            raise _UnknownError
        return str(self._schema.field(place).name)


def _either(left: list[Condition], right: list[Condition]) -> Iterator[Condition]:
    """Yield conditions that are true if all conditions of a side are: a column has one of the values of both sides."""
    values = {other.column: other.values for other in right if other.operator in ("=", "in")}
    for condition in left:
        if condition.operator not in ("=", "in") or condition.column not in values:
            continue
        # Not all times of the table have a form in Python.
        if not pa.types.is_timestamp(condition.values.type):
            both = pa.concat_arrays([condition.values, values[condition.column]])
            yield Condition(condition.column, "in", tuple(both.to_pylist()))


def _value(expression: bytes) -> Any:
    literal = _message(_one(_message(expression), _LITERAL))
    for kind in _INTEGERS:
        if kind in literal:
            number = _number(literal, kind)
            # Protocol buffers write a negative number as its two's complement in 64 bits.
            return number - (1 << 64) if number >> 63 else number
    if _TEXT in literal:
        return _one(literal, _TEXT).decode()
    raise _UnknownError


def _one(message: _Fields, number: int) -> bytes:
    values = message.get(number, [])
    if len(values) != 1 or not isinstance(values[0], bytes):
        raise _UnknownError
    return values[0]


def _number(message: _Fields, number: int) -> int:
    """Return the value of a number field. A missing field is 0, because protobuf does not write zeros."""
    values = message.get(number, [0])
    if len(values) != 1 or not isinstance(values[0], int):
        raise _UnknownError
    return values[0]


def _message(data: bytes) -> _Fields:
    """Decode a protocol buffer into values by field number: int for a varint, bytes for other types."""
    fields: _Fields = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        value: int | bytes
        if kind == 0:
            value, at = _varint(data, at)
        else:
            length = {1: 8, 5: 4}.get(kind)
            if kind == 2:
                length, at = _varint(data, at)
            if length is None or at + length > len(data):
                raise _UnknownError
            value, at = data[at : at + length], at + length
        fields.setdefault(key >> 3, []).append(value)
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
    raise _UnknownError
