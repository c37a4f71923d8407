"""Parse plain values in JSON text: strings, base64 and whole numbers.

For any other value the result is -1, and the caller uses a complete JSON reader.
"""

from __future__ import annotations

import numpy as np

from reput.kernels.bytes_out import put_byte, put_i64
from reput.kernels.integers import byte_at, read_i64, trailing_zeros, word_at
from reput.kernels.java_hash import sequence_length
from reput.kernels.jit import njit

QUOTE, COMMA, COLON = 0x22, 0x2C, 0x3A
OPEN, CLOSE, OPEN_LIST, CLOSE_LIST = 0x7B, 0x7D, 0x5B, 0x5D
ONES = np.uint64(0x0101010101010101)
TOP_BITS = np.uint64(0x8080808080808080)

_BACKSLASH = 0x5C
_SPACES = np.uint64(0x2020202020202020)
_QUOTES = np.uint64(0x2222222222222222)
_BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
# The character that a short escape stands for, by the escape's letter (n: line feed); 0 for other letters.
_ESCAPES = np.zeros(256, np.uint8)
for _letter, _char in zip('btnfr"\\/', '\b\t\n\f\r"\\/', strict=True):
    _ESCAPES[ord(_letter)] = ord(_char)
_DIGITS64 = np.full(256, 255, np.uint8)
for _value, _letter in enumerate(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
):
    _DIGITS64[ord(_letter)] = _value


@njit(inline="always")
def special_in(word):
    """Return a mask whose lowest bit marks the first quote, backslash, control or non-ASCII byte among 8 bytes."""
    # The first subtraction sets the top bit of each byte below 0x20. The second subtraction sets the top bit of each
    # quote, and the third that of each backslash. Borrows can set further top bits, but only in bytes after the first
    # match.
    quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
    found = (word - _SPACES) & ~word
    found |= (quotes - ONES) & ~quotes
    found |= (backslashes - ONES) & ~backslashes
    return (found | word) & TOP_BITS


@njit(inline="always")
def skip_space(data, at):
    """Return the position after white space within a line."""
    while byte_at(data, at) == 32 or byte_at(data, at) == 9 or byte_at(data, at) == 13:
        at += 1
    return at


@njit(cache=True, nogil=True)
def plain_end(data, at):
    """Return the position of the quote that ends an ASCII string without escapes; -1 for any other string."""
    found = special_in(word_at(data, at))
    while not found:
        at += 8
        found = special_in(word_at(data, at))
    at += trailing_zeros(found) >> 3
    return at if byte_at(data, at) == QUOTE else np.int64(-1)


@njit(cache=True, nogil=True)
def decode_string(data, at, stop, out, used):
    """Decode the string that begins at `at` to out[used:]; return (position after its quote, end of the output).

    The position is -1 for an invalid or unfinished string, and for one with a lone surrogate, which UTF-8 cannot
    represent. Up to 7 bytes after the end of the output may be overwritten.
    """
    while at < stop:
        found = special_in(word_at(data, at))
        # Copy eight bytes in one step, but advance only to the first special byte (`special_in`).
        put_i64(out, used, read_i64(data, at))
        clean = np.int64(8) if not found else trailing_zeros(found) >> 3
        at += clean
        used += clean
        if clean == 8:
            continue
        byte = byte_at(data, at)
        if byte == QUOTE:
            # The last eight bytes that were read may reach beyond `stop`. A quote there does not belong to the lines.
            return (at + 1 if at < stop else np.int64(-1)), used
        if byte == _BACKSLASH:
            at, used = _escape(data, at + 1, out, used)
            if at < 0:
                break
        elif byte < 0x80:
            # JSON forbids control characters in strings.
            break
        else:
            length = sequence_length(data, at, stop)
            if length < 0:
                break
            for _ in range(length):
                put_byte(out, used, byte_at(data, at))
                at += 1
                used += 1
    return np.int64(-1), used


@njit(inline="always")
def _escape(data, at, out, used):
    letter = byte_at(data, at)
    if _ESCAPES[letter]:
        put_byte(out, used, np.int64(_ESCAPES[letter]))
        return at + 1, used + 1
    return _unit_escape(data, at, out, used)


