"""Encode and decode headers, in JSON or RocketMQ's binary form (`RocketMQSerializable`, tag rocketmq-all-4.9.3).

The binary form is big endian:

    code 2 | language 1 | version 2 | opaque 4 | flag 4 | remark length 4 | remark | fields length 4 | fields

Each of its fields is:

    name length 2 | name | value length 4 | value
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from reput.errors import RemotingError
from reput.wings.serve.remoting.commands import Command
from reput.wings.serve.remoting.frames import Frame, Serialization, encode_frame, encode_frame_head

_HEAD = struct.Struct(">hBhii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_LANGUAGES = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP",
    "OMS",
)  # fmt: skip
_OTHER_LANGUAGE = _LANGUAGES.index("OTHER")
_INT32 = 1 << 31
_JSON, _BINARY = (
    Serialization.JSON,
    Serialization.ROCKETMQ,
)  # A global name is faster than an attribute of the enum.


class _JsonHeader(msgspec.Struct, omit_defaults=True):
    code: int
    opaque: int
    # msgspec omits a field whose value is its default. The default here is -1, which no command uses as its flag or
    # version. So both fields are always written.
    flag: int = -1
    version: int = -1
    language: Any = None
    remark: str | None = None
    extFields: dict[str, Any] | None = None
    serializeTypeCurrentRPC: Any = None


_decoder = msgspec.json.Decoder(_JsonHeader)
_encoder = msgspec.json.Encoder()


def decode_command(frame: Frame) -> Command:
    """Return the request or answer in a frame. Raises RemotingError."""
    if frame.serialization is _JSON:
        return _decode_json(frame)
    try:
        return _decode_binary(frame)
    except (struct.error, UnicodeDecodeError) as error:
        raise RemotingError(f"malformed ROCKETMQ header: {error}") from None


def encode_command(command: Command) -> bytes:
    """Return the frame of a request or answer. Raises RemotingError if a value is too large for its field."""
    return encode_frame(command.serialization, _encode_header(command), command.body)


def encode_head(command: Command) -> bytes:
    """Return the frame of a request or answer up to its body. Raises RemotingError as `encode_command` does."""
    return encode_frame_head(command.serialization, _encode_header(command), len(command.body))


def _encode_header(command: Command) -> bytes:
    is_binary = command.serialization is _BINARY
    return _encode_binary(command) if is_binary else _encode_json(command)


def _decode_json(frame: Frame) -> Command:
    try:
        header = _decoder.decode(frame.header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemotingError(f"malformed JSON header: {error}") from None
    # If a field still has the default -1, the header does not contain it.
    flag = 0 if header.flag == -1 else header.flag
    version = 0 if header.version == -1 else header.version
    code, opaque, language = header.code, header.opaque, header.language
    for value in (code, opaque, flag, version):
        if not -_INT32 <= value < _INT32:
            raise RemotingError(f"malformed JSON header: {value} does not fit into 32 bits")
    return Command(
        code, opaque, flag, header.remark, header.extFields or {}, frame.body,
        language if type(language) is str else "OTHER", version, _JSON,
    )  # fmt: skip


def _encode_json(command: Command) -> bytes:
    fields = command.fields
    for value in fields.values():
        if type(value) is not str:
            fields = {name: _text(value) for name, value in fields.items()}
            break
    return _encoder.encode(
        _JsonHeader(
            command.code, command.opaque, command.flag, command.version, command.language,
            command.remark, fields or None, "JSON",
        )
    )  # fmt: skip


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def _decode_binary(frame: Frame) -> Command:
    header = frame.header
    code, language, version, opaque, flag = _HEAD.unpack_from(header)
    remark, position = _part(header, _HEAD.size)
    fields, position = _part(header, position)
    if position != len(header):
        raise RemotingError(f"malformed ROCKETMQ header: {len(header) - position} bytes too many")
    return Command(
        code, opaque, flag, remark.decode() if remark else None, _decode_fields(fields), frame.body,
        _LANGUAGES[language] if language < len(_LANGUAGES) else "OTHER", version,
        Serialization.ROCKETMQ,
    )  # fmt: skip


def _part(data: bytes, position: int, length_field: struct.Struct = _INT) -> tuple[bytes, int]:
    """Return a length-prefixed part, and the position after it."""
    length: int = length_field.unpack_from(data, position)[0]
    begin = position + length_field.size
    if not 0 <= length <= len(data) - begin:
        raise RemotingError(
            f"malformed ROCKETMQ header: a part of {length} bytes, but {len(data) - begin} bytes are left"
        )
    return data[begin : begin + length], begin + length


def _decode_fields(data: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    position = 0
    while position < len(data):
        name, position = _part(data, position, _SHORT)
        value, position = _part(data, position)
        fields[name.decode()] = value.decode()
    return fields


def _encode_binary(command: Command) -> bytes:
    language = command.language
    number = _LANGUAGES.index(language) if language in _LANGUAGES else _OTHER_LANGUAGE
    remark = (command.remark or "").encode()
    fields = b"".join(_field(name, value) for name, value in command.fields.items())
    try:
        head = _HEAD.pack(command.code, number, command.version, command.opaque, command.flag)
    except struct.error as error:
        raise RemotingError(f"a ROCKETMQ header cannot hold code {command.code}: {error}") from None
    return b"".join((head, _INT.pack(len(remark)), remark, _INT.pack(len(fields)), fields))


def _field(name: str, value: object) -> bytes:
    key, data = name.encode(), _text(value).encode()
    return b"".join((_SHORT.pack(len(key)), key, _INT.pack(len(data)), data))
