"""Find bodies that consist of one JSON object. Only their brackets and strings are examined.

A parser that reads concatenated bodies finds one object per body only if each body closes its own brackets. The parser
itself checks the text between the brackets.
"""

from __future__ import annotations

import numpy as np

from reput.kernels.integers import byte_at
from reput.kernels.jit import njit

_QUOTE, _BACKSLASH = 0x22, 0x5C
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_LIST, _CLOSE_LIST = 0x7B, 0x7D, 0x5B, 0x5D
MAX_DEPTH = 100
"""Deepest nesting that is passed to a parser.

Parsers recurse once per level, and a hostile body may open millions of levels.
"""

_SPACE, _TAB, _LINE_FEED, _CARRIAGE_RETURN = 0x20, 0x09, 0x0A, 0x0D


@njit(inline="always")
def _is_space(byte):
    return byte in (_SPACE, _TAB, _LINE_FEED, _CARRIAGE_RETURN)


@njit(inline="always")
def _is_one_object(data, start, stop):
    while start < stop and _is_space(byte_at(data, start)):
        start += 1
    while stop > start and _is_space(byte_at(data, stop - 1)):
        stop -= 1
    if start == stop or byte_at(data, start) != _OPEN_OBJECT:
        return False
    depth, in_string = np.int64(0), False
    while start < stop:
        byte = byte_at(data, start)
        start += 1
        if in_string:
            if byte == _BACKSLASH:
                start += 1
            elif byte == _QUOTE:
                in_string = False
        elif byte == _QUOTE:
            in_string = True
        elif byte in (_OPEN_OBJECT, _OPEN_LIST):
            depth += 1
            if depth > MAX_DEPTH:
                return False
        elif byte in (_CLOSE_OBJECT, _CLOSE_LIST):
            depth -= 1
            if depth == 0:
                return start == stop and byte == _CLOSE_OBJECT
    return False


@njit(cache=True, nogil=True)
def are_objects(data, offsets, valid):
    """Set valid[i] (uint8) to whether data[offsets[i]:offsets[i + 1]] is one JSON object.

    The only test is that the range begins with a {, and that the matching } is at its end. White space before and after
    the object is ignored.

    offsets  int32[n + 1], ascending and inside `data`
    """
    for row in range(len(valid)):
        valid[row] = _is_one_object(data, np.int64(offsets[row]), np.int64(offsets[row + 1]))


@njit(cache=True, nogil=True)
def join_lines(data, offsets, rows, out):
    """Copy the bodies of these rows into `out`, each followed by a line feed; return the bytes used."""
    used = np.int64(0)
    for row in rows:
        for at in range(np.int64(offsets[row]), np.int64(offsets[row + 1])):
            out[used] = data[at]
            used += 1
        out[used] = _LINE_FEED
        used += 1
    return used
