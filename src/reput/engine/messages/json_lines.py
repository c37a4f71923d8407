"""Read messages from JSON Lines, for `reput put`. This is the reverse of `reput.engine.messages.codec`.

docs/message-json.md describes the fields. Fields that the store sets are accepted and ignored. Unknown names are an
error, because they may be misspelt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from select import POLLIN, poll
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np

from reput.engine.writer import Message, joined_keys
from reput.errors import MessageRefusedError
from reput.format.bodies import BodyError, BodyTooLargeError, decompress, is_compressed
from reput.format.host import Host, parse_host
from reput.format.java_string import decode_utf8
from reput.format.message_fields import IGNORED_FIELDS, FieldType
from reput.format.properties import (
    KEY_SEPARATOR,
    KEYS,
    TAGS,
    UNIQ_KEY,
    decode_properties,
    split_keys,
)

_READ_BYTES = 1 << 20
_NEWLINE = 10


class LineError(ValueError):
    """Raised for a line that is not a message. The caller adds the file and the number of the line."""


class _PutFields(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The fields of a line that a put uses, with their defaults (`MessageField.put`)."""

    topic: str
    body: str | None = None
    body_base64: bytes | None = None
    body_stored_base64: bytes | None = None
    queue_id: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int | None = None
    born_host: str | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    unique_key: str | None = None
    tags: str | None = None
    keys: list[str] | None = None
    properties: dict[str, str] | None = None
    properties_string: str | None = None
    properties_base64: bytes | None = None
    body_crc_ok: bool = True
    body_error: str | None = None


_PYTHON_TYPES: dict[FieldType, Any] = {
    "text": str, "host": str, "boolean": bool, "int32": int, "int64": int, "time": int,
}  # fmt: skip
_DECODER: msgspec.json.Decoder[_PutFields] = msgspec.json.Decoder(
    msgspec.defstruct(
        "_Line",
        [(field.json_name, _PYTHON_TYPES[field.type] | None, None) for field in IGNORED_FIELDS],
        bases=(_PutFields,),
    )
)


