"""Decode Protobuf bodies with the type from a .proto file or from a descriptor set of protoc.

A body may have the header of Confluent's serializers: a zero byte, the schema's id in four bytes, and the indexes of
the message's type in its file. No Protobuf message begins with a zero byte, so the header can be recognized.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf import (  # noqa: F401  # they add themselves to the default pool
    any_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)  # fmt: skip
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from reput.base import counted, require
from reput.errors import UsageError
from reput.io import Scratch
from reput.wings.lakes.body_decoders import BodyFields, UndecodableBodyError
from reput.wings.lakes.body_shape import MOST_COLUMNS, BodyShape
from reput.wings.lakes.http_json import without_password
from reput.wings.lakes.schema_registry import HEADER_BYTES

_MOST_LEVELS = 32
_MOST_VALUES = 1 << 21
"""Maximum number of values in all lists of a body.

Without a limit, a short body could fill the memory: an empty message in a list has only 2 bytes, but becomes one value
in each column of the list.
"""

_COMPILE_TIMEOUT_S = 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WELL_KNOWN = "google.protobuf."
_WRAPPERS = frozenset(
    f"{_WELL_KNOWN}{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_AS_JSON = frozenset(f"{_WELL_KNOWN}{name}" for name in ("Struct", "Value", "ListValue"))

_Getter = Callable[[Any], Any]


def open_proto(argument: str) -> ProtoDecoder:
    """Return the decoder of `FILE#Message`.

    Raises:
        UsageError: The file cannot be read or compiled, or does not describe the message.
        MissingExtraError: The compiler for a .proto file is not installed.
    """
    path, _, message = argument.partition("#")
    where = f"body proto:{without_password(argument)}"
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise _refused(
            where, f"{without_password(path)}: cannot be read: {error.strerror}"
        ) from None
    if path.endswith(".proto"):
        data = _compiled(Path(path), where)
    try:
        files = FileDescriptorSet.FromString(data)
    except DecodeError:
        files = FileDescriptorSet()
    if not files.file:
        raise _refused(
            where, f"{path}: not a .proto file, nor a set of descriptors, which "
            "`protoc --include_imports -o FILE` writes",
        )  # fmt: skip
    decoder = ProtoDecoder(data, message, where)
    decoder.fields(())
    return decoder


class ProtoDecoder:
    """Decodes bodies of one Protobuf type.

    Args:
        descriptors: A serialized FileDescriptorSet. Its last file imports the other files.
        message: The full name of the type, or its last parts; "" if the last file has only one type.
        where: Prefix of error messages.
    """

    name, is_fixed = "proto", True

    def __init__(self, descriptors: bytes, message: str, where: str) -> None:
        self._descriptors, self._message, self._where = descriptors, message, where
        self._opened: _MessageReader | None = None

    def fields(self, sample: Iterable[bytes | None]) -> BodyFields:
        """Return the fields of the type. Raises UsageError if they cannot be columns of a table."""
        reader = self._reader
        return BodyFields(reader.shape.schema, tuple(reader.notes))

    def decode(self, body: bytes) -> Mapping[str, Any]:
        """See `BodyDecoder`."""
        return self._reader.read(body)

    @property
    def _reader(self) -> _MessageReader:
        if self._opened is None:
            self._opened = _MessageReader(self._descriptors, self._message, self._where)
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        # A _MessageReader has generated classes, which cannot be pickled.
        return {**vars(self), "_opened": None}


class _MessageReader:
    """Reads Protobuf messages of one type.

    Attributes:
        shape: The types of its fields.
        notes: A line for each field that is omitted or becomes a string.

    Raises:
        UsageError: The type is unknown, or its fields cannot be columns of a table.
    """

    def __init__(self, descriptors: bytes, message: str, where: str) -> None:
        descriptor = _found(descriptors, message, where)
        self._type = GetMessageClass(descriptor)
        # Serializers of some languages count the hidden entry types of maps among the nested types, others do not.
        self._indexes = [_indexes_of(descriptor, with_entries) for with_entries in (True, False)]
        types = _MessageTypes(where)
        kind, self._get = types.of_message(descriptor, "")
        if kind is None:
            raise _refused(where, f"{descriptor.full_name} has no fields")
        self.notes, self._budget = types.notes, types.budget
        self._has_required = types.has_required
        try:
            self.shape = BodyShape.of_type(kind)
        except ValueError as error:
            raise _refused(where, str(error)) from None

    def read(self, body: bytes) -> Mapping[str, Any]:
        """Return the values of a body by field. Raises UndecodableBodyError."""
        if body[:1] == b"\0":
            body = self._unframed(body)
        message = self._type()
        try:
            message.MergeFromString(body)
        except DecodeError:
            raise UndecodableBodyError("the body is not a Protobuf message") from None
        if self._has_required and not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors()[:3])
            raise UndecodableBodyError("the Protobuf message lacks a required field", missing)
        # The parser skips unknown fields, so it may accept arbitrary bytes as a message without fields.
        if body and not message.ListFields():
            raise UndecodableBodyError(
                "the body has none of the fields of its Protobuf message type"
            )
        self._budget.left = _MOST_VALUES
        try:
            fields: Mapping[str, Any] = self._get(message)
        except UndecodableBodyError:
            raise
        except (ValueError, OverflowError) as error:
            raise UndecodableBodyError("the body has a value that fits no column", error) from None
        return fields

    def _unframed(self, body: bytes) -> bytes:
        """Return the message after the header of Confluent's serializers."""
        indexes, at = [], HEADER_BYTES
        try:
            count, at = _zigzag(body, at)
            if count > _MOST_LEVELS:
                raise IndexError
            for _ in range(count):
                index, at = _zigzag(body, at)
                indexes.append(index)
        except IndexError:
            raise UndecodableBodyError("the body is not a Protobuf message") from None
        # An empty list of indexes is the short form of [0], the first type of the file.
        if (indexes or [0]) not in self._indexes:
            raise UndecodableBodyError(
                "the body's header names another message type of the .proto file", indexes
            )
        return body[at:]


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag-encoded varint and the position after it. Raises IndexError at the end of the data."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        # A varint has at most ten bytes.
        if shift > 63:
            raise IndexError


