"""Decode Avro bodies with a schema from a file or from a schema registry.

A body is one record in Avro's binary encoding, with one of these headers:

schema file       none, or the header of Avro's single-object encoding
schema registry   the header of Confluent's serializers: a zero byte, and the schema's id in four bytes, big endian
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, fingerprint, to_parsing_canonical_form

from reput.errors import UsageError
from reput.wings.lakes.body_decoders import BodyFields, UndecodableBodyError, json_text_of
from reput.wings.lakes.body_shape import MOST_COLUMNS, NUMBERS, BodyShape, united
from reput.wings.lakes.http_json import without_password
from reput.wings.lakes.schema_registry import HEADER_BYTES, SchemaRegistry, schema_id

_MOST_LEVELS = 32
_SINGLE_OBJECT = b"\xc3\x01"
_FINGERPRINT_BYTES = 8
_REGISTRY = "registry:"
_MOST_DIGITS = 38

_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_TIME = pa.timestamp("us", tz="UTC")
_TIMES = {"timestamp-millis": _TIME, "timestamp-micros": _TIME, "date": pa.date32()}
_TEXTS = ("time-millis", "time-micros", "local-timestamp-millis", "local-timestamp-micros", "uuid")

_Convert = Callable[[Any], Any]


def open_avro(argument: str) -> AvroFileDecoder | AvroRegistryDecoder:
    """Return the decoder of `FILE` or `registry:URL`.

    Raises:
        UsageError: The file is not an Avro schema of a record, or the URL is not valid.
    """
    if argument.startswith(_REGISTRY):
        return AvroRegistryDecoder(SchemaRegistry(argument.removeprefix(_REGISTRY)))
    try:
        text = Path(argument).read_text("utf-8")
    except OSError as error:
        where = without_password(argument)
        hint = "; for a schema registry, specify avro:registry:URL" if "://" in where else ""
        raise UsageError(
            f"body avro:{where}: cannot be read: {error.strerror}{hint}", arguments=["body"]
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"body avro:{argument}: {error}", arguments=["body"]) from None
    decoder = AvroFileDecoder(text, argument)
    decoder.fields(())
    return decoder


class AvroFileDecoder:
    """Decodes all bodies with the schema that was read from a file."""

    name, is_fixed = "avro", True

    def __init__(self, text: str, place: str) -> None:
        self._text, self._place = text, place
        self._opened: _RecordReader | None = None

    def fields(self, sample: Iterable[bytes | None]) -> BodyFields:
        """Return the fields of the schema. Raises UsageError if they cannot be columns of a table."""
        reader = self._reader
        return BodyFields(reader.shape.schema, tuple(reader.notes))

    def decode(self, body: bytes) -> Mapping[str, Any]:
        """See `BodyDecoder`."""
        reader = self._reader
        # A record may begin with the two bytes of this header by chance, so the fingerprint must match as well.
        if body.startswith(_SINGLE_OBJECT) and body[2:10] == reader.fingerprint:
            return reader.read(body, len(_SINGLE_OBJECT) + _FINGERPRINT_BYTES)
        return reader.read(body, 0)

    @property
    def _reader(self) -> _RecordReader:
        if self._opened is None:
            self._opened = _RecordReader(self._text, {}, f"body avro:{self._place}")
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        # fastavro's schemas are not pickled, because they are large and quickly parsed again.
        return {**vars(self), "_opened": None}


class AvroRegistryDecoder:
    """Decodes bodies with the schemas of a registry. Each body begins with the id of its schema."""

    name, is_fixed = "avro", False

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._readers: dict[int, _RecordReader | UndecodableBodyError] = {}

    def fields(self, sample: Iterable[bytes | None]) -> BodyFields:
        """Return the fields of all schemas to which bodies of the sample refer, in the order of the schemas' ids."""
        ids = {schema_id(body) for body in sample if body is not None}
        readers = [self._reader(number) for number in sorted(id_ for id_ in ids if id_ is not None)]
        shape: BodyShape | None = None
        notes: list[str] = []
        for reader in readers:
            if isinstance(reader, UndecodableBodyError):
                notes.append(str(reader))
                continue
            notes += reader.notes
            if shape is None:
                shape = reader.shape
            else:
                shape, conflicts = united(shape, reader.shape, NUMBERS)
                notes += [f"{reader.place}: {conflict}" for conflict in conflicts]
        schema = pa.schema([]) if shape is None else shape.schema
        return BodyFields(schema, tuple(dict.fromkeys(notes)))

    def decode(self, body: bytes) -> Mapping[str, Any]:
        """See `BodyDecoder`."""
        number = schema_id(body)
        if number is None:
            raise UndecodableBodyError("the body does not begin with a zero and a schema id")
        reader = self._readers.get(number) or self._reader(number)
        if isinstance(reader, UndecodableBodyError):
            raise reader
        return reader.read(body, HEADER_BYTES)

    def _reader(self, number: int) -> _RecordReader | UndecodableBodyError:
        # Errors are kept as well, so that a bad schema costs one request instead of one per message.
        if number not in self._readers:
            self._readers[number] = self._opened(number)
        return self._readers[number]

    def _opened(self, number: int) -> _RecordReader | UndecodableBodyError:
        try:
            schema = self._registry.schema(number)
            if schema.kind != "AVRO":
                return UndecodableBodyError(f"a schema of the registry is {schema.kind}, not Avro")
            place = f"{self._registry.name}: schema {number}"
            return _RecordReader(schema.text, schema.references, place)
        except UndecodableBodyError as error:
            return error
        except UsageError as error:
            return UndecodableBodyError("a schema of the registry cannot be used", error)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_readers": {}}


