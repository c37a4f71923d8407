"""Write rows of JSON column by column: first measure all values, then write each in its place.

A value is a range of bytes in a buffer, with a kind. All rows are measured first, so that all columns can be written
into one buffer of the right size. Each value is written at the cursor of its row, and moves the cursor.
`reput.base.visible_json` has the rules of escaping; its table of invisible characters is an argument. UTF-8 is read
as Java does (`reput.kernels.java_utf8`): malformed bytes are written as U+FFFD.
"""

from __future__ import annotations

import numpy as np

from reput.kernels.bytes_out import copy_bytes, put_byte, put_i64
from reput.kernels.integers import WORD_BYTES, bits_of, byte_at, read_i64, trailing_zeros, word_at
from reput.kernels.java_hash import java_hash, sequence_length
from reput.kernels.jit import njit
from reput.kernels.json_values import ONES, TOP_BITS, special_in

MISSING, PRESENT, SKIPPED = 0, 1, 2
"""Kinds of a value. For a MISSING value, a fixed text is written; for a SKIPPED value, nothing."""

_QUOTE, _BACKSLASH, _DELETE, _SPACE = 0x22, 0x5C, 0x7F, 0x20
_DELETES = np.uint64(0x7F7F7F7F7F7F7F7F)
# Letter of the short escape of a character, such as n for a line feed; 0 for characters that are written as \u00XX.
_SHORT = np.zeros(128, np.uint8)
for _char, _letter in zip('\b\t\n\f\r"\\', 'btnfr"\\', strict=True):
    _SHORT[ord(_char)] = ord(_letter)
# The length of \uXXXX.
_ESCAPE_BYTES = 6
_MOST_DIGITS = 20
_BASE64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)


@njit(inline="always")
def _special(word):
    """Return a mask of 8 bytes. Its lowest set bit lies in the first byte that needs an escape; 0 if no byte does."""
    deletes = word ^ _DELETES
    return special_in(word) | (deletes - ONES) & ~deletes & TOP_BITS


@njit(inline="always")
def _is_plain(byte):
    return _SPACE <= byte < _DELETE and byte != _QUOTE and byte != _BACKSLASH


@njit(inline="always")
def _code_point(data, position, length):
    """Return the character of a valid sequence of two to four bytes."""
    point = byte_at(data, position) & 0x7F >> length
    for index in range(1, length):
        point = point << 6 | byte_at(data, position + index) & 0x3F
    return point


@njit(cache=True, nogil=True)
def _escaped_bytes(data, position, stop, invisible):
    """Return the length of a text in its escaped form, without quotes."""
    total = np.int64(0)
    while position < stop:
        if position + WORD_BYTES <= stop:
            found = _special(word_at(data, position))
            clean = np.int64(WORD_BYTES) if not found else trailing_zeros(found) >> 3
            total += clean
            position += clean
            if clean == WORD_BYTES:
                continue
        byte = byte_at(data, position)
        if _is_plain(byte):
            total += 1
            position += 1
        elif byte < 0x80:
            total += 2 if _SHORT[byte] else _ESCAPE_BYTES
            position += 1
        else:
            length = sequence_length(data, position, stop)
            # A length of -n stands for n malformed bytes. They become one U+FFFD, which has three bytes.
            if length < 0:
                total += 3
                position -= length
            else:
                point = _code_point(data, position, length)
                if invisible[point]:
                    total += _ESCAPE_BYTES if point < 0x10000 else 2 * _ESCAPE_BYTES
                else:
                    total += length
                position += length
    return total


@njit(cache=True, nogil=True)
def _put_escaped(out, at, data, position, stop, invisible):
    """Write a text in its escaped form, without quotes; return the position after the written text.

    If at least eight bytes of the text are left, eight bytes are stored at once. `out` has room for them, because
    escaping never shortens a text.
    """
    while position < stop:
        if position + WORD_BYTES <= stop:
            found = _special(word_at(data, position))
            put_i64(out, at, read_i64(data, position))
            clean = np.int64(WORD_BYTES) if not found else trailing_zeros(found) >> 3
            at += clean
            position += clean
            if clean == WORD_BYTES:
                continue
        byte = byte_at(data, position)
        if _is_plain(byte):
            put_byte(out, at, byte)
            at += 1
            position += 1
        elif byte < 0x80:
            at = _put_short(out, at, byte)
            position += 1
        else:
            length = sequence_length(data, position, stop)
            if length < 0:
                put_byte(out, at, 0xEF)
                put_byte(out, at + 1, 0xBF)
                put_byte(out, at + 2, 0xBD)
                at += 3
                position -= length
                continue
            point = _code_point(data, position, length)
            if not invisible[point]:
                for _ in range(length):
                    put_byte(out, at, byte_at(data, position))
                    at += 1
                    position += 1
                continue
            # \u has four digits, so a character above U+FFFF is written as a surrogate pair.
            if point >= 0x10000:
                at = _put_unit(out, at, 0xD800 + (point - 0x10000 >> 10))
                at = _put_unit(out, at, 0xDC00 + (point - 0x10000 & 0x3FF))
            else:
                at = _put_unit(out, at, point)
            position += length
    return at