def _found(descriptors: bytes, message: str, where: str) -> Descriptor:
    """Return the descriptor of the type with this name."""
    files = FileDescriptorSet.FromString(descriptors)
    pool = DescriptorPool()
    try:
        for file in files.file:
            _add_standard(file, pool, {file_of_set.name for file_of_set in files.file})
            pool.Add(file)
        last = pool.FindFileByName(files.file[-1].name)
    except (TypeError, KeyError) as error:
        raise _refused(
            where, f"the descriptor set is not complete: {_first_line(error)}; "
            "pass --include_imports to protoc",
        ) from None  # fmt: skip
    names_of_messages = [name for file in reversed(files.file) for name in _names_of(file)]
    if not message:
        types = list(last.message_types_by_name.values())
        if len(types) == 1:
            return types[0]
        names = ", ".join(message_type.name for message_type in types[:10]) or "none"
        raise _refused(
            where, f"name a message type after the file, as FILE#TYPE; TYPE is one of: {names}"
        )
    fitting = [name for name in names_of_messages if name == message] or [
        name for name in names_of_messages if name.endswith(f".{message}")
    ]
    if len(fitting) != 1:
        names = ", ".join((fitting or names_of_messages)[:10]) or "none"
        problem = (
            f"{counted(len(fitting), 'message', verb='is')} called {message}"
            if fitting
            else f"no message {message}"
        )
        raise _refused(where, f"{problem}; choose one of: {names}")
    return pool.FindMessageTypeByName(fitting[0])


def _add_standard(file: FileDescriptorProto, pool: Any, present: set[str]) -> None:
    """Add Google's standard types, if the descriptor set was written without its imports."""
    for name in file.dependency:
        if name.startswith("google/protobuf/") and name not in present:
            present.add(name)
            standard = FileDescriptorProto()
            Default().FindFileByName(name).CopyToProto(standard)
            _add_standard(standard, pool, present)
            pool.Add(standard)


