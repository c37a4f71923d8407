"""Java's whole numbers: `Integer.parseInt`, and a long that wraps around."""

from __future__ import annotations


def parse_int32(text: str) -> int:
    """`Integer.parseInt(text)`. Raises ValueError where Java throws."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or not -(1 << 31) <= int(text) < 1 << 31:
        raise ValueError(f"{text!r} is not an int32")
    return int(text)


def wrap_int64(value: int) -> int:
    """What is left of `value` in a Java long."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