@njit(cache=True, nogil=True)
def _unit_escape(data, at, out, used):
    if byte_at(data, at) != 0x75:
        return np.int64(-1), used
    point = _unit(data, at + 1)
    at += 5
    if (
        0xD800 <= point < 0xDC00
        and byte_at(data, at) == _BACKSLASH
        and byte_at(data, at + 1) == 0x75
    ):
        low = _unit(data, at + 2)
        if low < 0xDC00 or low > 0xDFFF:
            return np.int64(-1), used
        point = 0x10000 + (point - 0xD800 << 10) + (low - 0xDC00)
        at += 6
    # A lone surrogate has no form in UTF-8.
    if point < 0 or 0xD800 <= point < 0xE000:
        return np.int64(-1), used
    if point < 0x80:
        put_byte(out, used, point)
        return at, used + 1
    if point < 0x800:
        put_byte(out, used, 0xC0 | point >> 6)
        used += 1
    else:
        if point < 0x10000:
            put_byte(out, used, 0xE0 | point >> 12)
        else:
            put_byte(out, used, 0xF0 | point >> 18)
            put_byte(out, used + 1, 0x80 | point >> 12 & 0x3F)
            used += 1
        put_byte(out, used + 1, 0x80 | point >> 6 & 0x3F)
        used += 2
    put_byte(out, used, 0x80 | point & 0x3F)
    return at, used + 1


@njit(cache=True, nogil=True)
def _unit(data, at):
    """Parse four hexadecimal digits. Return a large negative number for other characters."""
    value = np.int64(0)
    for index in range(4):
        byte = byte_at(data, at + index)
        if 48 <= byte <= 57:
            digit = byte - 48
        elif 97 <= byte <= 102 or 65 <= byte <= 70:
            digit = (byte | 32) - 87
        else:
            return np.int64(-(1 << 40))
        value = value << 4 | digit
    return value


@njit(cache=True, nogil=True)
def decode_base64(data, at, out, used):
    """Decode base64 as `decode_string` decodes text. The padding must be complete, and unused bits must be zero."""
    while True:
        first, second = _DIGITS64[byte_at(data, at)], _DIGITS64[byte_at(data, at + 1)]
        if first == 255 or second == 255:
            return (at + 1 if byte_at(data, at) == QUOTE else np.int64(-1)), used
        third, fourth = _DIGITS64[byte_at(data, at + 2)], _DIGITS64[byte_at(data, at + 3)]
        put_byte(out, used, np.int64(first) << 2 | np.int64(second) >> 4)
        if third == 255 or fourth == 255:
            break
        put_byte(out, used + 1, (np.int64(second) & 15) << 4 | np.int64(third) >> 2)
        put_byte(out, used + 2, (np.int64(third) & 3) << 6 | np.int64(fourth))
        used += 3
        at += 4
    pad = 61
    if byte_at(data, at + 3) != pad or byte_at(data, at + 4) != QUOTE:
        return np.int64(-1), used
    if third != 255:
        put_byte(out, used + 1, (np.int64(second) & 15) << 4 | np.int64(third) >> 2)
        return (at + 5 if not third & 3 else np.int64(-1)), used + 2
    is_right = byte_at(data, at + 2) == pad and not second & 15
    return (at + 5 if is_right else np.int64(-1)), used + 1


@njit(inline="always")
def parse_integer(data, at):
    """Return (next position, value) of a whole number of at most 18 digits; the position is -1 for any other number."""
    negative = byte_at(data, at) == 45
    at += negative
    begin, value = at, np.int64(0)
    # 18 digits always fit in an int64. The 19th is read only to detect a longer number.
    while 48 <= byte_at(data, at) <= 57 and at - begin < 19:
        value = value * 10 + (byte_at(data, at) - 48)
        at += 1
    following = byte_at(data, at)
    count = at - begin
    # JSON forbids zeros before other digits.
    if count == 0 or count > 18 or (count > 1 and byte_at(data, begin) == 48):
        return np.int64(-1), value
    # Any other character may continue the number, as in 1.5 and 1e3.
    if following != COMMA and following != CLOSE and following != 32:
        return np.int64(-1), value
    return at, -value if negative else value


@njit(inline="always")
def is_null(data, at):
    return (
        byte_at(data, at) == 0x6E and byte_at(data, at + 1) == 0x75
        and byte_at(data, at + 2) == 0x6C and byte_at(data, at + 3) == 0x6C
    )  # fmt: skip
