"""Decode bodies in encodings other than JSON into typed columns: Avro, Protobuf, and encodings of plugins.

A decoder turns one body into a mapping of Python values. `decode_bodies` calls it for many bodies, and checks
every value against the type of its column. Its result has the same form as that of `json_body.parse_bodies`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pyarrow as pa

from reput.base import late, require
from reput.errors import UsageError
from reput.wings.lakes.body_decoders import BodyDecoder, UndecodableBodyError
from reput.wings.lakes.body_shape import BodyShape
from reput.wings.lakes.http_json import without_password
from reput.wings.lakes.parsed_bodies import Misfit, ParsedBodies, field_misfit, whole_misfit

ENTRY_POINTS = "reput.body_decoders"

MOST_BODY_BYTES = 4 << 20
"""Longest body, a broker's default limit. It bounds memory: one byte of Avro can become a list element of 200 bytes."""

_CHUNK_BYTES = 1 << 20
_TOO_LARGE = f"the body has more than {MOST_BODY_BYTES:,} bytes"

# Integers that a double represents exactly. Larger ones would be rounded, so they are rejected.
_EXACT_DOUBLES = range(-(1 << 53), (1 << 53) + 1)
_EXACT_FLOATS = range(-(1 << 24), (1 << 24) + 1)
_OWN = {"avro": ("fastavro", "avro"), "proto": ("google.protobuf", "protobuf")}
"""The library of each of reput's own encodings, and the extra that installs it."""


def open_decoder(text: str) -> BodyDecoder:
    """Return the decoder that a text names, such as `avro:order.avsc`.

    Raises:
        UsageError: The encoding is unknown, or its file is not valid.
        MissingExtraError: A library is missing.
    """
    name, colon, argument = text.partition(":")
    if not colon or not argument:
        raise UsageError(
            f"body {without_password(text)}: specify avro:FILE, avro:registry:URL, proto:FILE#Message, json:infer or "
            "json:FILE",
            arguments=["body"],
        )
    if name in _OWN:
        library, extra = _OWN[name]
        need = f"body {name!r} needs the library {library.rpartition('.')[2]}"
        require(library, f"{need}: pip install 'reput[{extra}]'", ["body"])
        opened: BodyDecoder = late(f"reput.wings.lakes.{name}_bodies", f"open_{name}")()(argument)
        return opened
    for point in entry_points(group=ENTRY_POINTS, name=name):
        decoder: BodyDecoder = point.load()(argument)
        return decoder
    encodings = ["json", *_OWN, *sorted({p.name for p in entry_points(group=ENTRY_POINTS)})]
    raise UsageError(
        f"body {without_password(text)}: unknown encoding; known are {', '.join(encodings)}",
        arguments=["body"],
    )


def decode_bodies(
    bodies: pa.BinaryArray, shape: BodyShape, decoder: BodyDecoder, *, is_permissive: bool = False
) -> ParsedBodies:
    """Decode bodies into structs of a shape. A null body becomes null and counts as matching.

    Args:
        bodies: The decompressed bodies.
        shape: The wanted fields. Other fields of a body are ignored.
        decoder: The decoder of the encoding.
        is_permissive: Whether a value that does not match `shape` becomes null; otherwise its whole body is rejected.

    Raises:
        StoreAccessError: A registry does not answer. Bodies are not rejected for this reason.
    """
    kind = shape.type
    fits = _check_of(kind)
    values: list[Mapping[str, Any] | None] = []
    chunks: list[pa.Array] = []
    misfits: dict[int, list[Misfit]] = {}
    pending_bytes = 0
    for row, scalar in enumerate(bodies):
        body, value = scalar.as_py(), None
        if body is not None:
            pending_bytes += len(body)
            try:
                if len(body) > MOST_BODY_BYTES:
                    raise UndecodableBodyError(_TOO_LARGE, len(body))
                value = decoder.decode(body)
            except UndecodableBodyError as error:
                misfits[row] = [Misfit(str(error), error.reason, error.example)]
            except ValueError as error:
                misfits[row] = [whole_misfit(f"the body is not {decoder.name}", str(error))]
            if value is not None and not fits(value):
                misfits_of_row: list[Misfit] = []
                value = _pruned(value, kind, "", misfits_of_row)
                misfits[row] = misfits_of_row
                value = value if is_permissive else None
        values.append(value)
        # Python objects take many times the memory of Arrow arrays, so convert them in chunks.
        if pending_bytes >= _CHUNK_BYTES:
            chunks.append(pa.array(values, kind))
            values, pending_bytes = [], 0
    last = pa.array(values, kind)
    return ParsedBodies(pa.concat_arrays([*chunks, last]) if chunks else last, misfits)


