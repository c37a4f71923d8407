"""Decode UTF-8 as Java does and encode it again, for readers that refuse invalid bytes.

The rules are those of `reput.format.java_string.decode_utf8`. A single malformed byte may be replaced by U+FFFD,
which has three bytes. So a text of n bytes becomes at most `WORST_GROWTH * n` bytes.
"""

from __future__ import annotations

import numpy as np

from reput.kernels.bytes_out import put_byte, put_i64
from reput.kernels.integers import WORD_BYTES, byte_at, read_i64, same_bytes, word_at
from reput.kernels.java_hash import sequence_length
from reput.kernels.jit import njit

WORST_GROWTH = 3
_NOT_ASCII = np.uint64(0x8080808080808080)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@njit(inline="always")
def is_ascii(data, start, stop):
    position = start
    while position + WORD_BYTES <= stop:
        if word_at(data, position) & _NOT_ASCII:
            return False
        position += WORD_BYTES
    while position < stop:
        if byte_at(data, position) >= 0x80:
            return False
        position += 1
    return True


@njit(inline="always")
def put_text(out, at, data, start, stop):
    """Write the text data[start:stop] to out[at:], and return the position after the written text.

    Malformed UTF-8 is replaced by U+FFFD, as in Java. Up to 7 bytes after the written text may be overwritten, so texts
    must be written in ascending order.
    """
    position = start
    ascii_only = True
    while position + WORD_BYTES <= stop:
        if word_at(data, position) & _NOT_ASCII:
            ascii_only = False
            break
        put_i64(out, at, read_i64(data, position))
        position += WORD_BYTES
        at += WORD_BYTES
    if (
        ascii_only
        and position < stop
        and position + WORD_BYTES <= len(data)
        and at + WORD_BYTES <= len(out)
    ):
        # Copy the last 1 to 7 bytes as a full word of 8 bytes. The next text overwrites the surplus bytes of the word.
        ours = ~(_ALL << np.uint64(8 * (stop - position)))
        ascii_only = not word_at(data, position) & ours & _NOT_ASCII
        if ascii_only:
            put_i64(out, at, read_i64(data, position))
            at += stop - position
            position = stop
    while ascii_only and position < stop:
        byte = byte_at(data, position)
        if byte >= 0x80:
            ascii_only = False
            break
        put_byte(out, at, byte)
        position += 1
        at += 1
    return at if ascii_only else _put_any(out, at, data, position, stop)


@njit(cache=True, nogil=True)
def _put_any(out, at, data, position, stop):
    while position < stop:
        if byte_at(data, position) < 0x80:
            put_byte(out, at, byte_at(data, position))
            position += 1
            at += 1
            continue
        length = sequence_length(data, position, stop)
        if length < 0:
            put_byte(out, at, 0xEF)
            put_byte(out, at + 1, 0xBF)
            put_byte(out, at + 2, 0xBD)
            position -= length
            at += 3
            continue
        for _ in range(length):
            put_byte(out, at, byte_at(data, position))
            position += 1
            at += 1
    return at


@njit(inline="always")
def same_text(data, start, stop, other, other_stop):
    """Return whether two runs of bytes, neither empty, decode to the same Java string."""
    first, other_first = byte_at(data, start), byte_at(data, other)
    if first != other_first and first < 0x80 and other_first < 0x80:
        return False
    if stop - start == other_stop - other and same_bytes(data, start, data, other, stop - start):
        return True
    # Different bytes decode to equal strings only if some bytes are malformed: each malformed sequence becomes U+FFFD.
    if is_ascii(data, start, stop) and is_ascii(data, other, other_stop):
        return False
    return _same_decoded(data, start, stop, other, other_stop)


@njit(cache=True, nogil=True)
def _same_decoded(data, start, stop, other, other_stop):
    while start < stop and other < other_stop:
        length = _character_bytes(data, start, stop)
        other_length = _character_bytes(data, other, other_stop)
        malformed = _is_replaced(data, start, length)
        if malformed != _is_replaced(data, other, other_length):
            return False
        if not malformed and (
            length != other_length or not same_bytes(data, start, data, other, length)
        ):
            return False
        start += abs(length)
        other += abs(other_length)
    return start >= stop and other >= other_stop


@njit(inline="always")
def _character_bytes(data, position, stop):
    """Return the length of the character at `position`: 1 to 4 bytes.

    If the bytes are malformed, return a negative number: -n if one U+FFFD replaces n bytes.
    """
    if byte_at(data, position) < 0x80:
        return np.int64(1)
    return np.int64(sequence_length(data, position, stop))


@njit(inline="always")
def _is_replaced(data, position, length):
    """Return whether Java's string has U+FFFD at this position. The bytes may be malformed, or be U+FFFD themselves."""
    return length < 0 or (
        length == 3
        and byte_at(data, position) == 0xEF
        and byte_at(data, position + 1) == 0xBF
        and byte_at(data, position + 2) == 0xBD
    )
