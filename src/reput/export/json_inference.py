"""The types of JSON bodies, learned from some of them, within bounds that no body can push.

Each field has the kind that most bodies give it; integers and fractions go together as doubles. Texts that look like
times stay texts: the next may look like none. What lies beyond the bounds is left out and reported, and stays in the
column `body`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from reput.errors import UsageError
from reput.export.json_shape import JsonShape
from reput.messages.json_text import has_control

MOST_COLUMNS = 1_000
"""Columns of a table; a column of an object's field is one too. Readers of Parquet slow down with thousands."""

MOST_LEVELS = 16
"""Objects and lists inside one another. Readers of tables call themselves once a level."""

MOST_NAME_BYTES = 255
SAMPLE_BYTES = 64 << 20
"""Bodies that are looked at, in all; memory for what is learned from them is bounded by the columns."""

_LONGEST_BODY_BYTES = 4 << 20
_INT64 = range(-(2**63), 2**63)


@dataclass(slots=True)
class _Node:
    """What was seen at one path: how often each kind of value, and what lies below."""

    kinds: Counter[str] = field(default_factory=Counter)
    fields: dict[str, _Node] = field(default_factory=dict)
    element: _Node | None = None


class ShapeInference:
    """Learns from bodies one by one; `shape` and `notes` say what came of it."""

    def __init__(self) -> None:
        self._root, self._columns, self._bytes = _Node(), 0, 0
        self._left_out: Counter[str] = Counter()

    def add_all(self, bodies: Iterable[bytes | None]) -> None:
        """Look at bodies until the bound on their bytes is reached; what is no JSON object teaches nothing."""
        for body in bodies:
            if body is None or len(body) > _LONGEST_BODY_BYTES:
                continue
            self._bytes += len(body)
            if self._bytes > SAMPLE_BYTES:
                return
            try:
                value = json.loads(body)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                self._see(self._root, value, 0)

    @property
    def shape(self) -> JsonShape:
        """Raises UsageError where no body has a field."""
        kind = _struct_of(self._root.fields)
        if kind is None:
            raise UsageError(
                "json_body infer: none of the first bodies is a JSON object with a field; "
                "give a file with a schema, or choose topics",
                arguments=["json_body", "topics"],
            )
        return JsonShape(pa.schema(list(kind)))

    @property
    def notes(self) -> list[str]:
        """A line for each reason to leave fields out."""
        return [
            f"inferring JSON types: fields {reason} are left out; they stay in the body"
            for reason in sorted(self._left_out)
        ]

    def _see(self, node: _Node, value: Any, level: int) -> None:
        kind = _kind_of(value)
        if kind is None:
            return
        if kind in ("object", "list") and level >= MOST_LEVELS:
            self._left_out[f"more than {MOST_LEVELS} levels deep"] += 1
            return
        node.kinds[kind] += 1
        if kind == "object":
            self._see_fields(node, value, level)
        elif kind == "list":
            node.element = node.element or _Node()
            for inner in value:
                self._see(node.element, inner, level + 1)

    def _see_fields(self, node: _Node, value: dict[str, Any], level: int) -> None:
        for name, inner in value.items():
            below = node.fields.get(name)
            if below is None:
                if reason := self._why_not(name):
                    self._left_out[reason] += 1
                    continue
                below = node.fields[name] = _Node()
                self._columns += 1
            self._see(below, inner, level + 1)

    def _why_not(self, name: str) -> str:
        """Why a table cannot have a column of this name, "" where it can."""
        if not name:
            return "without a name"
        if has_control(name):
            return "with control characters in their names"
        if len(name.encode("utf-8", "surrogatepass")) > MOST_NAME_BYTES:
            return f"with names of more than {MOST_NAME_BYTES} bytes"
        if any("\ud800" <= character <= "\udfff" for character in name):
            return "whose names are not Unicode"
        if self._columns >= MOST_COLUMNS:
            return f"beyond the first {MOST_COLUMNS:,}"
        return ""


def _kind_of(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "bool"
        case int():
            return "integer" if value in _INT64 else "number"
        case float():
            return "number"
        case str():
            return "text"
        case list():
            return "list"
    return "object"


def _type_of(node: _Node) -> pa.DataType | None:
    """The type that most values have; None where nothing is known but that it is an object or a list."""
    kinds = Counter(node.kinds)
    if kinds["number"]:
        kinds["number"] += kinds.pop("integer", 0)
    kind = max(kinds, key=kinds.__getitem__, default="text")
    if kind == "object":
        return _struct_of(node.fields)
    if kind == "list":
        element = None if node.element is None else _type_of(node.element)
        return None if element is None else pa.list_(pa.field("element", element))
    return {"bool": pa.bool_(), "integer": pa.int64(), "number": pa.float64()}.get(
        kind, pa.string()
    )


def _struct_of(fields: dict[str, _Node]) -> pa.DataType | None:
    """Of names that differ by capitals alone the first is taken: not every reader of a table tells them apart."""
    known: dict[str, tuple[str, pa.DataType]] = {}
    for name, below in fields.items():
        kind = _type_of(below)
        if kind is not None:
            known.setdefault(name.lower(), (name, kind))
    return pa.struct(list(known.values())) if known else None
