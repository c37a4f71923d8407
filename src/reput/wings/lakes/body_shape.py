"""Define shapes: the fields and types of bodies, read from a file or inferred from bodies.

A type is written as JSON: a name ("int64", "string"), a list of one type, or an object of named types. A JSON Schema is
accepted as well.

An export can change the shape of its table: it adds fields, and widens numeric types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from reput.base import has_control
from reput.errors import UsageError

_JSON_TYPES = {
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_TYPES = {**_JSON_TYPES, "float": pa.float32(), "binary": pa.binary(), "date": pa.date32()}
"""Column types by name. Shapes of JSON bodies use only `_JSON_TYPES`; shapes of other bodies use all these types."""

_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_MOST_DIGITS = 38
_SCHEMA_TYPES = {"boolean": "bool", "integer": "int64", "number": "double", "string": "string"}
_MAX_DEPTH = 50

Widenings = frozenset[tuple[str, str]]
"""Pairs (type, wider type): changes of a column's type that the format of a table allows."""

NOTHING: Widenings = frozenset()
NUMBERS: Widenings = frozenset(
    {("int32", "int64"), ("int32", "double"), ("int64", "double"), ("float", "double")}
)

MOST_COLUMNS = 1_000
"""Maximum number of columns of a table. Nested fields count as columns.

Parquet readers become slow with thousands of columns.
"""