class _RecordReader:
    """Reads records of one schema.

    Attributes:
        place: The origin of the schema, for error messages.
        shape: The types of its fields.
        notes: A line for each field that is omitted or becomes a string.

    Raises:
        UsageError: The text is not an Avro schema of a record with fields.
    """

    def __init__(self, text: str, references: Mapping[str, str], place: str) -> None:
        self.place = place
        self._read = fastavro.schemaless_reader
        self._names: dict[str, Any] = {}
        try:
            for reference in references.values():
                fastavro.parse_schema(json.loads(reference), named_schemas=self._names)
            self._schema = fastavro.parse_schema(json.loads(text), named_schemas=self._names)
            canonical = to_parsing_canonical_form(json.loads(text)) if not references else ""
        except (
            ValueError, KeyError, TypeError, AttributeError, RecursionError, SchemaParseException,
        ) as error:  # fmt: skip
            raise self._refused(f"not an Avro schema: {error}") from None
        self.fingerprint = (
            bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO")) if canonical else b""
        )
        types = _RecordTypes(self._names, self._refused)
        kind, self._convert = types.of(self._schema, "")
        if kind is None or not pa.types.is_struct(kind):
            raise self._refused("not the schema of a record with fields")
        self.notes = types.notes
        try:
            self.shape = BodyShape.of_type(kind)
        except ValueError as error:
            raise self._refused(str(error)) from None

    def read(self, body: bytes, start: int) -> Mapping[str, Any]:
        """Return the record from `start` to the end of the body. Raises UndecodableBodyError."""
        stream = BytesIO(body)
        stream.seek(start)
        try:
            value: Any = self._read(stream, self._schema, None)
        except MemoryError:
            raise
        except EOFError:
            raise UndecodableBodyError("the body is shorter than its Avro record") from None
        except Exception as error:  # fastavro may raise any error for bytes that are not Avro.
            why = str(error)
            # Errors are counted by text. With an object's address (" object at 0x...") in it, each text would be
            # different.
            example = type(error).__name__ if not why or " object at " in why else why
            raise UndecodableBodyError(
                "the body is not a record of its Avro schema", example
            ) from None
        rest = len(body) - stream.tell()
        if rest:
            raise UndecodableBodyError("bytes follow the body's Avro record", rest)
        fields: Mapping[str, Any] = self._convert(value) if self._convert else value
        return fields

    def _refused(self, reason: str) -> UsageError:
        return UsageError(f"{self.place}: {reason}", arguments=["body"])