def _names_of(file: FileDescriptorProto) -> list[str]:
    names: list[str] = []

    def add(messages: Any, prefix: str) -> None:
        for message in messages:
            if not message.options.map_entry:
                names.append(prefix + message.name)
                add(message.nested_type, f"{prefix}{message.name}.")

    add(file.message_type, f"{file.package}." if file.package else "")
    return names


def _indexes_of(descriptor: Descriptor, with_entries: bool) -> list[int]:
    """Return the indexes that identify a type in its file, from the outermost enclosing type inwards."""
    above = descriptor.containing_type
    if above is None:
        return [list(descriptor.file.message_types_by_name).index(descriptor.name)]
    nested = [
        one.name for one in above.nested_types if with_entries or not one.GetOptions().map_entry
    ]
    return [*_indexes_of(above, with_entries), nested.index(descriptor.name)]


class _Budget:
    """Bounds the number of values of a body, and so its memory.

    Attributes:
        left: Number of values that the body may still have.
    """

    def __init__(self) -> None:
        self.left = _MOST_VALUES

    def take(self, count: int) -> None:
        """Count values. Raises UndecodableBodyError if there are too many."""
        self.left -= count
        if self.left < 0:
            raise UndecodableBodyError(
                f"the lists of the body have more than {_MOST_VALUES:,} values"
            )


