"""Infer the types of JSON bodies from samples, within fixed bounds.

Each field gets its most frequent type; a mix of integers and fractions becomes a double. A field that is null in all
sampled bodies gets no column until it has a value. Texts that look like times remain texts unless the request asks for
timestamps, because a later text may not look like a time. Fields beyond the bounds are skipped and reported; they
remain in the column `body`.

Each run can add fields to the table, and existing fields remain. Numbers may become wider if the format allows it. The
bounds apply to old and new fields together.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from reput.base import has_control
from reput.engine.tables import ReadTask
from reput.errors import UsageError
from reput.wings.lakes import body_shape
from reput.wings.lakes.body_decoders import BodyDecoder
from reput.wings.lakes.body_shape import MOST_COLUMNS
from reput.wings.lakes.commit import Destination, State
from reput.wings.lakes.report import ExportReport
from reput.wings.lakes.request import INFER, UTF_8, ExportRequest
from reput.wings.lakes.task import sample_bodies

MOST_LEVELS = 16
"""Maximum number of levels of nested objects and lists. Readers of tables recurse once per level."""

MOST_NAME_BYTES = 255
SAMPLE_BYTES = 64 << 20
"""Maximum total size of the sampled bodies."""

# Longer bodies are not sampled.
_LONGEST_BODY_BYTES = 4 << 20
_INT64 = range(-(2**63), 2**63)
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d(:?\d\d)?)", re.ASCII
)
_TYPES = {
    "bool": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "time": pa.timestamp("us", tz="UTC"),
    "text": pa.string(),
}

_SAMPLED_BODIES = 2000


@dataclass(slots=True)
class _Node:
    """The sampled values at one path of the JSON.

    kinds   how often each kind of value occurs: "object", "list", or a name of `_TYPES`
    fields, element  nodes of the object's fields, and of the list's elements
    known   the type that the table already has at this path
    """

    kinds: Counter[str] = field(default_factory=Counter)
    fields: dict[str, _Node] = field(default_factory=dict)
    element: _Node | None = None
    known: pa.DataType | None = None


class ShapeInference:
    """Infers types from bodies one by one; `shape` and `notes` return the result.

    old       the shape of the table from earlier runs
    widens      pairs of types that the table's format can widen
    timestamps  whether a field becomes a timestamp if all its texts are ISO 8601 times with a zone
    """

    def __init__(
        self,
        old: body_shape.BodyShape | None = None,
        *,
        widens: body_shape.Widenings = body_shape.NOTHING,
        timestamps: bool = False,
    ) -> None:
        self._columns, self._bytes = 0, 0
        self._root = _Node() if old is None else self._known(old.type)
        self._required = () if old is None else old.required
        self._widens, self._timestamps = widens, timestamps
        self._left_out: Counter[str] = Counter()
        self._too_narrow: dict[str, None] = {}

    def add_all(self, bodies: Iterable[bytes | None]) -> None:
        """Sample bodies until their bytes reach the bound. Bodies that are not JSON objects are ignored."""
        for body in bodies:
            if body is None or len(body) > _LONGEST_BODY_BYTES:
                continue
            self._bytes += len(body)
            if self._bytes > SAMPLE_BYTES:
                return
            try:
                value = json.loads(body)
            # The body is not JSON, or is nested too deeply for Python's parser.
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                self._see(self._root, value, 0)

    @property
    def shape(self) -> body_shape.BodyShape:
        """Return the inferred shape. Raises UsageError if no body has a field."""
        kind = self._struct_of(self._root.fields, "")
        if kind is None:
            raise UsageError(
                "json_body infer: none of the first bodies is a JSON object with a field; "
                "pass a file with a schema, or choose topics whose bodies are JSON",
                arguments=["json_body", "topics"],
            )
        return body_shape.BodyShape(pa.schema(list(kind)), self._required)

    @property
    def notes(self) -> list[str]:
        """Return a line for each reason why fields are skipped, and for each integer field that cannot be widened."""
        left_out = [
            f"inferring JSON types: fields {reason} are skipped; they remain in the body"
            for reason in sorted(self._left_out)
        ]
        return left_out + [
            f"inferring JSON types: {path} now has fractions, and stays an integer: "
            "this table cannot widen it"
            for path in self._too_narrow
        ]

    def _known(self, kind: pa.DataType) -> _Node:
        """Return the node for a type of the table, with nodes for its fields and elements."""
        node = _Node(known=kind)
        if pa.types.is_struct(kind):
            self._columns += kind.num_fields
            node.fields = {inner.name: self._known(inner.type) for inner in kind}
        elif body_shape.is_list(kind):
            node.element = self._known(kind.value_type)
        return node

    def _see(self, node: _Node, value: Any, level: int) -> None:
        """Count the kind of a value, and of each value inside it."""
        kind = self._kind_of(value)
        if kind is None or not _agrees(kind, node.known):
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
        """Return why a table cannot have a column of this name, "" if it can."""
        if not name:
            return "without a name"
        if has_control(name):
            return "with control characters in their names"
        # Escapes in JSON can name lone surrogates, which UTF-8 normally refuses.
        if len(name.encode("utf-8", "surrogatepass")) > MOST_NAME_BYTES:
            return f"with names of more than {MOST_NAME_BYTES} bytes"
        if any("\ud800" <= character <= "\udfff" for character in name):
            return "whose names are not Unicode"
        if self._columns >= MOST_COLUMNS:
            return f"beyond the first {MOST_COLUMNS:,}"
        return ""

    def _kind_of(self, value: Any) -> str | None:
        match value:
            case None:
                return None
            case bool():
                return "bool"
            case int():
                # JSON does not limit integers. Only a double can represent integers beyond 64 bits.
                return "integer" if value in _INT64 else "number"
            case float():
                return "number"
            case str():
                return "time" if self._timestamps and _is_time(value) else "text"
            case list():
                return "list"
        return "object"

    def _type_of(self, node: _Node, path: str) -> pa.DataType | None:
        """Return the type of most values, None if no type is known yet."""
        kind = _most_frequent(node.kinds)
        if node.known is not None and not pa.types.is_nested(node.known):
            return self._widened(node.known, kind, path)
        if kind == "object" or (node.known is not None and pa.types.is_struct(node.known)):
            return self._struct_of(node.fields, f"{path}.")
        if kind == "list" or node.known is not None:
            element = None if node.element is None else self._type_of(node.element, f"{path}[]")
            return None if element is None else pa.list_(pa.field("element", element))
        return None if kind is None else _TYPES[kind]

    def _widened(self, old: pa.DataType, kind: str | None, path: str) -> pa.DataType:
        if kind == "number" and pa.types.is_integer(old):
            if body_shape.is_wider(old, pa.float64(), self._widens):
                return pa.float64()
            self._too_narrow[path] = None
        return old

    def _struct_of(self, fields: dict[str, _Node], path: str) -> pa.DataType | None:
        """Return the struct of fields.

        If names differ only in case, keep only the first field, because some readers confuse such names.
        """
        spellings: dict[str, tuple[str, pa.DataType]] = {}
        for name, below in fields.items():
            kind = self._type_of(below, f"{path}{name}")
            if kind is not None:
                spellings.setdefault(name.lower(), (name, kind))
        return pa.struct(list(spellings.values())) if spellings else None


def _agrees(kind: str, old: pa.DataType | None) -> bool:
    """Return whether a value of this kind fits the type of a table's field. Inference ignores all other values."""
    if old is None:
        return True
    if pa.types.is_struct(old) or body_shape.is_list(old):
        return kind == ("object" if pa.types.is_struct(old) else "list")
    # Any other field keeps its type: only numbers can be widened.
    return kind in ("integer", "number")


