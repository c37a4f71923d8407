"""Narrow columns of integers, each value as its distance from the least in few bytes, and widen them again.

The columns are in a two-dimensional array: fields of one type in an array of rows. NumPy would pass four times over
all rows to narrow one column.
"""

from __future__ import annotations

import numpy as np

from reput.kernels.jit import njit

_BLOCK = 512  # rows that the processor's nearest cache holds


@njit(cache=True, nogil=True)
def find_spans(rows, first, least, most):
    """Write the least and the greatest value of columns from `first` on; rows must not be empty.

    least, most  int64, set here
    """
    for column in range(len(least)):
        least[column] = most[column] = rows[0, first + column]
    for begin in range(0, len(rows), _BLOCK):
        end = min(begin + _BLOCK, len(rows))
        for column in range(len(least)):
            low, high = least[column], most[column]
            for row in range(begin, end):
                value = np.int64(rows[row, first + column])
                low, high = min(low, value), max(high, value)
            least[column], most[column] = low, high


@njit(cache=True, nogil=True)
def narrow(rows, column, least, width, data):
    """Store what each value of a column is above `least`, in `width` bytes; 8 take any value where `least` is 0.

    data  uint8[len(rows) * width], set here
    """
    if width == 1:
        for row in range(len(rows)):
            data[row] = np.int64(rows[row, column]) - least
    elif width == 2:
        halves = data.view(np.uint16)
        for row in range(len(rows)):
            halves[row] = np.int64(rows[row, column]) - least
    elif width == 4:
        words = data.view(np.uint32)
        for row in range(len(rows)):
            words[row] = np.int64(rows[row, column]) - least
    elif width == 8:
        doubles = data.view(np.int64)
        for row in range(len(rows)):
            doubles[row] = np.int64(rows[row, column]) - least


@njit(cache=True, nogil=True)
def widen(data, least, width, rows, column):
    """Set a column to the values that `narrow` stored in `data`; all of them are `least` where the width is 0."""
    if width == 0:
        for row in range(len(rows)):
            rows[row, column] = least
    elif width == 1:
        for row in range(len(rows)):
            rows[row, column] = least + np.int64(data[row])
    elif width == 2:
        halves = data.view(np.uint16)
        for row in range(len(rows)):
            rows[row, column] = least + np.int64(halves[row])
    elif width == 4:
        words = data.view(np.uint32)
        for row in range(len(rows)):
            rows[row, column] = least + np.int64(words[row])
    elif width == 8:
        doubles = data.view(np.int64)
        for row in range(len(rows)):
            rows[row, column] = least + doubles[row]
