"""Find the few properties that dispatch and look-ups need, in a properties string, inside a kernel.

The rule is `reput.format.properties.decode_properties`. Its separators are ASCII, so it also holds for UTF-8 bytes.
"""

from __future__ import annotations

import numpy as np

from reput.format.java_string import DIGIT_ZEROS
from reput.kernels.integers import (
    BLOCK_BYTES,
    WORD_BYTES,
    byte_at,
    bytes_above_127,
    equal_bytes,
    same_bytes,
    trailing_zeros,
    word_at,
)
from reput.kernels.java_hash import character_at
from reput.kernels.jit import njit

_DIGIT_ZEROS = np.array(DIGIT_ZEROS, np.int64)
# The white space of Character.isWhitespace except U+2000 to U+200A. Each character is one UTF-16 unit.
_SPACES = np.array(
    [*range(0x09, 0x0E), *range(0x1C, 0x21), 0x1680, 0x2028, 0x2029, 0x205F, 0x3000], np.int64
)
# A non-breaking space, which Java does not count as white space.
_FIGURE_SPACE = 0x2007
_UNIQ_KEY, _KEYS, _TAGS = (
    np.uint64(int.from_bytes(name, "little")) for name in (b"UNIQ_KEY", b"KEYS", b"TAGS")
)
_SPACE_BYTES, _ONE_BYTES = np.uint64(0x2020202020202020), np.uint64(0x0101010101010101)
_NONE, _ONE, _32 = np.uint64(0), np.uint64(1), np.uint64(32)
_THREES = np.uint64(0x0303030303030303)
_TOP_BITS = np.uint64(0x8080808080808080)


@njit(inline="always")
def find_index_properties(data, start, stop):
    """Find UNIQ_KEY, KEYS and TAGS in the properties data[start:stop], and the length of the longest name.

    Returns start and stop of each of the three values (equal if the property is missing), and the length. There must be
    8 bytes of data before `start`, such as a record's header, and no position may reach 2**31.

    Processors cannot predict branches that depend on the ends and names of properties. So one comparison finds all
    separators in 64 bytes, a loop takes one step per property, and names are compared without branches.
    """
    unique, keys, tags, longest = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    name, name_stop = start, np.int64(-1)
    block = start
    while block <= stop:
        ones, ends = separators(data, block, stop)
        while ends:
            value_stop = block + trailing_zeros(ends)
            lowest = ends & (~ends + _ONE)
            before = ones & (lowest - _ONE)
            if name_stop < 0 and before:
                name_stop = block + trailing_zeros(before)
            length = name_stop - name
            if length > 0 and value_stop > name_stop + 1:
                last_8 = word_at(data, name_stop - WORD_BYTES)
                last_4 = last_8 >> _32
                # Pack start and stop into one word, so that one conditional move sets both.
                value = (name_stop + 1) << 32 | value_stop
                unique = value if (length == 8) & (last_8 == _UNIQ_KEY) else unique
                keys = value if (length == 4) & (last_4 == _KEYS) else keys
                tags = value if (length == 4) & (last_4 == _TAGS) else tags
                longest = max(longest, length)
            ones ^= before
            ends ^= lowest
            name, name_stop = value_stop + 1, np.int64(-1)
        if name_stop < 0 and ones:
            name_stop = block + trailing_zeros(ones)
        block += BLOCK_BYTES
    return (
        unique >> 32, unique & 0xFFFFFFFF, keys >> 32, keys & 0xFFFFFFFF,
        tags >> 32, tags & 0xFFFFFFFF, longest,
    )  # fmt: skip


@njit(inline="always")
def separators(data, position, stop):
    """Return two bit maps of the first 64 bytes of data[position:stop].

    The first map marks the bytes 0x01, the second one the bytes 0x02. If there are fewer than 64 bytes, the second map
    also marks the position `stop`.
    """
    ones, ends = _NONE, _NONE
    # The comparison of 64 bytes must not read beyond the array.
    if position + BLOCK_BYTES <= len(data):
        ones, ends = equal_bytes(data, position, 1), equal_bytes(data, position, 2)
    else:
        for index in range(stop - position):
            byte = byte_at(data, position + index)
            ones |= np.uint64(byte == 1) << np.uint64(index)
            ends |= np.uint64(byte == 2) << np.uint64(index)
    if stop - position < BLOCK_BYTES:
        end = _ONE << np.uint64(stop - position)
        return ones & (end - _ONE), ends & (end - _ONE) | end
    return ones, ends


