"""Java's strings: UTF-8 with Java's replacements, `String.hashCode`, keys in a `HashMap`, and integers in texts.

Mirrors classes of OpenJDK 8 to 21. `java.lang.String`: `new String(bytes, UTF_8)`, `getBytes(UTF_8)`, `hashCode()`.
`java.util.HashMap`: the iteration order of a map, in which a broker writes a properties string. `Integer.parseInt` and
`Long.parseLong`, and the wrap-around of a long.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING

# NumPy is imported only for typing: a query by key does not need it.
if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_AT_ONCE = 256
# Limit of strings hashed at once, which bounds the memory for their UTF-16 units.
_TEXTS_AT_ONCE = 1024
_POWERS = [pow(31, exponent, 1 << 32) for exponent in range(_AT_ONCE + 1)]
_REPLACEMENT = "\ufffd"

# Initial capacity of a `HashMap`.
_LEAST_BUCKETS = 16

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


def decode_utf8(data: bytes) -> str:
    """Return the text that `new String(data, UTF_8)` returns. Java writes U+FFFD for malformed input."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _decode_malformed(data)


def encode_utf8(text: str) -> bytes:
    """Return `text.getBytes(UTF_8)`. A lone surrogate becomes '?'."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return joined_surrogates(text).encode("utf-8", "replace")


def joined_surrogates(text: str) -> str:
    """Return the string with each surrogate pair replaced by its character."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def hash_code(text: str) -> int:
    """Return `text.hashCode()`: the sum of unit * 31**(n-1-i) over UTF-16 units, as a signed 32-bit integer."""
    units: Sequence[int]
    if text.isascii():
        units = text.encode("ascii")
    else:
        data = text.encode("utf-16-le", "surrogatepass")
        units = [high << 8 | low for low, high in zip(data[::2], data[1::2], strict=True)]
    value = 0
    # `sum` and `map` process 256 units at a time, because a loop in Python over single units is slower.
    for begin in range(0, len(units), _AT_ONCE):
        part = units[begin : begin + _AT_ONCE]
        value = value * _POWERS[len(part)] + sum(map(mul, reversed(part), _POWERS)) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def hash_codes(texts: Sequence[str]) -> npt.NDArray[np.uint32]:
    """Return `hash_code` of many strings, modulo 2**32."""
    import numpy as np

    parts = [
        _hash_codes(texts[begin : begin + _TEXTS_AT_ONCE])
        for begin in range(0, len(texts), _TEXTS_AT_ONCE)
    ]
    return np.concatenate([np.empty(0, np.uint32), *parts])


def _hash_codes(texts: Sequence[str]) -> npt.NDArray[np.uint32]:
    """Return the hash codes of strings, computed from one running sum over all their units.

    In the running sum, the unit at position p of the joined strings is multiplied by 31**-p. So the hash of one string
    is the difference of two running sums, times a power of 31. The inverse of 31 exists modulo 2**32, because 31 is
    odd.
    """
    import numpy as np

    joined = "".join(texts)
    if joined.isascii():
        units = np.frombuffer(joined.encode(), np.uint8).astype(np.uint32)
        counts = np.array(list(map(len, texts)), np.int64)
    else:
        encoded = [text.encode("utf-16-le", "surrogatepass") for text in texts]
        units = np.frombuffer(b"".join(encoded), "<u2").astype(np.uint32)
        counts = np.array(list(map(len, encoded)), np.int64) // 2
    ends = np.cumsum(counts)
    bits = len(units).bit_length()
    sums = np.zeros(len(units) + 1, np.uint32)
    np.cumsum(units * _powers(pow(31, -1, 1 << 32), bits)[: len(units)], out=sums[1:])
    scaled: npt.NDArray[np.uint32] = sums[ends] - sums[ends - counts]
    return scaled * _powers(31, bits)[np.maximum(ends - 1, 0)]


@lru_cache(maxsize=8)
def _powers(base: int, bits: int) -> npt.NDArray[np.uint32]:
    """Return the powers of an odd number with the exponents 0 to 2**bits - 1, modulo 2**32."""
    import numpy as np

    powers = np.ones(1, np.uint32)
    for _ in range(bits):
        step = np.uint32(pow(base, len(powers), 1 << 32))
        powers = np.concatenate([powers, powers * step])
    return powers


def _decode_malformed(data: bytes) -> str:
    parts = []
    position, end = 0, len(data)
    while position < end:
        consumed = _sequence_length(data, position, end)
        if consumed > 0:
            parts.append(data[position : position + consumed].decode("utf-8"))
            position += consumed
        else:
            parts.append(_REPLACEMENT)
            position -= consumed
    return "".join(parts)


def _sequence_length(data: bytes, position: int, end: int) -> int:
    """Return the length of the UTF-8 sequence at `position`.

    If the sequence is invalid, return -n, where n is the number of bytes that Java replaces by one U+FFFD.
    """
    first = data[position]
    if first < 0x80:
        return 1
    width = (
        2
        if 0xC2 <= first <= 0xDF
        else 3
        if 0xE0 <= first <= 0xEF
        else 4
        if 0xF0 <= first <= 0xF4
        else 0
    )
    if width == 0:
        # Java replaces each byte that cannot begin a character.
        return -1
    low, high = _second_byte_range(first)
    if position + 1 >= end or not low <= data[position + 1] <= high:
        return -1
    for count in range(2, width):
        if position + count >= end or data[position + count] & 0xC0 != 0x80:
            return -count
    if first == 0xED and data[position + 1] >= 0xA0:
        # Three bytes that encode a surrogate are malformed. Java replaces them by one U+FFFD, other decoders by three.
        return -3
    return width


def _second_byte_range(first: int) -> tuple[int, int]:
    if first == 0xE0:
        return 0xA0, 0xBF
    if first == 0xF0:
        return 0x90, 0xBF
    if first == 0xF4:
        return 0x80, 0x8F
    return 0x80, 0xBF


@lru_cache(4096)
def hash_map_order(names: tuple[str, ...], least_buckets: int = _LEAST_BUCKETS) -> tuple[str, ...]:
    """Return names in the order in which a Java `HashMap` iterates over them.

    The argument `names` has distinct names, in the order in which they were inserted into the map.

    A table starts with 16 buckets, or the given number, and doubles when the keys exceed three quarters of the buckets.
    Iteration visits the buckets in order, and the keys of a bucket in order of insertion. In a table of at least 64
    buckets, Java turns a bucket of eight keys into a tree. The tree moves its root to the front, which is not
    reproduced here.
    """
    buckets = least_buckets
    while len(names) > buckets * 3 // 4:
        buckets *= 2
    return tuple(sorted(names, key=lambda name: _bucket(name, buckets)))


def _bucket(name: str, buckets: int) -> int:
    # HashMap.hash mixes the upper bits into the lower ones.
    value = hash_code(name) & 0xFFFFFFFF
    return (value ^ value >> 16) & (buckets - 1)


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
