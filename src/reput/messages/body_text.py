"""Render a message's body for people: indented JSON, text, or hexadecimal."""

from __future__ import annotations

import json
from typing import NamedTuple

from reput.errors import CorruptMessageError
from reput.format.commit_log import MessageExt
from reput.messages.bodies import body_beginning
from reput.messages.inner_batch import is_inner_batch, unwrap
from reput.messages.json_text import indented
from reput.text import one_line, printable

_DUMP_WIDTH = 16
_SHOWN_MESSAGES = 8
_DUMP_LIMIT_BYTES = 4096
_JSON_LIMIT_BYTES = 1 << 20
_TEXT_LIMIT_BYTES = 64 << 20


def body_preview(message: MessageExt, limit: int) -> str:
    """Return the beginning of the body in one line: `<12 bytes>` if binary, `<3 messages> ...` for a batch."""
    if is_inner_batch(message) and (batch := _batch_preview(message, limit)):
        return batch
    beginning, is_whole = body_beginning(message, 8 * limit)
    try:
        text = beginning.decode("utf-8")
    except UnicodeDecodeError as error:
        if is_whole or error.start < len(beginning) - 3:
            return f"<{len(message.body):,} bytes>"
        text = beginning[: error.start].decode("utf-8")
    return one_line(text, limit)


def _batch_preview(message: MessageExt, limit: int) -> str | None:
    """Return the beginning of the inner messages; None if the batch cannot be unwrapped."""
    try:
        inner = unwrap(message)
    except CorruptMessageError:
        return None
    bodies = " | ".join(body_preview(one, limit) for one in inner[:_SHOWN_MESSAGES])
    return one_line(f"<{len(inner):,} messages> {bodies}", limit)


class BodyText(NamedTuple):
    """A body to be shown.

    Attributes:
        kind: `JSON`, `text`, `no text`, `empty`, `too large to be shown whole`.
        lines: JSON with other white space; text; other bytes in hexadecimal.
        unshown_bytes: Bytes after those shown.
    """

    kind: str
    lines: str
    unshown_bytes: int = 0


def body_text(body: bytes, most_characters: int | None = None) -> BodyText:
    """Return a body by its type; for a body above 64 MiB, which would need several times the memory, its first bytes.

    At most `most_characters` of text that is not JSON are shown.
    """
    if not body:
        return BodyText("empty", "")
    if len(body) > _TEXT_LIMIT_BYTES:
        return body_hex(body, "too large to be shown whole")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return body_hex(body)
    if _is_json(text):
        return BodyText("JSON", printable(indented(text), keep="\n"))
    shown = text if most_characters is None else text[:most_characters]
    unshown_bytes = 0 if len(shown) == len(text) else len(text[len(shown) :].encode())
    return BodyText("text", printable(shown, keep="\n\t"), unshown_bytes)


def body_hex(body: bytes, kind: str = "no text") -> BodyText:
    """Return the first 4 KiB of a body in hexadecimal: offset, 16 bytes, their ASCII."""
    shown = body[:_DUMP_LIMIT_BYTES]
    return BodyText(kind, hex_lines(shown), len(body) - len(shown))


def _is_json(text: str) -> bool:
    """Return whether it is an object or a list; one of more than a mebibyte is not looked at."""
    if len(text) > _JSON_LIMIT_BYTES or text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


def hex_lines(data: bytes) -> str:
    """Return lines of offset, 16 bytes, and their ASCII."""
    lines = []
    for at in range(0, len(data), _DUMP_WIDTH):
        part = data[at : at + _DUMP_WIDTH]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<{3 * _DUMP_WIDTH - 1}}  |{text}|")
    return "\n".join(lines)