@njit(inline="always")
def _put_short(out, at, byte):
    letter = _SHORT[byte]
    if letter:
        put_byte(out, at, _BACKSLASH)
        put_byte(out, at + 1, np.int64(letter))
        return at + 2
    return _put_unit(out, at, byte)


@njit(cache=True, nogil=True)
def _put_unit(out, at, unit):
    r"""Write one UTF-16 unit as \uXXXX."""
    put_byte(out, at, _BACKSLASH)
    put_byte(out, at + 1, 0x75)
    for index in range(4):
        digit = unit >> 4 * (3 - index) & 15
        put_byte(out, at + 2 + index, digit + (48 if digit < 10 else 87))
    return at + _ESCAPE_BYTES


@njit(cache=True, nogil=True)
def measure_texts(data, starts, stops, kinds, around_bytes, missing_bytes, invisible, sizes):
    """Add to sizes[i] the number of bytes that `put_texts` writes for row i.

    A PRESENT value takes the bytes of the escaped text data[starts[i]:stops[i]], two bytes for quotes, and
    `around_bytes`. A MISSING value takes `missing_bytes`. A SKIPPED value takes no bytes.
    """
    for row in range(len(starts)):
        if kinds[row] == PRESENT:
            sizes[row] += (
                around_bytes + 2 + _escaped_bytes(data, starts[row], stops[row], invisible)
            )
        elif kinds[row] == MISSING:
            sizes[row] += missing_bytes


@njit(cache=True, nogil=True)
def put_texts(data, starts, stops, kinds, label, missing, invisible, out, cursors):
    """Write `label` and the text data[starts[i]:stops[i]], escaped and in quotes, at the cursor of each row i.

    kinds      kind of the value of each row: for MISSING, write `missing` instead; for SKIPPED, write nothing
    invisible  table by code point: 1 for characters that are escaped because they are invisible
    """
    for row in range(len(starts)):
        at = cursors[row]
        if kinds[row] == PRESENT:
            copy_bytes(out, at, label, 0, len(label))
            at += len(label)
            put_byte(out, at, _QUOTE)
            at = _put_escaped(out, at + 1, data, starts[row], stops[row], invisible)
            put_byte(out, at, _QUOTE)
            cursors[row] = at + 1
        elif kinds[row] == MISSING:
            copy_bytes(out, at, missing, 0, len(missing))
            cursors[row] = at + len(missing)


@njit(inline="always")
def _digits(value):
    """Return the number of decimal digits of a uint64. Each step counts two digits."""
    count = np.int64(1)
    while value >= np.uint64(100):
        value //= np.uint64(100)
        count += 2
    return count + (1 if value >= np.uint64(10) else 0)


@njit(inline="always")
def _magnitude(value):
    """Return the absolute value of an int64 as a uint64, because it may exceed the largest int64 by one."""
    word = bits_of(value)
    return ~word + np.uint64(1) if value < 0 else word


@njit(cache=True, nogil=True)
def measure_integers(values, kinds, around_bytes, missing_bytes, sizes):
    for row in range(len(values)):
        if kinds[row] == PRESENT:
            value = np.int64(values[row])
            sizes[row] += around_bytes + (value < 0) + _digits(_magnitude(value))
        elif kinds[row] == MISSING:
            sizes[row] += missing_bytes


@njit(cache=True, nogil=True)
def put_integers(values, kinds, label, missing, out, cursors):
    for row in range(len(values)):
        at = cursors[row]
        if kinds[row] == PRESENT:
            copy_bytes(out, at, label, 0, len(label))
            at += len(label)
            value = np.int64(values[row])
            if value < 0:
                put_byte(out, at, 45)
                at += 1
            left = _magnitude(value)
            stop = at + _digits(left)
            place = stop - 1
            while place >= at:
                quotient = left // np.uint64(10)
                put_byte(out, place, np.int64(left - quotient * np.uint64(10)) + 48)
                left = quotient
                place -= 1
            cursors[row] = stop
        elif kinds[row] == MISSING:
            copy_bytes(out, at, missing, 0, len(missing))
            cursors[row] = at + len(missing)


