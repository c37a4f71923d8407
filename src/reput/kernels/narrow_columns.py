"""Store columns of integers in few bytes per value, as differences from the smallest value, and restore them.

The columns are passed as a two-dimensional array: one row per record, one column per field. NumPy would read this whole
array four times for each column, so kernels process it instead.
"""

from __future__ import annotations

import numpy as np

from reput.kernels.jit import njit

# Number of rows that fit in the processor's level 1 cache.
_BLOCK = 512


@njit(cache=True, nogil=True)
def find_spans(rows, first, least, most):
    """Find the minimum and maximum of each column from column `first` on. There must be at least one row.

    least, most  int64 per column, set here
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
    """Store each value's distance from `least` in `width` bytes.

    With a width of 8 bytes and a `least` of 0, any value fits.

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
    """Set a column to the values that `narrow` stored in `data`. With a width of 0, all values are `least`."""
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
