"""JSON bodies as columns, where a value that does not fit costs its field and not its message."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa

from reput.lakes.json_body import ParsedBodies, parse_bodies, read_value, told
from reput.lakes.json_shape import JsonShape, is_list

_MOST_REASONS = 5
_INTEGER = re.compile(r"-?\d+", re.ASCII)


def parse_permissively(bodies: pa.BinaryArray, shape: JsonShape) -> ParsedBodies:
    """Bodies as structs of a shape; what does not fit is null, and the reasons say which and why.

    A body that is no JSON object is null as a whole. What fits is read as `parse_bodies` reads it.
    """
    found = parse_bodies(bodies, shape)
    if found.reasons.null_count == len(bodies):
        return found
    misfits = np.flatnonzero(found.reasons.is_valid().to_numpy(zero_copy_only=False))
    reasons: list[str | None] = found.reasons.to_pylist()
    texts: list[bytes | None] = []
    for row in misfits.tolist():
        pruned = _Pruned(bodies[row].as_py(), shape.type)
        texts.append(pruned.text)
        reasons[row] = pruned.reason or reasons[row]
    again = parse_bodies(pa.array(texts, pa.binary()), JsonShape(shape.schema))
    place = np.arange(len(bodies))
    place[misfits] = len(bodies) + np.arange(len(misfits))
    values = pa.concat_arrays([found.values, again.values]).take(pa.array(place))
    return ParsedBodies(values, pa.array(reasons, pa.string()))


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


class _Pruned:
    """A body without what does not fit: its text, None where it is no JSON object, and why each field is gone."""

    def __init__(self, body: bytes, kind: pa.DataType) -> None:
        self._reasons: list[str] = []
        self.text: bytes | None = None
        try:
            value = json.loads(
                body.decode(), parse_int=_Number, parse_float=_Number, parse_constant=_Number
            )
        except (ValueError, RecursionError):
            return
        if isinstance(value, dict):
            self.text = self._struct(value, kind, "").encode("utf-8", "replace")

    @property
    def reason(self) -> str:
        more = len(self._reasons) - _MOST_REASONS
        told = "; ".join(self._reasons[:_MOST_REASONS])
        return f"{told}; and {more} more" if more > 0 else told

    def _value(self, value: Any, kind: pa.DataType, path: str) -> str:
        if value is None:
            return "null"
        if pa.types.is_struct(kind) and isinstance(value, dict):
            return self._struct(value, kind, f"{path}.")
        if is_list(kind) and isinstance(value, list):
            inner = (self._value(each, kind.value_type, f"{path}[]") for each in value)
            return f"[{','.join(inner)}]"
        text = str(value) if isinstance(value, _Number) else json.dumps(value)
        if not _fits(value, kind, text):
            self._reasons.append(f"{path} is {told(value)}, not {kind}")
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
    """Whether no half of a surrogate pair stands alone, which JSON can spell and UTF-8 cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _fits(value: Any, kind: pa.DataType, text: str) -> bool:
    """Whether a value is read as one of this type that is no object or list."""
    if pa.types.is_string(kind):
        return isinstance(value, str) and not isinstance(value, _Number) and _is_unicode(value)
    if pa.types.is_boolean(kind):
        return isinstance(value, bool)
    if pa.types.is_integer(kind):
        if not (isinstance(value, _Number) and _INTEGER.fullmatch(value)):
            return False
        limit = 1 << kind.bit_width - 1
        return len(value) < 24 and -limit <= int(value) < limit
    # Of times, decimals and doubles the reader itself knows which it takes.
    return isinstance(value, str) and read_value(text.encode(), kind)