@njit(cache=True, nogil=True)
def put_runs(data, starts, stops, kinds, label, end, missing, out, cursors):
    """Write `label`, the bytes data[starts[i]:stops[i]] and `end` at the cursor of each row.

    A row whose value is MISSING gets `missing` instead.
    """
    for row in range(len(starts)):
        at = cursors[row]
        if kinds[row] == PRESENT:
            copy_bytes(out, at, label, 0, len(label))
            at += len(label)
            count = stops[row] - starts[row]
            copy_bytes(out, at, data, starts[row], count)
            at += count
            copy_bytes(out, at, end, 0, len(end))
            cursors[row] = at + len(end)
        elif kinds[row] == MISSING:
            copy_bytes(out, at, missing, 0, len(missing))
            cursors[row] = at + len(missing)


@njit(cache=True, nogil=True)
def put_base64(data, starts, stops, kinds, label, missing, out, cursors):
    """Write `label` and the bytes data[starts[i]:stops[i]], in base64 and quotes, at the cursor of each row.

    A row whose value is MISSING gets `missing` instead.
    """
    for row in range(len(starts)):
        at = cursors[row]
        if kinds[row] == PRESENT:
            copy_bytes(out, at, label, 0, len(label))
            at += len(label)
            put_byte(out, at, _QUOTE)
            at += 1
            position, stop = starts[row], stops[row]
            while position < stop:
                left = min(stop - position, 3)
                first = byte_at(data, position)
                second = byte_at(data, position + 1) if left > 1 else np.int64(0)
                third = byte_at(data, position + 2) if left > 2 else np.int64(0)
                put_byte(out, at, np.int64(_BASE64[first >> 2]))
                put_byte(out, at + 1, np.int64(_BASE64[(first & 3) << 4 | second >> 4]))
                put_byte(
                    out,
                    at + 2,
                    np.int64(_BASE64[(second & 15) << 2 | third >> 6]) if left > 1 else 61,
                )
                put_byte(out, at + 3, np.int64(_BASE64[third & 63]) if left > 2 else 61)
                at += 4
                position += 3
            put_byte(out, at, _QUOTE)
            cursors[row] = at + 1
        elif kinds[row] == MISSING:
            copy_bytes(out, at, missing, 0, len(missing))
            cursors[row] = at + len(missing)


@njit(cache=True, nogil=True)
def are_utf8(data, starts, stops, valid):
    """Set valid[i] (uint8) to whether data[starts[i]:stops[i]] is valid UTF-8."""
    for row in range(len(starts)):
        position, stop = starts[row], stops[row]
        good = True
        while position < stop:
            if position + WORD_BYTES <= stop and not word_at(data, position) & TOP_BITS:
                position += WORD_BYTES
                continue
            if byte_at(data, position) < 0x80:
                position += 1
                continue
            length = sequence_length(data, position, stop)
            if length < 0:
                good = False
                break
            position += length
        valid[row] = good


@njit(cache=True, nogil=True)
def are_in_hash_map_order(names, starts, stops, maps, ordered):
    """Set ordered[i] (uint8) to whether the names of row i are in the order in which a `HashMap` iterates.

    The rule is `reput.format.java_string.hash_map_order`. Name k is names[starts[k]:stops[k]], UTF-8. Row i has the
    distinct names from maps[i] to maps[i + 1].
    """
    for row in range(len(ordered)):
        start, stop = np.int64(maps[row]), np.int64(maps[row + 1])
        # A HashMap starts with 16 buckets, and doubles when it is more than three quarters full.
        buckets = np.int64(16)
        while stop - start > buckets * 3 // 4:
            buckets *= 2
        before, good = np.int64(0), True
        for name in range(start, stop):
            value = java_hash(names, starts[name], stops[name], 0) & 0xFFFFFFFF
            bucket = (value ^ value >> 16) & (buckets - 1)
            # Java iterates over a bucket's names in the order of their insertion, which is unknown. So accept any order
            # within a bucket.
            good = good and bucket >= before
            before = bucket
        ordered[row] = good