class Block(NamedTuple):
    """A block of whole lines: the number of the first line (from 1), the bytes, and the number of line ends."""

    first_line: int
    data: bytes
    newlines: int

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield each line that is not blank, with its number."""
        for number, line in enumerate(self.data.split(b"\n"), self.first_line):
            if line.strip():
                yield number, line


def read_blocks(stream: BinaryIO, longest_bytes: int) -> Iterator[Block]:
    """Divide a stream into blocks of whole lines, and yield each block as soon as it is available.

    Raises OSError, and LineError for a line longer than `longest_bytes`.
    """
    parts: list[bytes] = []  # The beginning of a line that is not complete yet.
    held_bytes, number = 0, 1
    while data := _read_some(stream):
        end = data.rfind(b"\n") + 1
        if end:
            block = b"".join((*parts, data[:end]))
            newlines = int(np.count_nonzero(np.frombuffer(block, np.uint8) == _NEWLINE))
            yield Block(number, block, newlines)
            number += newlines
            parts, held_bytes = [], 0
        if end < len(data):
            parts.append(data[end:])
            held_bytes += len(data) - end
        # Without a limit, input without newlines would fill the memory.
        if held_bytes > longest_bytes:
            raise LineError(f"line {number}: longer than {longest_bytes} bytes")
    if parts:
        yield Block(number, b"".join(parts), 0)


def read_messages(block: Block) -> tuple[Sequence[int], list[Message]]:
    """Return the messages of a block, and the line number of each.

    Raises LineError if any line is bad. The error does not name the line: call `read_message` per line to find it.
    """
    try:
        lines = _DECODER.decode_lines(block.data)
        if len(lines) == block.newlines:
            numbers = range(block.first_line, block.first_line + len(lines))
            return numbers, [_message(line) for line in lines]
    except (ValueError, msgspec.DecodeError, RecursionError) as error:
        raise LineError(str(error)) from None
    # The numbers of lines and messages differ: there are blank lines, or a line has two messages. Read line by line.
    numbered = [(number, read_message(line)) for number, line in block.lines()]
    return [number for number, _ in numbered], [message for _, message in numbered]


def read_message(line: bytes) -> Message:
    """Return the message of one line. Raises LineError."""
    try:
        return _message(_DECODER.decode(line))
    except UnicodeDecodeError as error:
        raise LineError(f"not UTF-8: {error.reason}") from None
    except msgspec.ValidationError as error:
        reason = str(error).removeprefix("Object contains ").removeprefix("Object ")
        raise LineError(reason.replace(" - at `$.", " in `")) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise LineError(f"not a JSON object: {error}") from None
    except MessageRefusedError as error:
        raise LineError(str(error)) from None


def _message(line: _PutFields) -> Message:
    if not line.body_crc_ok:
        raise LineError(
            "`body_crc_ok` is false: the body was already damaged in the store it comes from"
        )
    return Message(
        topic=line.topic,
        body=_body(line),
        queue_id=line.queue_id,
        properties=_properties(line),
        flag=line.flag,
        sys_flag=line.sys_flag,
        born_timestamp=line.born_timestamp,
        born_host=None if line.born_host is None else _host(line.born_host),
        reconsume_times=line.reconsume_times,
        prepared_transaction_offset=line.prepared_transaction_offset,
    )


def _body(line: _PutFields) -> bytes:
    """Return the body to store. The body of a compressed message is stored in compressed form."""
    if line.body is not None and line.body_base64 is None:
        body = line.body.encode()
    elif line.body is None and line.body_base64 is not None:
        body = line.body_base64
    else:
        raise LineError("a message must have either `body` or `body_base64`")
    compressed = line.body_stored_base64
    if is_compressed(line.sys_flag):
        return _compressed_body(line, body)
    if compressed is not None:
        raise LineError(
            "`body_stored_base64` is for compressed bodies only, but `sys_flag` states no "
            "compression"
        )
    return body


def _compressed_body(line: _PutFields, body: bytes) -> bytes:
    """Return the compressed body to store. `body` is the value of the line's field `body` or `body_base64`.

    Raises LineError if the body to store cannot be decompressed, or if the line's `body_stored_base64` decompresses to
    another body than `body`.
    """
    compressed = line.body_stored_base64
    # The body could not be decompressed when it was exported: store the same damaged bytes again.
    if compressed is None and line.body_error is not None:
        return body
    try:
        sent = decompress(body if compressed is None else compressed, line.sys_flag)
    # The body is too large to verify: trust the stored bytes.
    except BodyTooLargeError:
        sent = body
    except BodyError as error:
        subject = (
            "a compressed body needs `body_stored_base64`"
            if compressed is None
            else "the stored body"
        )
        raise LineError(f"{subject}: {error}") from None
    if compressed is None:
        return body
    if sent != body:
        raise LineError("the body differs from `body_stored_base64`; change both, or neither")
    return compressed


def _properties(line: _PutFields) -> dict[str, str] | str | bytes:
    """Return the stored properties string if the line has it.

    Otherwise, return the map of properties, completed by the separate fields of the line.
    """
    whole: str | bytes | None = line.properties_string
    if whole is None:
        whole = line.properties_base64
    if whole is None:
        return _completed(line.properties or {}, line)
    parsed = decode_properties(whole if isinstance(whole, str) else decode_utf8(whole))
    if line.properties not in (None, parsed) or _completed(dict(parsed), line) != parsed:
        field = "properties_string" if isinstance(whole, str) else "properties_base64"
        raise LineError(
            f"`{field}` contradicts `properties`, `tags`, `keys` or `unique_key`; to change these, omit `{field}`"
        )
    return whole


def _completed(properties: dict[str, str], line: _PutFields) -> dict[str, str]:
    if line.unique_key is not None:
        _complete(properties, UNIQ_KEY, line.unique_key, "unique_key")
    if line.tags is not None:
        _complete(properties, TAGS, line.tags, "tags")
    if line.keys:
        value = properties.get(KEYS)
        if value is None:
            properties[KEYS] = joined_keys(line.keys)
        elif KEY_SEPARATOR.join(line.keys) != value and line.keys != split_keys(value):
            raise LineError(
                f"`keys` is {line.keys!r}, but `properties` has {KEYS} {value!r}; omit one of them"
            )
    return properties


def _complete(properties: dict[str, str], name: str, value: str, field: str) -> None:
    if properties.setdefault(name, value) != value:
        present = properties[name]
        raise LineError(
            f"`{field}` is {value!r}, but `properties` has {name} {present!r}; omit one of them"
        )


def _host(text: str) -> Host:
    try:
        return parse_host(text)
    except ValueError as error:
        raise LineError(f"born_host: {error}") from None


def _read_some(stream: BinaryIO) -> bytes:
    """Read the available bytes, at most 1 MiB. Waits for the first byte only, because a pipe may be slow."""
    parts = [stream.read1(_READ_BYTES)]  # type: ignore[attr-defined]
    # A pipe usually returns at most 64 KiB per read.
    missing = _READ_BYTES - len(parts[0])
    watch = poll()
    watch.register(stream, POLLIN)
    while parts[-1] and missing and watch.poll(0):
        parts.append(stream.read1(missing))  # type: ignore[attr-defined]
        missing -= len(parts[-1])
    return b"".join(parts)