def _most_frequent(counts: Counter[str]) -> str | None:
    """Return the most frequent kind.

    If a fraction occurs, integers count as doubles. If a text occurs that is not a time, times count as texts.
    """
    kinds = Counter(counts)
    if kinds["number"]:
        kinds["number"] += kinds.pop("integer", 0)
    if kinds["text"]:
        kinds["text"] += kinds.pop("time", 0)
    kind = max(kinds, key=kinds.__getitem__, default=None)
    return kind if kind is not None and kinds[kind] else None


def _is_time(text: str) -> bool:
    if not _TIME.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def choose_shape(
    request: ExportRequest,
    destination: Destination,
    state: State | None,
    tasks: Sequence[ReadTask],
    report: ExportReport,
    decoder: BodyDecoder | None = None,
) -> body_shape.BodyShape | None:
    """Return the shape of this run's bodies, or None if they stay bytes; add new fields to the report.

    Raises UsageError, for example if the types in the user's schema file conflict with the types in the table.
    """
    source = request.json_body
    if source is None and decoder is None:
        return None
    old = None if state is None else state.shape
    if decoder is not None:
        report.body_column = decoder.name
        shape = _decoded(decoder, request, old, destination, tasks, report)
    elif source == INFER:
        shape = _inferred(request, old, destination.widens, tasks, report)
    else:
        shape = _of_file(str(source), old, destination)
    if old is not None:
        report.json_changes = body_shape.changes(old, shape)
    return shape


