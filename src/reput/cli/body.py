"""A message's body as a person wants to see it: JSON set out, text, or hexadecimal."""

from __future__ import annotations

import json
import zlib

from reput.cli.text import one_line, printable
from reput.format.commit_log import SYS_FLAG_COMPRESSED, MessageExt

_DUMP_WIDTH = 16
_DUMP_LIMIT_BYTES = 4096
_TEXT_LIMIT_BYTES = 1 << 20
_INFLATE_LIMIT_BYTES = 16 << 20


def readable_body(message: MessageExt, limit_bytes: int = _INFLATE_LIMIT_BYTES) -> bytes:
    """The body as it was sent: a compressed one inflated, up to a limit, if it can be."""
    if not message.sys_flag & SYS_FLAG_COMPRESSED:
        return message.body
    try:
        return zlib.decompressobj().decompress(message.body, limit_bytes)
    except zlib.error:
        return message.body


def body_preview(message: MessageExt, limit: int) -> str:
    """The beginning of the body in one line; `<12 bytes>` for one that is no text."""
    body = readable_body(message, 8 * limit)
    beginning = body[: 8 * limit]
    try:
        text = beginning.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(beginning) == len(body) or error.start < len(beginning) - 3:
            return f"<{len(message.body):,} bytes>"
        text = beginning[: error.start].decode("utf-8")
    return one_line(text, limit)


def body_text(body: bytes) -> tuple[str, str]:
    """What it is (`JSON`, `text`, `no text`, `empty`), and its lines."""
    if not body:
        return "empty", ""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return "no text", hex_lines(body)
    if len(body) <= _TEXT_LIMIT_BYTES and text.lstrip()[:1] in ("{", "["):
        try:
            pretty = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
        except (ValueError, RecursionError):
            pass
        else:
            return "JSON", printable(pretty, keep="\n")
    return "text", printable(text, keep="\n\t")


def hex_lines(data: bytes) -> str:
    """Offset, 16 bytes, their ASCII; no more than the first 4 KiB."""
    lines = []
    for at in range(0, min(len(data), _DUMP_LIMIT_BYTES), _DUMP_WIDTH):
        part = data[at : at + _DUMP_WIDTH]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<{3 * _DUMP_WIDTH - 1}}  |{text}|")
    if len(data) > _DUMP_LIMIT_BYTES:
        lines.append(f"… {len(data) - _DUMP_LIMIT_BYTES:,} more bytes; --body-only writes them all")
    return "\n".join(lines)