class _RecordTypes:
    """Maps each part of an Avro schema to a column type, and to a conversion of its values."""

    def __init__(self, names: Mapping[str, Any], refused: Callable[[str], UsageError]) -> None:
        self._names, self._refused = names, refused
        self._above: list[str] = []
        self._columns = 0
        self.notes: list[str] = []

    def of(self, schema: Any, path: str) -> tuple[pa.DataType | None, _Convert | None]:
        """Return a schema's column type, and the conversion of its values.

        The type is None if the schema has no values except null. The conversion is None if none is needed.
        """
        if isinstance(schema, list):
            return self._union(schema, path)
        if isinstance(schema, str) and schema in self._names:
            schema = self._names[schema]
        name = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(name, dict | list):
            return self.of(name, path)
        match name:
            case "null":
                return None, None
            case "record" | "error":
                return self._record(schema, path)
            case "array":
                return self._array(schema["items"], path)
            case "map":
                return self._map(schema["values"], path)
        return self._scalar(name, schema if isinstance(schema, dict) else {}, path)

    def _record(
        self, schema: Mapping[str, Any], path: str
    ) -> tuple[pa.DataType | None, _Convert | None]:
        name = str(schema["name"])
        if name in self._above or len(self._above) >= _MOST_LEVELS:
            raise self._refused(
                f"{path or name}: {name} contains itself, or lies more than {_MOST_LEVELS} levels deep"
            )
        self._above.append(name)
        fields: list[pa.Field] = []
        converts: list[tuple[str, _Convert]] = []
        for field in schema["fields"]:
            place = f"{path}.{field['name']}".lstrip(".")
            kind, convert = self.of(field["type"], place)
            if kind is None:
                self.notes.append(f"{place} has no values, so it is omitted")
                continue
            self._columns += 1
            if self._columns > MOST_COLUMNS:
                raise self._refused(f"more than {MOST_COLUMNS:,} fields")
            fields.append(pa.field(field["name"], kind))
            if convert is not None:
                converts.append((field["name"], convert))
        self._above.pop()
        return (pa.struct(fields) if fields else None), _of_record(converts)

    def _array(self, items: Any, path: str) -> tuple[pa.DataType | None, _Convert | None]:
        if self._is_empty(items):
            raise self._refused(
                f"{path}: an array whose values take no bytes is not supported, "
                "because a short body could contain millions of such values"
            )
        kind, convert = self.of(items, f"{path}[]")
        if kind is None:
            return None, None
        return pa.list_(pa.field("element", kind)), _of_list(convert)

    def _map(self, values: Any, path: str) -> tuple[pa.DataType | None, _Convert | None]:
        kind, convert = self.of(values, f"{path}[].value")
        if kind is None:
            return None, None
        # The types of a shape (see `reput.wings.lakes.body_shape`) include no maps, so a map becomes a list of
        # pairs.
        entry = pa.struct([("key", pa.string()), ("value", kind)])
        self._columns += 2
        return pa.list_(pa.field("element", entry)), _of_map(convert)

    def _scalar(
        self, name: str, schema: Mapping[str, Any], path: str
    ) -> tuple[pa.DataType | None, _Convert | None]:
        logical = schema.get("logicalType")
        if logical in _TIMES and name in ("int", "long"):
            return _TIMES[logical], None
        if logical in _TEXTS and name in ("int", "long", "string", "fixed"):
            return pa.string(), _as_text
        if logical == "decimal" and name in ("bytes", "fixed"):
            digits, scale = schema.get("precision", 0), schema.get("scale", 0)
            if digits > _MOST_DIGITS:
                self.notes.append(f"{path} has {digits} digits, so it becomes a string")
                return pa.string(), _as_text
            return pa.decimal128(digits, scale), None
        if name not in _TYPES:
            raise self._refused(f"{path}: no type {name}")
        return _TYPES[name], None

    def _union(self, branches: list[Any], path: str) -> tuple[pa.DataType | None, _Convert | None]:
        types = [self.of(branch, path) for branch in branches if branch != "null"]
        kinds = list(dict.fromkeys(kind for kind, _ in types if kind is not None))
        if len(types) == len(kinds) == 1:
            kind, convert = types[0]
            return kind, None if convert is None else _unless_null(convert)
        # Combine numeric types only if no value is rounded: a double represents each int32, but not each int64.
        for numbers, kind in (
            ({pa.int32(), pa.int64()}, pa.int64()),
            ({pa.int32(), pa.float32(), pa.float64()}, pa.float64()),
        ):
            if kinds and set(kinds) <= numbers:
                return kind, None
        if not kinds:
            return None, None
        self.notes.append(f"{path} has several types, so it becomes JSON in a string")
        return pa.string(), _unless_null(json_text_of)

    def _is_empty(self, schema: Any) -> bool:
        """Return whether values of a schema take no bytes. A short body can state millions of such values."""
        if isinstance(schema, str) and schema in self._names:
            schema = self._names[schema]
        if schema == "null":
            return True
        if not isinstance(schema, dict):
            return False
        if isinstance(schema["type"], dict | list):
            return self._is_empty(schema["type"])
        if schema["type"] in ("record", "error"):
            name = str(schema["name"])
            if name in self._above:
                # The schema contains itself. The method `of`, which is called later, refuses it.
                return False
            self._above.append(name)
            is_empty = all(self._is_empty(field["type"]) for field in schema["fields"])
            self._above.pop()
            return is_empty
        return bool(schema["type"] == "null" or (schema["type"] == "fixed" and not schema["size"]))


def _of_record(converts: list[tuple[str, _Convert]]) -> _Convert | None:
    if not converts:
        return None

    def convert(value: Any) -> Any:
        return value | {name: inner(value[name]) for name, inner in converts}

    return convert


def _of_list(inner: _Convert | None) -> _Convert | None:
    return None if inner is None else lambda value: [inner(element) for element in value]


def _of_map(inner: _Convert | None) -> _Convert:
    def convert(value: Any) -> Any:
        items: Iterator[tuple[str, Any]] = iter(value.items())
        return [{"key": key, "value": inner(item) if inner else item} for key, item in items]

    return convert


def _unless_null(inner: _Convert) -> _Convert:
    return lambda value: None if value is None else inner(value)


def _as_text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