@dataclass(frozen=True)
class BodyShape:
    """Fields with their types. A body that lacks a required field does not match the shape."""

    schema: pa.Schema
    required: tuple[str, ...] = ()

    @property
    def type(self) -> pa.DataType:
        return pa.struct(list(self.schema))

    def as_json(self) -> dict[str, Any]:
        return {"fields": _described(self.type), "required": list(self.required)}

    @classmethod
    def of_type(cls, kind: pa.DataType, required: Iterable[str] = ()) -> BodyShape:
        """Return the shape of a struct type. Raises ValueError for a type that no shape can describe."""
        return cls(pa.schema(list(_type_of(_described(kind), "", 0))), tuple(required))

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> BodyShape:
        return cls(pa.schema(list(_type_of(stored["fields"], "", 0))), tuple(stored["required"]))

    @classmethod
    def from_file(cls, path: str) -> BodyShape:
        """Read a shape, or a JSON Schema, from a file. Raises UsageError if the file is unreadable or invalid."""
        try:
            given = json.loads(Path(path).read_bytes())
        except OSError as error:
            raise _refused(f"{path}: cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise _refused(f"{path}: not JSON: {error}") from None
        required: tuple[str, ...] = ()
        try:
            if isinstance(given, dict) and isinstance(given.get("properties"), dict):
                required = _required(given)
                given = _from_json_schema(given, "")
            kind = _type_of(given, "", 0, _JSON_TYPES)
        except ValueError as error:
            raise _refused(f"{path}: {error}") from None
        if not pa.types.is_struct(kind):
            raise _refused(f"{path}: must be an object that maps field names to types")
        if unknown := [name for name in required if kind.get_field_index(name) < 0]:
            raise _refused(f"{path}: {unknown[0]} is required, but has no type")
        return cls(pa.schema(list(kind)), required)


def _type_of(
    given: Any, path: str, depth: int, scalars: Mapping[str, pa.DataType] = _TYPES
) -> pa.DataType:
    where = path or "the schema"
    if depth > _MAX_DEPTH:
        raise ValueError(f"{where} is nested too deeply")
    if isinstance(given, str):
        return _scalar_type(given, where, scalars)
    if isinstance(given, list) and len(given) == 1:
        return pa.list_(pa.field("element", _type_of(given[0], f"{path}[]", depth + 1, scalars)))
    if isinstance(given, dict) and given:
        _check_names(given, where)
        return pa.struct(
            [
                (name, _type_of(inner, f"{path}.{name}".lstrip("."), depth + 1, scalars))
                for name, inner in given.items()
            ]
        )
    raise ValueError(f"{where}: a type must be a name, a list of one type, or an object of types")


def _check_names(names: Iterable[str], where: str) -> None:
    """Raise ValueError for names that readers of a table reject, or cannot distinguish."""
    known: dict[str, str] = {}
    for name in names:
        if not name:
            raise ValueError(f"{where}: empty field name")
        if has_control(name):
            raise ValueError(f"{where}: {name!r}: field names must not contain control characters")
        if (other := known.setdefault(name.lower(), name)) != name:
            raise ValueError(f"{where}: {other} and {name} differ only in case")


def _scalar_type(name: str, where: str, scalars: Mapping[str, pa.DataType]) -> pa.DataType:
    if name in scalars:
        return scalars[name]
    if found := _DECIMAL.fullmatch(name):
        digits, scale = int(found[1]), int(found[2])
        if 1 <= digits <= _MOST_DIGITS and scale <= digits:
            return pa.decimal128(digits, scale)
    raise ValueError(f"{where}: {name!r} is not one of {', '.join(scalars)}, decimal(P,S)")


def _described(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {field.name: _described(field.type) for field in kind}
    if is_list(kind):
        return [_described(kind.value_type)]
    return type_name(kind)


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def type_name(kind: pa.DataType) -> str:
    """Return the name of a type in a shape; "object" or "list" for nested types.

    Raises ValueError for a type that no field of a shape can have.
    """
    if pa.types.is_struct(kind) or is_list(kind):
        return "object" if pa.types.is_struct(kind) else "list"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        # Table libraries return large_string and large_binary for columns that were written as string and binary.
        return "string" if pa.types.is_large_string(kind) else "binary"
    name = next((name for name, known in _TYPES.items() if known == kind), None)
    if name is None:
        raise ValueError(f"{kind} is not a type that a field of a shape can have")
    return name


def _refused(reason: str) -> UsageError:
    return UsageError(f"json_body {reason}", arguments=["json_body"])


def _required(schema: Mapping[str, Any]) -> tuple[str, ...]:
    names = schema.get("required", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("'required' must be a list of names")
    return tuple(names)


def _from_json_schema(schema: Any, path: str) -> Any:
    """Convert a JSON Schema to the notation of shapes."""
    where = path.lstrip(".") or "the schema"
    if not isinstance(schema, dict):
        raise ValueError(f"{where}: not a JSON Schema")
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = [name for name in kind if name != "null"]
        kind = kinds[0] if len(kinds) == 1 else kind
    if kind == "object" or (kind is None and "properties" in schema):
        inner = schema.get("properties")
        if not isinstance(inner, dict):
            raise ValueError(f"{where}: an object must have properties")
        return {name: _from_json_schema(part, f"{path}.{name}") for name, part in inner.items()}
    if kind == "array":
        return [_from_json_schema(schema.get("items"), f"{path}[]")]
    if kind == "string" and schema.get("format") == "date-time":
        return "timestamp"
    if not isinstance(kind, str) or kind not in _SCHEMA_TYPES:
        raise ValueError(f"{where}: type {kind!r} is not supported")
    return _SCHEMA_TYPES[kind]


def is_wider(known: pa.DataType, wanted: pa.DataType, widens: Widenings) -> bool:
    return (type_name(known), type_name(wanted)) in widens


def evolved(known: BodyShape, given: BodyShape, widens: Widenings) -> BodyShape:
    """Return the shape of a table after a change from `known` to `given`. New fields come last.

    Raises ValueError, which names the field, if the change removes a field, or changes a type other than by widening
    it.
    """
    kind = _evolved(known.type, given.type, widens, "")
    return BodyShape(pa.schema(list(kind)), given.required)


def united(known: BodyShape, given: BodyShape, widens: Widenings) -> tuple[BodyShape, list[str]]:
    """Return a shape with the fields of `known` and `given`, and one line of text for each conflict.

    The fields of `known` come first. They keep their types unless `given` has wider ones. A conflict is a field with
    two types of which neither is wider, or two fields whose names differ only in case.
    """
    conflicts: list[str] = []
    kind = _united(known.type, given.type, widens, "", conflicts)
    return BodyShape(pa.schema(list(kind)), known.required), conflicts


def _united(
    known: pa.DataType, given: pa.DataType, widens: Widenings, path: str, conflicts: list[str]
) -> pa.DataType:
    if pa.types.is_struct(known) and pa.types.is_struct(given):
        prefix = f"{path}." if path else ""
        names = {field.name.lower(): field.name for field in known}
        fields = [
            field
            if given.get_field_index(field.name) < 0
            else field.with_type(
                _united(
                    field.type, given.field(field.name).type, widens, prefix + field.name, conflicts
                )
            )
            for field in known
        ]
        for field in given:
            other = names.setdefault(field.name.lower(), field.name)
            if other != field.name:
                conflicts.append(f"{prefix}{field.name} differs from {other} only in case")
            elif known.get_field_index(field.name) < 0:
                fields.append(field)
        return pa.struct(fields)
    if is_list(known) and is_list(given):
        element = _united(known.value_type, given.value_type, widens, f"{path}[]", conflicts)
        return pa.list_(pa.field("element", element))
    if known == given or is_wider(given, known, NUMBERS):
        return known
    if is_wider(known, given, widens):
        return given
    conflicts.append(f"{path} is {type_name(known)}, not {type_name(given)}")
    return known


def changes(known: BodyShape, now: BodyShape) -> list[str]:
    """Return one line of text for each field of `now` that is new, or has a wider type."""
    return list(_changes(known.type, now.type, ""))


def _evolved(known: pa.DataType, given: pa.DataType, widens: Widenings, path: str) -> pa.DataType:
    if pa.types.is_struct(known) and pa.types.is_struct(given):
        return pa.struct(list(_evolved_fields(known, given, widens, path)))
    if is_list(known) and is_list(given):
        element = _evolved(known.value_type, given.value_type, widens, f"{path}[]")
        return pa.list_(pa.field("element", element))
    if known != given and not is_wider(known, given, widens):
        raise ValueError(f"{path} is {type_name(known)}, not {type_name(given)}")
    return given


def _evolved_fields(
    known: pa.DataType, given: pa.DataType, widens: Widenings, path: str
) -> Iterator[pa.Field]:
    for field in known:
        place = f"{path}.{field.name}".lstrip(".")
        if given.get_field_index(field.name) < 0:
            raise ValueError(f"the field {place} is missing")
        wanted = given.field(field.name).type
        yield pa.field(field.name, _evolved(field.type, wanted, widens, place))
    yield from (field for field in given if known.get_field_index(field.name) < 0)


def _changes(known: pa.DataType, now: pa.DataType, path: str) -> Iterator[str]:
    if is_list(known) and is_list(now):
        yield from _changes(known.value_type, now.value_type, f"{path}[]")
    elif pa.types.is_struct(known) and pa.types.is_struct(now):
        for field in now:
            place = f"{path}.{field.name}".lstrip(".")
            if known.get_field_index(field.name) < 0:
                yield f"{place}, {type_name(field.type)}, is new"
            else:
                yield from _changes(known.field(field.name).type, field.type, place)
    elif known != now:
        yield f"{path} was {type_name(known)}, is now {type_name(now)}"
