"""How the types of a table's JSON bodies may change from run to run: fields are added, numbers become wider."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from reput.lakes.json_shape import JsonShape, is_list, type_name

Widenings = frozenset[tuple[str, str]]
"""Names of a type and of a wider one: what the format of a table can make of a column that it has."""

NOTHING: Widenings = frozenset()


def is_wider(known: pa.DataType, wanted: pa.DataType, widens: Widenings) -> bool:
    return (type_name(known), type_name(wanted)) in widens


def evolved(known: JsonShape, given: JsonShape, widens: Widenings) -> JsonShape:
    """The shape of a table that has `known` and is to have `given`: new fields come last.

    Raises ValueError, which names the field, where a field would have to go or to change its type.
    """
    kind = _evolved(known.type, given.type, widens, "")
    return JsonShape(pa.schema(list(kind)), given.required)


def changes(known: JsonShape, now: JsonShape) -> list[str]:
    """A line for each field of `now` that is new or wider."""
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
            raise ValueError(f"it has no {place}")
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
        yield f"{path} was {type_name(known)}, is {type_name(now)}"
