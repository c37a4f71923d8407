"""Write texts as JSON, and decide which characters are escaped.

Control characters, bidirectional overrides and other characters without a glyph (categories Cc, Cf, Zl, Zp) are
escaped, so that the content of a message cannot control a terminal or reorder its text. The parsed value is unchanged.
"""

from __future__ import annotations

import json
import re
from typing import Any

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
INVISIBLE_RANGES = (
    (0x7F, 0x9F), (0xAD, 0xAD), (0x600, 0x605), (0x61C, 0x61C), (0x6DD, 0x6DD), (0x70F, 0x70F),
    (0x890, 0x891), (0x8E2, 0x8E2), (0x180E, 0x180E), (0x200B, 0x200F), (0x2028, 0x202E),
    (0x2060, 0x206F), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB), (0x110BD, 0x110BD), (0x110CD, 0x110CD),
    (0x13430, 0x1343F), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0001, 0xE007F),
)  # fmt: skip
"""Ranges of characters that JSON allows, but that are escaped here: the first and the last code point of each range."""

INVISIBLE = "".join(f"{chr(first)}-{chr(last)}" for first, last in INVISIBLE_RANGES)
"""The characters of INVISIBLE_RANGES, written as the content of a character class [...] of a regular expression."""

CONTROL = f"[\x00-\x1f{INVISIBLE}]"
"""Characters that may control a terminal or change how text is shown, as a regular expression."""

_INVISIBLE = re.compile(f"[{INVISIBLE}]")
_CONTROL = re.compile(CONTROL)


def json_text(value: Any) -> str:
    """Return a value as JSON, in one line."""
    return visible(_ENCODER.encode(value))


def visible(text: str) -> str:
    r"""Escape each character without a glyph as \uXXXX. The text is JSON, or a part of a JSON text."""
    return text if text.isascii() and "\x7f" not in text else _INVISIBLE.sub(_escaped, text)


def has_control(text: str) -> bool:
    """Return whether a text has a control character, a bidirectional override, or another character without a glyph."""
    return not text.isprintable() and _CONTROL.search(text) is not None


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def indented(text: str) -> str:
    """Return a JSON text with indentation. Only the white space changes: numbers, names and order stay as written.

    Args:
        text: JSON that `json.loads` accepts. This function does not check it.
    """
    parts: list[str] = []
    depth = 0
    tokens = _TOKEN.findall(text)
    for number, token in enumerate(tokens):
        following = tokens[number + 1] if number + 1 < len(tokens) else ""
        if token in "{[" and following not in ("}", "]"):
            depth += 1
            parts += (token, _line(depth))
        elif token in "}]":
            if tokens[number - 1] not in ("{", "["):
                depth -= 1
                parts.append(_line(depth))
            parts.append(token)
        elif token == ",":
            parts += (token, _line(depth))
        else:
            parts.append(": " if token == ":" else token)
    return "".join(parts)


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


def _line(depth: int) -> str:
    return "\n" + "  " * depth