@njit(inline="always")
def has_others(data, position, stop):
    """Return whether any of the first 64 bytes of data[position:stop] is not ASCII."""
    others = _NONE
    if position + BLOCK_BYTES <= len(data):
        others = bytes_above_127(data, position)
        if stop - position < BLOCK_BYTES:
            others &= (_ONE << np.uint64(stop - position)) - _ONE
    else:
        for index in range(stop - position):
            others |= np.uint64(byte_at(data, position + index) > 127)
    return others != _NONE


@njit(cache=True, nogil=True)
def find_value(data, start, stop, name):
    """Find the last property `name` (uint8) in data[start:stop], and return where its value starts and stops.

    Start and stop are equal if the property is missing.
    """
    found, found_stop = start, start
    first, first_stop, value_stop = next_property(data, start, stop)
    while first < stop:
        length = first_stop - first
        if length == len(name) and same_bytes(data, first, name, 0, length):
            found, found_stop = first_stop + 1, value_stop
        first, first_stop, value_stop = next_property(data, value_stop + 1, stop)
    return found, found_stop


@njit(inline="always")
def next_property(data, position, stop):
    """Return start and stop of the next property's name, and the stop of its value.

    If no property follows, all three are `stop`.
    """
    while position < stop:
        name_stop = next_separator(data, position, stop)
        if name_stop >= stop:
            break
        if byte_at(data, name_stop) == 2:
            position = name_stop + 1
            continue
        value_stop = next_separator(data, name_stop + 1, stop)
        # A value may contain 0x01 as well, so only 0x02 ends it.
        while value_stop < stop and byte_at(data, value_stop) == 1:
            value_stop = next_separator(data, value_stop + 1, stop)
        if name_stop > position and value_stop > name_stop + 1:
            return position, name_stop, value_stop
        position = value_stop + 1
    return stop, stop, stop


@njit(inline="always")
def bytes_below_3(word):
    """Return a mask with the top bit of each byte of `word` that is 0, 1 or 2. Only the lowest set bit is reliable."""
    return (word - _THREES) & ~word & _TOP_BITS


@njit(inline="always")
def next_separator(data, position, stop):
    """Return the position of the next byte 1 or 2, or `stop`. Each step takes eight bytes."""
    while position + WORD_BYTES <= stop:
        word = word_at(data, position)
        below_3 = bytes_below_3(word)
        if not below_3:
            position += WORD_BYTES
            continue
        position += trailing_zeros(below_3) >> 3
        # The test for bytes below 3 also finds a byte 0, which is not a separator.
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
def next_space(data, position, stop):
    """Return the position of the next space, or `stop`. Each step takes eight bytes."""
    while position + WORD_BYTES <= stop:
        word = word_at(data, position) ^ _SPACE_BYTES
        # A zero byte of `word` sets a bit in `zeros`. A borrow of the subtraction may also set bits above it, so only
        # the lowest bit is reliable.
        zeros = (word - _ONE_BYTES) & ~word & _TOP_BITS
        if zeros:
            return position + (trailing_zeros(zeros) >> 3)
        position += WORD_BYTES
    while position < stop and byte_at(data, position) != 32:
        position += 1
    return position


@njit(cache=True, nogil=True)
def parse_i64(data, start, stop):
    """Return (valid, value) of a decimal int64, parsed as `Long.parseLong` does."""
    negative = False
    if start < stop and (byte_at(data, start) == 45 or byte_at(data, start) == 43):
        negative = byte_at(data, start) == 45
        start += 1
    if start >= stop:
        return False, np.int64(0)
    # Accumulate a negative value, because the smallest negative number has no positive counterpart.
    value = np.int64(0)
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
    """Return a character's value as a decimal digit, or -1 (Character.digit)."""
    for zero in _DIGIT_ZEROS:
        if zero <= point <= zero + 9:
            return point - zero
    return np.int64(-1)


@njit(cache=True, nogil=True)
def is_blank(data, start, stop):
    """Return whether data[start:stop] is empty or only white space (StringUtils.isBlank)."""
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
