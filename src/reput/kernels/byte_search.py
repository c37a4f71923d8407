"""Search many texts for many byte strings at once."""

from __future__ import annotations

import numpy as np

from reput.kernels.integers import byte_at, read_i32, same_bytes
from reput.kernels.jit import njit

LEAST_BYTES = 4
"""Length of the shortest pattern that is searched for. Shorter patterns occur nearly everywhere."""
TABLE_BITS = 20
_BACKSLASH, _PERCENT, _U = 92, 37, 117
_FACTOR, _SHIFT, _MASK = 0x9E3779B1, 32 - TABLE_BITS, 0xFFFFFFFF


@njit(cache=True, nogil=True)
def build_table(patterns, pattern_at, table):
    """Set table[hash] to 1 for the hash of the first four bytes of each pattern.

    table  uint8[1 << TABLE_BITS], zeros

    Pattern n is patterns[pattern_at[n]:pattern_at[n + 1]].
    """
    for number in range(len(pattern_at) - 1):
        first = read_i32(patterns, pattern_at[number]) & _MASK
        table[((first * _FACTOR) & _MASK) >> _SHIFT] = 1


@njit(cache=True, nogil=True)
def mark_holders(data, at, patterns, pattern_at, is_word, shorter, table, marked):
    """Set marked[n] for each text data[at[n]:at[n + 1]] that contains a pattern.

    patterns  in ascending order
    is_word   uint8 per pattern: whether it matches whole words only
    shorter   int64 per pattern: the longest other pattern that is a prefix of it, or -1
    """
    for row in range(len(at) - 1):
        begin, end = at[row], at[row + 1]
        position = begin
        while position + LEAST_BYTES <= end and not marked[row]:
            first = read_i32(data, position) & _MASK
            # For nearly all positions, one look-up in the table shows that no pattern begins there.
            if table[((first * _FACTOR) & _MASK) >> _SHIFT]:
                # Try the found pattern, then each shorter pattern that is a prefix of it.
                number = _last_before(data, position, end, patterns, pattern_at)
                while number >= 0 and not marked[row]:
                    stop = position + pattern_at[number + 1] - pattern_at[number]
                    if stop <= end and same_bytes(
                        data, position, patterns, pattern_at[number], stop - position
                    ):
                        is_inside = is_word[number] and (
                            _continues_word(data, begin, position)
                            or (stop < end and _is_of_word(byte_at(data, stop)))
                        )
                        marked[row] = not is_inside
                    number = shorter[number]
            position += 1


@njit(cache=True, nogil=True)
def _last_before(data, position, end, patterns, pattern_at):
    """Return the index of the last pattern that is not greater than data[position:end]; -1 if all are greater."""
    low, high = np.int64(0), np.int64(len(pattern_at) - 1)
    while low < high:
        middle = (low + high) >> 1
        start, stop = pattern_at[middle], pattern_at[middle + 1]
        count = min(stop - start, end - position)
        index = 0
        while index < count and byte_at(patterns, start + index) == byte_at(data, position + index):
            index += 1
        if index < count:
            is_greater = byte_at(patterns, start + index) > byte_at(data, position + index)
        else:
            is_greater = stop - start > end - position
        if is_greater:
            high = middle
        else:
            low = middle + 1
    return low - 1


@njit(inline="always")
def _continues_word(data, begin, position):
    """Return whether the byte before a position belongs to the same word.

    The last character of an escape, such as the D of %3D, is not part of a word.
    """
    if position == begin or not _is_of_word(byte_at(data, position - 1)):
        return False
    is_escaped = (position - begin >= 2 and byte_at(data, position - 2) == _BACKSLASH) or (
        position - begin >= 3 and byte_at(data, position - 3) == _PERCENT
    )
    return not is_escaped and not (
        position - begin >= 6
        and byte_at(data, position - 6) == _BACKSLASH
        and byte_at(data, position - 5) == _U
    )


@njit(inline="always")
def _is_of_word(byte):
    is_letter = 65 <= byte <= 90 or 97 <= byte <= 122
    return is_letter or 48 <= byte <= 57
