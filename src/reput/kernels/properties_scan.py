"""The few properties that dispatch needs, found in a properties string without leaving the kernel.

The rule is `reput.format.properties.decode_properties`; the separators are ASCII, so it holds for bytes as well.
"""

from __future__ import annotations

import numpy as np

from reput.format.java_integer import DIGIT_ZEROS
from reput.kernels.integers import byte_at, trailing_zeros, word_at
from reput.kernels.java_hash import character_at
from reput.kernels.jit import njit

UNIQ_KEY, KEYS, TAGS, DELAY, INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET = range(6)
PROPERTY_SLOTS = 6

_NAMES = (
    b"UNIQ_KEY",
    b"KEYS",
    b"TAGS",
    b"DELAY",
    b"INNER_MULTI_DISPATCH",
    b"INNER_MULTI_QUEUE_OFFSET",
)
_DIGIT_ZEROS = np.array(DIGIT_ZEROS, np.int64)
# What Character.isWhitespace takes besides U+2000 to U+200A: all are one UTF-16 unit.
_SPACES = np.array(
    [*range(0x09, 0x0E), *range(0x1C, 0x21), 0x1680, 0x2028, 0x2029, 0x205F, 0x3000], np.int64
)
_FIGURE_SPACE = 0x2007  # does not break a line, so it is none
_NAME_BYTES = np.zeros((PROPERTY_SLOTS, 24), np.uint8)
_THREES = np.uint64(0x0303030303030303)
_TOP_BITS = np.uint64(0x8080808080808080)
for _row, _name in enumerate(_NAMES):
    _NAME_BYTES[_row, : len(_name)] = np.frombuffer(_name, np.uint8)


@njit(inline="always")
def _slot_of_length(length, first):
    """The only property whose name has this length and first letter, or -1."""
    if length == 8:
        return UNIQ_KEY
    if length == 4:
        return KEYS if first == 75 else TAGS
    if length == 5:
        return DELAY
    if length == 20:
        return INNER_MULTI_DISPATCH
    return INNER_MULTI_QUEUE_OFFSET if length == 24 else -1


@njit(inline="always")
def property_slot(data, start, stop):
    """Which of the wanted properties the name data[start:stop] is, or -1."""
    slot = _slot_of_length(stop - start, byte_at(data, start))
    return slot if slot >= 0 and _is_name(data, start, stop - start, slot) else -1


@njit(inline="always")
def find_properties(data, start, stop, spans):
    """Start and stop of each wanted value within data[start:stop] into spans[2*slot], [2*slot+1]; equal if none."""
    for index in range(2 * PROPERTY_SLOTS):
        spans[index] = 0
    position = start
    while position < stop:
        name_end = next_separator(data, position, stop)
        if name_end >= stop:
            return
        if byte_at(data, name_end) == 2:
            position = name_end + 1
            continue
        value_end = next_separator(data, name_end + 1, stop)
        while value_end < stop and byte_at(data, value_end) == 1:
            value_end = next_separator(data, value_end + 1, stop)
        if name_end > position and value_end > name_end + 1:
            slot = property_slot(data, position, name_end)
            if slot >= 0:
                spans[2 * slot] = name_end + 1
                spans[2 * slot + 1] = value_end
        position = value_end + 1


@njit(inline="always")
def bytes_below_3(word):
    """The top bits of those bytes of a word that are 0, 1 or 2: the lowest is right, the others may not be."""
    return (word - _THREES) & ~word & _TOP_BITS


@njit(inline="always")
def next_separator(data, position, stop):
    """The next byte 1 or 2, or `stop`; eight bytes at a time."""
    while position + 8 <= stop:
        word = word_at(data, position)
        below_3 = bytes_below_3(word)
        if not below_3:
            position += 8
            continue
        position += trailing_zeros(below_3) >> 3
        if byte_at(data, position) != 0:
            return position
        position += 1
    while position < stop:
        byte = byte_at(data, position)
        if byte == 1 or byte == 2:
            return position
        position += 1
    return stop


@njit(inline="always")
def _is_name(data, position, length, slot):
    for index in range(length):  # noqa: SIM110 (numba has no all() of a generator)
        if byte_at(data, position + index) != _NAME_BYTES[slot, index]:
            return False
    return True


@njit(cache=True, nogil=True)
def parse_i64(data, start, stop):
    """(valid, value) of a decimal int64 as `Long.parseLong` takes it."""
    negative = False
    if start < stop and (byte_at(data, start) == 45 or byte_at(data, start) == 43):
        negative = byte_at(data, start) == 45
        start += 1
    if start >= stop:
        return False, np.int64(0)
    value = np.int64(0)  # kept negative: the range is one larger on that side
    position = start
    while position < stop:
        point, length = character_at(data, position, stop)
        digit = _digit(point)
        if digit < 0 or value < -922337203685477580:
            return False, np.int64(0)
        value = value * 10
        if value < np.int64(-9223372036854775807) - 1 + digit:
            return False, np.int64(0)
        value -= digit
        position += length
    if negative:
        return True, value
    if value == np.int64(-9223372036854775807) - 1:
        return False, np.int64(0)
    return True, -value


@njit(inline="always")
def _digit(point):
    """What a character counts as a decimal digit, or -1 (Character.digit)."""
    for zero in _DIGIT_ZEROS:
        if zero <= point <= zero + 9:
            return point - zero
    return np.int64(-1)


@njit(cache=True, nogil=True)
def is_blank(data, start, stop):
    """Whether data[start:stop] is empty or white space alone (StringUtils.isBlank)."""
    position = start
    while position < stop:
        point, length = character_at(data, position, stop)
        space = 0x2000 <= point <= 0x200A and point != _FIGURE_SPACE
        for other in _SPACES:
            space = space or point == other
        if not space:
            return False
        position += length
    return True