def _of_file(
    path: str, old: body_shape.BodyShape | None, destination: Destination
) -> body_shape.BodyShape:
    shape = body_shape.BodyShape.from_file(path)
    if old is None:
        return shape
    try:
        return body_shape.evolved(old, shape, destination.widens)
    except ValueError as error:
        raise UsageError(
            f"{destination.name}: its fields or types differ from those in {path}: "
            f"{error}; keep the table's fields in {path} (new ones may be added), or export to another place",
            arguments=["json_body"],
        ) from None


def _decoded(
    decoder: BodyDecoder,
    request: ExportRequest,
    old: body_shape.BodyShape | None,
    destination: Destination,
    tasks: Sequence[ReadTask],
    report: ExportReport,
) -> body_shape.BodyShape:
    """Return the table's fields, followed by the decoder's fields that the table lacks."""
    bodies = () if decoder.is_fixed else sample_bodies(list(tasks), request, _SAMPLED_BODIES)
    fields = decoder.fields(bodies)
    report.note(*(f"{decoder.name}: {note}" for note in fields.notes))
    if not len(fields.schema):
        if old is not None:
            return old
        why = "".join(f"; {note}" for note in fields.notes[:3])
        raise UsageError(
            f"body {decoder.name}: the columns are unknown, because the first bodies refer to no known schema{why}",
            arguments=["body"],
        )
    try:
        new = body_shape.BodyShape.of_type(pa.struct(list(fields.schema)))
    except ValueError as error:
        raise UsageError(f"body {decoder.name}: {error}", arguments=["body"]) from None
    if old is None:
        return new
    shape, conflicts = body_shape.united(old, new, destination.widens)
    if conflicts and decoder.is_fixed:
        raise UsageError(
            f"{destination.name}: was created with other types than the {decoder.name} schema has: {conflicts[0]}; "
            "keep the table's types in the schema (new fields may be added), or export to another place",
            arguments=["body"],
        )
    report.note(
        *(f"{decoder.name}: the table keeps its types: {conflict}" for conflict in conflicts)
    )
    return shape


def _inferred(
    request: ExportRequest,
    old: body_shape.BodyShape | None,
    widens: body_shape.Widenings,
    tasks: Sequence[ReadTask],
    report: ExportReport,
) -> body_shape.BodyShape:
    inference = ShapeInference(old, widens=widens, timestamps=request.json_timestamps)
    bodies = sample_bodies(list(tasks), request, _SAMPLED_BODIES)
    if request.charset != UTF_8:
        # The inference parses UTF-8, so convert other charsets.
        bodies = (body and body.decode(request.charset, "replace").encode() for body in bodies)
    inference.add_all(bodies)
    shape = inference.shape
    report.note(*inference.notes)
    return shape
