"""Compute Java's `String.hashCode` from UTF-8 bytes, which are decoded as Java decodes them.

`reput.format.java_string` specifies the rules. Hashes are kept as int64, but only their low 32 bits count. They are
computed as uint64, which wraps around: compiled code assumes that signed integers never overflow.
"""

from __future__ import annotations

import numpy as np

from reput.format.index_file import TAG_TYPE
from reput.kernels.integers import WORD_BYTES, bits_of, byte_at, word_at
from reput.kernels.jit import njit

_REPLACEMENT = 0xFFFD
_KEY_SEPARATOR = ord("#")
_TAG_TYPE = ord(TAG_TYPE)
_NONE, _ALL_BITS = np.uint64(0), np.uint64(0xFFFFFFFFFFFFFFFF)
_POWERS_OF_31 = np.array([31**power for power in range(8)], np.uint64)
_NOT_ASCII = np.uint64(0x8080808080808080)
_BYTES = np.uint64(0x00FF00FF00FF00FF)
_PAIRS = np.uint64(0x0000FFFF0000FFFF)
_FOURS = np.uint64(0x00000000FFFFFFFF)
_31 = np.uint64(31)
_31_2 = np.uint64(31**2)
_31_4 = np.uint64(31**4)
_31_8 = np.uint64(31**8)
_8, _16, _32 = np.uint64(8), np.uint64(16), np.uint64(32)


@njit(inline="always")
def java_hash(data, start, end, value):
    """Return the hash of a text that begins with a part whose hash is `value`, and ends with data[start:end].

    The caller ensures 0 <= start <= end <= len(data).
    """
    position = start
    value = bits_of(value)
    # In the current word, the top bit of each byte that is not ASCII.
    others = _NONE
    while position + WORD_BYTES <= end and not others:
        word = word_at(data, position)
        others = word & _NOT_ASCII
        if not others:
            value = value * _31_8 + _hash_of_eight(word)
            position += WORD_BYTES
    rest = end - position
    if 0 < rest < WORD_BYTES and end >= WORD_BYTES:
        # Hash the last few bytes as a full word as well. The word begins with bytes that were hashed before. They are
        # set to 0, which adds nothing to the hash.
        word = word_at(data, end - WORD_BYTES) & (_ALL_BITS << np.uint64(64 - 8 * rest))
        others = word & _NOT_ASCII
        if not others:
            return np.int64(value * _POWERS_OF_31[rest] + _hash_of_eight(word))
    if position < end:
        return _hash_any(data, position, end, np.int64(value))
    return np.int64(value)


@njit(inline="always")
def _hash_of_eight(word):
    """Return the hash of eight ASCII bytes. Sums of pairs, then of fours, are computed in parallel within the word."""
    pairs = (word & _BYTES) * _31 + ((word >> _8) & _BYTES)
    fours = (pairs & _PAIRS) * _31_2 + ((pairs >> _16) & _PAIRS)
    return (fours & _FOURS) * _31_4 + (fours >> _32)


@njit(inline="always")
def hash_unit(value, unit):
    """Return the hash of a text after one UTF-16 unit is appended. `value` is the hash of the text without the unit."""
    return np.int64(bits_of(value) * _31 + bits_of(unit))


@njit(inline="always")
def hash_before_key(topic_hash):
    """Return the hash of topic#, the beginning of each text that an index hashes, from the hash of the topic."""
    return hash_unit(topic_hash, _KEY_SEPARATOR)


@njit(inline="always")
def hash_before_tags(key_hash):
    """Return the hash of topic#T#, the beginning of the texts for tags, from the hash of topic#."""
    return hash_unit(hash_unit(key_hash, _TAG_TYPE), _KEY_SEPARATOR)


@njit(cache=True, nogil=True)
def _hash_any(data, position, end, value):
    while position < end:
        first = byte_at(data, position)
        if first < 0x80:
            value = hash_unit(value, first)
            position += 1
            continue
        length = sequence_length(data, position, end)
        if length < 0:
            value = hash_unit(value, _REPLACEMENT)
            position -= length
            continue
        if length == 2:
            value = hash_unit(value, _of_two(data, position))
        elif length == 3:
            value = hash_unit(value, _of_three(data, position))
        # A Java string has two units, a surrogate pair, for a character of four bytes.
        else:
            point = (
                (first & 0x07) << 18
                | _low_bits(data, position + 1) << 12
                | _low_bits(data, position + 2) << 6
                | _low_bits(data, position + 3)
            ) - 0x10000
            value = hash_unit(value, 0xD800 | point >> 10)
            value = hash_unit(value, 0xDC00 | point & 0x3FF)
        position += length
    return value


@njit(cache=True, nogil=True)
def character_at(data, position, end):
    """Return (code point, number of bytes) of the character at `position` < `end`.

    For a character of four bytes, the returned code point is -1. No caller needs the code point: Java's parsers accept
    none of these characters as a digit, and callers that compare two of these characters compare the bytes.
    """
    first = byte_at(data, position)
    if first < 0x80:
        return first, np.int64(1)
    length = np.int64(sequence_length(data, position, end))
    if length < 0:
        return np.int64(_REPLACEMENT), -length
    if length == 2:
        return _of_two(data, position), length
    return (_of_three(data, position) if length == 3 else np.int64(-1)), length


@njit(inline="always")
def _of_two(data, position):
    return (byte_at(data, position) & 0x1F) << 6 | _low_bits(data, position + 1)


@njit(inline="always")
def _of_three(data, position):
    return (
        (byte_at(data, position) & 0x0F) << 12
        | _low_bits(data, position + 1) << 6
        | _low_bits(data, position + 2)
    )


@njit(inline="always")
def _low_bits(data, position):
    return byte_at(data, position) & 0x3F


@njit(cache=True, nogil=True)
def sequence_length(data, position, end):
    """Return the length of the character at `position`, which is not ASCII: 2 to 4 bytes.

    If the bytes are malformed, return a negative number: -n if one U+FFFD replaces n bytes.
    """
    first = byte_at(data, position)
    if first < 0xC2 or first > 0xF4:
        return -1
    width = 2 if first <= 0xDF else (3 if first <= 0xEF else 4)
    # If the first byte is E0, F0 or F4, the second byte has narrower limits. The narrower limits exclude characters
    # above U+10FFFF, and sequences that are longer than necessary for their character.
    low, high = 0x80, 0xBF
    if first == 0xE0:
        low = 0xA0
    elif first == 0xF0:
        low = 0x90
    elif first == 0xF4:
        high = 0x8F
    if (
        position + 1 >= end
        or byte_at(data, position + 1) < low
        or byte_at(data, position + 1) > high
    ):
        return -1
    for count in range(2, width):
        if position + count >= end or byte_at(data, position + count) & 0xC0 != 0x80:
            return -count
    # Java replaces an encoded surrogate by one U+FFFD.
    if first == 0xED and byte_at(data, position + 1) >= 0xA0:
        return -3
    return width


@njit(inline="always")
def positive_hash(value):
    """Return `Math.abs` of the low 32 bits as a Java int; 0 for the smallest int (IndexFile.indexKeyHashMethod)."""
    value &= 0xFFFFFFFF
    if value > 0x80000000:
        return 0x100000000 - value
    return 0 if value == 0x80000000 else value


@njit(inline="always")
def signed_hash(value):
    """Return the low 32 bits as a Java int, in an int64."""
    value &= 0xFFFFFFFF
    return value - ((value & 0x80000000) << 1)
