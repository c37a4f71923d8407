"""Strings as in Java: malformed UTF-8, UTF-16 hash codes, split, numbers.

A string here is a Python str. A character outside the BMP stands for two UTF-16 units. Strings that
a caller passes may have lone surrogates. Decoded strings never have them.
"""

import unicodedata

REPLACEMENT = "\ufffd"
_CONTINUATION = range(0x80, 0xC0)


def decode_utf8(data: bytes) -> str:
    """`new String(data, UTF_8)`.

    Malformed input becomes one U+FFFD for the lead byte and those continuation bytes after it
    that could have been part of a character, cut off or not. A surrogate encoded in three bytes
    is one U+FFFD as a whole (Python's own decoder gives three).
    """
    if data.isascii():
        return data.decode("ascii")
    text = []
    at = 0
    while at < len(data):
        lead = data[at]
        if lead < 0x80:
            text.append(chr(lead))
            at += 1
            continue
        allowed = _continuations(lead)
        taken = bytearray()
        for byte, possible in zip(data[at + 1 : at + 4], allowed, strict=False):
            if byte not in possible:
                break
            taken.append(byte)
        whole = bool(allowed) and len(taken) == len(allowed)
        text.append(_character(lead, taken) if whole else REPLACEMENT)
        at += 1 + len(taken)
    return "".join(text)


def _continuations(lead: int) -> list[range]:
    """Return the bytes that may follow a lead byte; nothing if the byte cannot lead."""
    if 0xC2 <= lead <= 0xDF:
        return [_CONTINUATION]
    if 0xE0 <= lead <= 0xEF:
        return [range(0xA0, 0xC0) if lead == 0xE0 else _CONTINUATION, _CONTINUATION]
    if 0xF0 <= lead <= 0xF4:
        second = {0xF0: range(0x90, 0xC0), 0xF4: range(0x80, 0x90)}.get(lead, _CONTINUATION)
        return [second, _CONTINUATION, _CONTINUATION]
    return []


def _character(lead: int, continuation: bytearray) -> str:
    code = lead & (0x3F >> len(continuation))
    for byte in continuation:
        code = code << 6 | byte & 0x3F
    return REPLACEMENT if 0xD800 <= code < 0xE000 else chr(code)


def encode_utf8(text: str) -> bytes:
    """`text.getBytes(UTF_8)`: a lone surrogate becomes a question mark."""
    return join_surrogates(text).encode("utf-8", "replace")


def join_surrogates(text: str) -> str:
    """Return the same UTF-16 units with every surrogate pair as one character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def utf16_units(text: str) -> list[int]:
    """Return the UTF-16 code units, each 0 to 65535."""
    data = text.encode("utf-16-le", "surrogatepass")
    return [data[i] | data[i + 1] << 8 for i in range(0, len(data), 2)]


def hash_code(text: str) -> int:
    """`String.hashCode()`: a signed 32-bit number."""
    code = 0
    for unit in utf16_units(text):
        code = (code * 31 + unit) & 0xFFFFFFFF
    return to_int(code)


def split(text: str, separator: str) -> list[str]:
    """Do as `String.split(separator)`, for one ordinary character: omit empty strings at the end.

    If the string has no separator, the result is the string itself, even if it is empty.
    """
    parts = text.split(separator)
    if len(parts) == 1:
        return parts
    while parts and not parts[-1]:
        parts.pop()
    return parts


def to_int(number: int) -> int:
    """Return the low 32 bits as a Java int."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def to_long(number: int) -> int:
    """Return the low 64 bits as a Java long."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def divide(dividend: int, divisor: int) -> int:
    """Java's `/`, which rounds towards zero."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def parse_number(text: str, bits: int) -> int:
    """`Integer.parseInt` (32 bits) and `Long.parseLong` (64); raises ValueError where they throw.

    Any decimal digit of the BMP counts as a digit; no spaces, no underscores.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits:
        raise ValueError(f"not a number: {text!r}")
    value = 0
    for character in digits:
        if ord(character) > 0xFFFF or (digit := unicodedata.decimal(character, None)) is None:
            raise ValueError(f"not a number: {text!r}")
        value = value * 10 + int(digit)
    value = -value if text[0] == "-" else value
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(f"out of range: {text!r}")
    return value


def is_blank(text: str | None) -> bool:
    """`StringUtils.isBlank`: null, empty, or only `Character.isWhitespace` characters."""
    return text is None or all(_is_whitespace(character) for character in text)


def _is_whitespace(character: str) -> bool:
    # Java's separators without the three no-break spaces, and nine control characters.
    if character in "\u00a0\u2007\u202f":
        return False
    return unicodedata.category(character) in ("Zs", "Zl", "Zp") or character in (
        "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f"
    )
