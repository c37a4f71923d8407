"""Store columns of integers in few bytes per value, as differences from the smallest value, and restore them.

The columns are passed as a two-dimensional array: one row per record, one column per field. A loop over all rows for
each column would read this whole array from memory as many times as it has columns. So all kernels process a block of
rows at a time, which stays in the processor's first cache until all its columns are done.

`places` describes where the columns are stored, int64[columns, 3]: bytes per value (0, 1, 2, 4 or 8), the number that
was subtracted from each value, and the position of the first value. With 8 bytes per value and nothing subtracted, any
value fits. Positions are multiples of 8.
"""

from __future__ import annotations

import numpy as np

from reput.kernels.jit import njit

BLOCK_ROWS = 512
"""Number of rows that fit in the processor's level 1 cache."""
WIDTH, LEAST, POSITION = range(3)


@njit(cache=True, nogil=True)
def find_spans(rows, first, least, most):
    """Find the minimum and maximum of each column from column `first` on. There must be at least one row.

    least, most  int64 per column, set here
    """
    for column in range(len(least)):
        least[column] = most[column] = rows[0, first + column]
    for begin in range(0, len(rows), BLOCK_ROWS):
        end = min(begin + BLOCK_ROWS, len(rows))
        for column in range(len(least)):
            low, high = least[column], most[column]
            for row in range(begin, end):
                value = np.int64(rows[row, first + column])
                low, high = min(low, value), max(high, value)
            least[column], most[column] = low, high


@njit(cache=True, nogil=True)
def narrow(rows, first, places, data):
    """Store the columns from column `first` on, one for each of `places`, in `data` (uint8)."""
    for begin in range(0, len(rows), BLOCK_ROWS):
        end = min(begin + BLOCK_ROWS, len(rows))
        for number in range(len(places)):
            width, least = places[number, WIDTH], places[number, LEAST]
            column, at = first + number, places[number, POSITION] + begin * width
            part = data[at : at + (end - begin) * width]
            if width == 1:
                for row in range(begin, end):
                    part[row - begin] = np.int64(rows[row, column]) - least
            elif width == 2:
                halves = part.view(np.uint16)
                for row in range(begin, end):
                    halves[row - begin] = np.int64(rows[row, column]) - least
            elif width == 4:
                words = part.view(np.uint32)
                for row in range(begin, end):
                    words[row - begin] = np.int64(rows[row, column]) - least
            elif width == 8:
                doubles = part.view(np.int64)
                for row in range(begin, end):
                    doubles[row - begin] = np.int64(rows[row, column]) - least


@njit(inline="always")
def widen_block(data, place, first, values, count):
    """Set values[:count] to the values of a column from row `first` on. `place` is its row of `places`."""
    width, least = place[WIDTH], place[LEAST]
    at = place[POSITION] + first * width
    part = data[at : at + count * width]
    if width == 0:
        for row in range(count):
            values[row] = least
    elif width == 1:
        for row in range(count):
            values[row] = least + np.int64(part[row])
    elif width == 2:
        halves = part.view(np.uint16)
        for row in range(count):
            values[row] = least + np.int64(halves[row])
    elif width == 4:
        words = part.view(np.uint32)
        for row in range(count):
            values[row] = least + np.int64(words[row])
    elif width == 8:
        doubles = part.view(np.int64)
        for row in range(count):
            values[row] = least + doubles[row]


@njit(cache=True, nogil=True)
def widen(data, places, first, columns, rows):
    """Set the columns `columns` (int64) of `rows` to values that `narrow` stored in `data`, from its row `first` on."""
    for begin in range(0, len(rows), BLOCK_ROWS):
        end = min(begin + BLOCK_ROWS, len(rows))
        for number in range(len(places)):
            values = rows[begin:end, columns[number]]
            widen_block(data, places[number], first + begin, values, end - begin)