class _MessageTypes:
    """Maps each field of a message type to a column type, and to a function that returns the field's value."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._above: list[str] = []
        self._columns = 0
        self.notes: list[str] = []
        self.has_required = False
        self.budget = _Budget()

    def of_message(self, descriptor: Descriptor, path: str) -> tuple[pa.DataType | None, _Getter]:
        """Return the column type of a message type, and a function that turns such a message into the column's value.

        The column type is None if the message type has no fields.
        """
        name = descriptor.full_name
        if name == f"{_WELL_KNOWN}Timestamp":
            return pa.timestamp("us", tz="UTC"), _time_of
        if name in _WRAPPERS:
            kind, _ = self._scalar(descriptor.fields_by_name["value"], path)
            return kind, lambda message: message.value
        if name in _AS_JSON or name in self._above or len(self._above) >= _MOST_LEVELS:
            reason = "has any type" if name in _AS_JSON else "contains itself"
            self.notes.append(f"{path} {reason}, so it becomes JSON in a string")
            return pa.string(), _json_of
        self._above.append(name)
        fields: list[pa.Field] = []
        getters: list[tuple[str, _Getter]] = []
        for field in descriptor.fields:
            place = f"{path}.{field.name}".lstrip(".")
            kind, get = self._of_field(field, place)
            self.has_required |= field.is_required
            if kind is None:
                self.notes.append(f"{place} has no values, so it is omitted")
                continue
            self._columns += 1
            if self._columns > MOST_COLUMNS:
                raise _refused(self._where, f"more than {MOST_COLUMNS:,} fields")
            fields.append(pa.field(field.name, kind))
            getters.append((field.name, get))
        self._above.pop()
        return (pa.struct(fields) if fields else None), _of_fields(getters)

    def _of_field(self, field: FieldDescriptor, path: str) -> tuple[pa.DataType | None, _Getter]:
        name = field.name
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            return self._of_map(field, path)
        kind: pa.DataType | None
        convert: _Getter | None
        before = self._columns
        if inner is not None:
            kind, convert = self.of_message(inner, f"{path}[]" if field.is_repeated else path)
        else:
            kind, convert = self._scalar(field, path)
        if field.is_repeated:
            list_type = None if kind is None else pa.list_(pa.field("element", kind))
            return list_type, self._of_list(name, self._columns - before + 1, convert)
        if field.has_presence:
            if convert is None:
                return kind, lambda m: getattr(m, name) if m.HasField(name) else None
            return kind, lambda m: convert(getattr(m, name)) if m.HasField(name) else None
        if convert is None:
            return kind, lambda message: getattr(message, name)
        return kind, lambda message: convert(getattr(message, name))

    def _of_list(self, name: str, columns: int, convert: _Getter | None) -> _Getter:
        """Return a function that gets a list from a message. Each element of the list has `columns` values."""
        take = self.budget.take

        def get(message: Any) -> Any:
            elements = getattr(message, name)
            # Count the values before the list is created. If they are too many, the list would fill the memory.
            take(len(elements) * columns)
            return [convert(element) for element in elements] if convert else list(elements)

        return get

    def _of_map(self, field: FieldDescriptor, path: str) -> tuple[pa.DataType | None, _Getter]:
        entry = field.message_type.fields_by_name
        key, _ = self._scalar(entry["key"], path)
        value: pa.DataType | None
        convert: _Getter | None
        before = self._columns
        if entry["value"].message_type is not None:
            value, convert = self.of_message(entry["value"].message_type, f"{path}[].value")
        else:
            value, convert = self._scalar(entry["value"], path)
        if value is None:
            return None, _nothing
        self._columns += 2
        kind = pa.struct([("key", key), ("value", value)])
        columns, take = self._columns - before, self.budget.take

        def get(message: Any) -> Any:
            items = getattr(message, field.name).items()
            take(len(items) * columns)
            return [{"key": k, "value": convert(v) if convert else v} for k, v in items]

        return pa.list_(pa.field("element", kind)), get

    def _scalar(self, field: FieldDescriptor, path: str) -> tuple[pa.DataType, _Getter | None]:
        if field.enum_type is not None:
            names = {
                number: enum_value.name
                for number, enum_value in field.enum_type.values_by_number.items()
            }
            # A body may have a number that only a newer version of the enum defines. proto3 keeps such numbers.
            return pa.string(), lambda number: names.get(number) or str(number)
        # Tables have no unsigned types. uint32 becomes int64. uint64 does not fit into int64, so it becomes a decimal.
        kinds = {
            field.CPPTYPE_BOOL: pa.bool_(), field.CPPTYPE_INT32: pa.int32(),
            field.CPPTYPE_INT64: pa.int64(), field.CPPTYPE_UINT32: pa.int64(),
            field.CPPTYPE_UINT64: pa.decimal128(20, 0), field.CPPTYPE_FLOAT: pa.float32(),
            field.CPPTYPE_DOUBLE: pa.float64(), field.CPPTYPE_STRING: pa.string(),
        }  # fmt: skip
        return pa.binary() if field.type == field.TYPE_BYTES else kinds[field.cpp_type], None


def _of_fields(getters: list[tuple[str, _Getter]]) -> _Getter:
    return lambda message: {name: get(message) for name, get in getters}


def _nothing(message: Any) -> None:
    return None


def _time_of(message: Any) -> datetime:
    return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)


def _json_of(message: Any) -> str:
    return str(MessageToJson(message, indent=None, ensure_ascii=False))


def _compiled(path: Path, where: str) -> bytes:
    """Compile a .proto file. Its imports must lie in its folder or below."""
    protoc = require(
        "grpc_tools.protoc",
        f"{path}: a .proto file needs the compiler of grpcio-tools; or pass what "
        "`protoc --include_imports -o FILE` writes: pip install 'reput[protobuf]'",
        ["body"],
    )
    folder = path.absolute().parent
    standard = Path(protoc.__file__).parent / "_proto"
    with Scratch.folder() as scratch:
        out = scratch / "descriptors"
        try:
            # Run the compiler in a process of its own: its C++ code writes errors to file descriptor 2.
            ended = subprocess.run(
                [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"-I{standard}",
                 "--include_imports", f"--descriptor_set_out={out}", str(path.absolute())],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                timeout=_COMPILE_TIMEOUT_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            raise _refused(where, f"the compiler of grpcio-tools: {error}") from None
        if ended.returncode or not out.exists():
            lines = [line for line in ended.stderr.splitlines() if f"{path.name}:" in line]
            raise _refused(where, lines[0] if lines else "the compiler of grpcio-tools failed")
        return out.read_bytes()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def _refused(where: str, reason: str) -> UsageError:
    return UsageError(f"{where}: {reason}", arguments=["body"])
