"""Integers in texts, as Java parses them (`Integer.parseInt`, `Long.parseLong`), and the wrap-around of a long."""

from __future__ import annotations

# Character.digit accepts the decimal digits of every script whose digits are one UTF-16 unit each. These are the zeros
# of these scripts.
DIGIT_ZEROS = (
    0x0030, 0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6,
    0x0D66, 0x0DE6, 0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80,
    0x1A90, 0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0,
    0xFF10,
)  # fmt: skip
# For integers of 32 and of 64 bits: a number with fewer digits than this always fits.
_SHORT_DIGITS = {32: 10, 64: 19}


def parse_int32(text: str) -> int:
    """Return the integer that `Integer.parseInt(text)` returns. Raises ValueError where Java throws."""
    return _parse(text, 32)


def parse_int64(text: str) -> int:
    """Return the integer that `Long.parseLong(text)` returns. Raises ValueError where Java throws."""
    return _parse(text, 64)


def decimal_number(text: str | bytes, most_digits: int) -> int | None:
    """Return the number in a text of 1 to `most_digits` decimal digits; None for any other text.

    For texts from a store, which may be hostile: Python refuses to convert thousands of digits.
    """
    # `isdigit` alone would also accept digits of other scripts.
    is_number = len(text) <= most_digits and text.isdigit() and text.isascii()
    return int(text) if is_number else None


def wrap_int64(value: int) -> int:
    """Return `value` wrapped to a Java long."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _parse(text: str, bits: int) -> int:
    # Most texts are short numbers, for which Python's rules are the same.
    if len(text) < _SHORT_DIGITS[bits] and text.isascii() and text.isdigit():
        return int(text)
    digits = text[1:] if text[:1] in ("+", "-") else text
    # The smallest negative number has no positive counterpart.
    limit = (1 << (bits - 1)) - (text[:1] != "-")
    value, valid = 0, bool(digits)
    for character in digits:
        digit = _digit(ord(character))
        value = value * 10 + digit
        if digit < 0 or value > limit:
            valid = False
            break
    if not valid:
        raise ValueError(f"{text[:32]!r} is not an int{bits}")
    return -value if text[0] == "-" else value


def _digit(code: int) -> int:
    if code < 0x80:
        return code - 0x30 if 0x30 <= code <= 0x39 else -1
    return next((code - zero for zero in DIGIT_ZEROS if 0 <= code - zero <= 9), -1)