_Check = Callable[[Any], bool]


def _check_of(kind: pa.DataType) -> _Check:
    """Return a function that checks whether a value can be converted to this type without loss.

    pyarrow does not check this: it truncates fractions, and turns a string into a list of characters.
    """
    if pa.types.is_struct(kind):
        return _struct_check(kind)
    if pa.types.is_list(kind):
        inner = _check_of(kind.value_type)
        return lambda value: (
            value is None or (isinstance(value, list) and all(inner(element) for element in value))
        )
    return _scalar_check(kind)


def _struct_check(kind: pa.DataType) -> _Check:
    checks = [(field.name, _check_of(field.type)) for field in kind]

    def fits(value: Any) -> bool:
        if value is None:
            return True
        if not isinstance(value, Mapping):
            return False
        get = value.get
        for name, check in checks:  # noqa: SIM110  # several times as fast as `all`
            if not check(get(name)):
                return False
        return True

    return fits


def _scalar_check(kind: pa.DataType) -> _Check:
    # `type(v) is` excludes subclasses: a bool is an int in Python, and a datetime is a date.
    if pa.types.is_integer(kind):
        limit = 1 << kind.bit_width - 1
        return lambda v: v is None or (type(v) is int and -limit <= v < limit)
    if pa.types.is_float32(kind):
        return lambda v: (
            v is None or (type(v) is float and _is_float(v)) or _is_in(v, _EXACT_FLOATS)
        )
    if pa.types.is_floating(kind):
        return lambda v: v is None or type(v) is float or _is_in(v, _EXACT_DOUBLES)
    if pa.types.is_decimal(kind):
        return lambda v: v is None or _is_decimal(v, kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return lambda v: v is None or (isinstance(v, datetime) and v.tzinfo is not None)
    if pa.types.is_date(kind):
        return lambda v: v is None or type(v) is date
    python_type = bool if pa.types.is_boolean(kind) else bytes if pa.types.is_binary(kind) else str
    if python_type is str:
        return lambda v: v is None or (isinstance(v, str) and (v.isascii() or _is_unicode(v)))
    return lambda v: v is None or isinstance(v, python_type)


def _is_in(value: Any, exact: range) -> bool:
    return type(value) is int and value in exact


def _is_float(value: float) -> bool:
    # A number beyond the range of float32 is converted to infinity. The result differs from `value`, so it is refused.
    with np.errstate(over="ignore"):
        return math.isnan(value) or float(np.float32(value)) == value


def _is_decimal(value: Any, digits: int, scale: int) -> bool:
    if type(value) is int:
        value = Decimal(value)
    if not isinstance(value, Decimal) or not value.is_finite():
        return False
    _, numbers, exponent = value.as_tuple()
    # At most `scale` digits may follow the decimal point, and at most `digits - scale` digits may precede it.
    places = max(-int(exponent), 0)
    return places <= scale and len(numbers) + int(exponent) <= digits - scale


def _is_unicode(text: str) -> bool:
    """Return whether a text can be encoded in UTF-8: it has no unpaired surrogate."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _pruned(value: Any, kind: pa.DataType, path: str, misfits: list[Misfit]) -> Any:
    """Return a value with null for parts that do not match their type in `kind`. The reasons are added to `misfits`."""
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        prefix = f"{path}." if path else ""
        return {
            field.name: _pruned(value.get(field.name), field.type, prefix + field.name, misfits)
            for field in kind
        }
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_pruned(element, kind.value_type, f"{path}[]", misfits) for element in value]
    if not _check_of(kind)(value):
        misfits.append(field_misfit(path or "the body", value, kind))
        return None
    return value
