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
    def from_json(cls, value: Mapping[str, Any]) -> BodyShape:
        return cls(pa.schema(list(_type_of(value["fields"], "", 0))), tuple(value["required"]))

    @classmethod
    def from_file(cls, path: str) -> BodyShape:
        """Read a shape, or a JSON Schema, from a file. Raises UsageError if the file is unreadable or invalid."""
        try:
            description = json.loads(Path(path).read_bytes())
        except OSError as error:
            raise _refused(f"{path}: cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise _refused(f"{path}: not JSON: {error}") from None
        required: tuple[str, ...] = ()
        try:
            if isinstance(description, dict) and isinstance(description.get("properties"), dict):
                required = _required(description)
                description = _from_json_schema(description, "")
            kind = _type_of(description, "", 0, _JSON_TYPES)
        except ValueError as error:
            raise _refused(f"{path}: {error}") from None
        if not pa.types.is_struct(kind):
            raise _refused(f"{path}: must be an object that maps field names to types")
        if unknown := [name for name in required if kind.get_field_index(name) < 0]:
            raise _refused(f"{path}: {unknown[0]} is required, but has no type")
        return cls(pa.schema(list(kind)), required)


def _type_of(
    description: Any, path: str, depth: int, scalars: Mapping[str, pa.DataType] = _TYPES
) -> pa.DataType:
    where = path or "the schema"
    if depth > _MAX_DEPTH:
        raise ValueError(f"{where} is nested too deeply")
    if isinstance(description, str):
        return _scalar_type(description, where, scalars)
    if isinstance(description, list) and len(description) == 1:
        return pa.list_(
            pa.field("element", _type_of(description[0], f"{path}[]", depth + 1, scalars))
        )
    if isinstance(description, dict) and description:
        _check_names(description, where)
        return pa.struct(
            [
                (name, _type_of(inner, f"{path}.{name}".lstrip("."), depth + 1, scalars))
                for name, inner in description.items()
            ]
        )
    raise ValueError(f"{where}: a type must be a name, a list of one type, or an object of types")


def _check_names(names: Iterable[str], where: str) -> None:
    """Raise ValueError for names that readers of a table reject, or cannot distinguish."""
    spellings: dict[str, str] = {}
    for name in names:
        if not name:
            raise ValueError(f"{where}: empty field name")
        if has_control(name):
            raise ValueError(f"{where}: {name!r}: field names must not contain control characters")
        if (spelling := spellings.setdefault(name.lower(), name)) != name:
            raise ValueError(f"{where}: {spelling} and {name} differ only in case")


def _scalar_type(name: str, where: str, scalars: Mapping[str, pa.DataType]) -> pa.DataType:
    if name in scalars:
        return scalars[name]
    if match := _DECIMAL.fullmatch(name):
        digits, scale = int(match[1]), int(match[2])
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
    name = next((name for name, candidate in _TYPES.items() if candidate == kind), None)
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


def is_wider(old: pa.DataType, new: pa.DataType, widens: Widenings) -> bool:
    return (type_name(old), type_name(new)) in widens


def evolved(old: BodyShape, new: BodyShape, widens: Widenings) -> BodyShape:
    """Return the shape of a table after a change from `old` to `new`. New fields come last.

    Raises ValueError, which names the field, if the change removes a field, or changes a type other than by widening
    it.
    """
    kind = _evolved(old.type, new.type, widens, "")
    return BodyShape(pa.schema(list(kind)), new.required)


def united(old: BodyShape, new: BodyShape, widens: Widenings) -> tuple[BodyShape, list[str]]:
    """Return a shape with the fields of `old` and `new`, and one line of text for each conflict.

    The fields of `old` come first. They keep their types unless `new` has wider ones. A conflict is a field with
    two types of which neither is wider, or two fields whose names differ only in case.
    """
    conflicts: list[str] = []
    kind = _united(old.type, new.type, widens, "", conflicts)
    return BodyShape(pa.schema(list(kind)), old.required), conflicts


def _united(
    old: pa.DataType, new: pa.DataType, widens: Widenings, path: str, conflicts: list[str]
) -> pa.DataType:
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        prefix = f"{path}." if path else ""
        names = {field.name.lower(): field.name for field in old}
        fields = [
            field
            if new.get_field_index(field.name) < 0
            else field.with_type(
                _united(
                    field.type, new.field(field.name).type, widens, prefix + field.name, conflicts
                )
            )
            for field in old
        ]
        for field in new:
            spelling = names.setdefault(field.name.lower(), field.name)
            if spelling != field.name:
                conflicts.append(f"{prefix}{field.name} differs from {spelling} only in case")
            elif old.get_field_index(field.name) < 0:
                fields.append(field)
        return pa.struct(fields)
    if is_list(old) and is_list(new):
        element = _united(old.value_type, new.value_type, widens, f"{path}[]", conflicts)
        return pa.list_(pa.field("element", element))
    if old == new or is_wider(new, old, NUMBERS):
        return old
    if is_wider(old, new, widens):
        return new
    conflicts.append(f"{path} is {type_name(old)}, not {type_name(new)}")
    return old


def changes(old: BodyShape, now: BodyShape) -> list[str]:
    """Return one line of text for each field of `now` that is new, or has a wider type."""
    return list(_changes(old.type, now.type, ""))


def _evolved(old: pa.DataType, new: pa.DataType, widens: Widenings, path: str) -> pa.DataType:
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return pa.struct(list(_evolved_fields(old, new, widens, path)))
    if is_list(old) and is_list(new):
        element = _evolved(old.value_type, new.value_type, widens, f"{path}[]")
        return pa.list_(pa.field("element", element))
    if old != new and not is_wider(old, new, widens):
        raise ValueError(f"{path} is {type_name(old)}, not {type_name(new)}")
    return new


def _evolved_fields(
    old: pa.DataType, new: pa.DataType, widens: Widenings, path: str
) -> Iterator[pa.Field]:
    for field in old:
        place = f"{path}.{field.name}".lstrip(".")
        if new.get_field_index(field.name) < 0:
            raise ValueError(f"the field {place} is missing")
        new_type = new.field(field.name).type
        yield pa.field(field.name, _evolved(field.type, new_type, widens, place))
    yield from (field for field in new if old.get_field_index(field.name) < 0)


def _changes(old: pa.DataType, now: pa.DataType, path: str) -> Iterator[str]:
    if is_list(old) and is_list(now):
        yield from _changes(old.value_type, now.value_type, f"{path}[]")
    elif pa.types.is_struct(old) and pa.types.is_struct(now):
        for field in now:
            place = f"{path}.{field.name}".lstrip(".")
            if old.get_field_index(field.name) < 0:
                yield f"{place}, {type_name(field.type)}, is new"
            else:
                yield from _changes(old.field(field.name).type, field.type, place)
    elif old != now:
        yield f"{path} was {type_name(old)}, is now {type_name(now)}"
