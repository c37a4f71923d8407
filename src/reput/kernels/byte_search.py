"""Many byte strings looked for in many others at once."""

from __future__ import annotations

import numpy as np

from reput.kernels.integers import byte_at, read_i32, same_bytes
from reput.kernels.jit import njit

LEAST_BYTES = 4
"""Shorter patterns are not looked for: they are everywhere."""
TABLE_BITS = 20
_FACTOR, _SHIFT, _MASK = 0x9E3779B1, 32 - TABLE_BITS, 0xFFFFFFFF


@njit(cache=True, nogil=True)
def build_table(patterns, pattern_at, starts, table):
    """Note in `table`, uint8[1 << TABLE_BITS], the first bytes of patterns, and these in `starts`, int64, for sorting.

    Pattern n is patterns[pattern_at[n]:pattern_at[n + 1]].
    """
    for number in range(len(pattern_at) - 1):
        first = read_i32(patterns, pattern_at[number]) & _MASK
        starts[number] = first
        table[((first * _FACTOR) & _MASK) >> _SHIFT] = 1


@njit(cache=True, nogil=True)
def mark_holders(data, at, patterns, pattern_at, is_word, starts, table, marked):
    """Set marked[n] for each text data[at[n]:at[n + 1]] that holds a pattern.

    starts   int64, rising: the first four bytes of each pattern, which are in this order
    is_word  uint8 per pattern: no letter or digit may stand next to it
    """
    for row in range(len(at) - 1):
        begin, end = at[row], at[row + 1]
        position = begin
        while position + LEAST_BYTES <= end and not marked[row]:
            first = read_i32(data, position) & _MASK
            if table[((first * _FACTOR) & _MASK) >> _SHIFT]:
                number = np.searchsorted(starts, first)
                while number < len(starts) and starts[number] == first:
                    length = pattern_at[number + 1] - pattern_at[number]
                    if position + length <= end and same_bytes(
                        data, position, patterns, pattern_at[number], length
                    ):
                        stop = position + length
                        is_inside = is_word[number] and (
                            (position > begin and _is_of_word(byte_at(data, position - 1)))
                            or (stop < end and _is_of_word(byte_at(data, stop)))
                        )
                        if not is_inside:
                            marked[row] = 1
                            break
                    number += 1
            position += 1


@njit(inline="always")
def _is_of_word(byte):
    is_letter = 65 <= byte <= 90 or 97 <= byte <= 122
    return is_letter or 48 <= byte <= 57
