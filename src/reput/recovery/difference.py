"""One place where an index is not what dispatch makes of the log, and how many of them are told from two arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
"""uint32[n, 5]: entries of a ConsumeQueue or items of an IndexFile, the file's bytes."""
Part = Literal["entry", "item", "slot", "header"]


class Difference(NamedTuple):
    """One entry of a ConsumeQueue, or one item, slot or header of an IndexFile, that is not as it should be.

    part             what it is
    path             of the file that has it, or should have it; the folder index/ for the items of a lost IndexFile
    file_offset      of its first byte
    physical_offset  of the message that it is, or should be, for; None for slots and headers
    expected, found  its bytes; no bytes where there should be none, or are none
    """

    part: Part
    path: str
    file_offset: int
    physical_offset: int | None
    expected: bytes
    found: bytes


def differing_rows(there: Words, expected: Words) -> npt.NDArray[np.intp]:
    """Rows of `expected` that are not so in `there`, which may have fewer; in order."""
    same = (there == expected[: len(there)]).all(axis=1)
    if len(there) == len(expected) and same.all():
        return np.empty(0, np.intp)
    return np.concatenate([np.flatnonzero(~same), np.arange(len(there), len(expected))])


def equal_rows(there: Words, expected: Words) -> int:
    """How many rows of `expected` are there, up to the first that is not."""
    rows = differing_rows(there, expected)
    return int(rows[0]) if len(rows) else len(expected)


def offsets_of(words: Words, column: int) -> npt.NDArray[np.int64]:
    """Physical offsets, of which the high word is in that column."""
    high = words[:, column].byteswap().astype(np.int64)
    return high << 32 | words[:, column + 1].byteswap()


def bytes_of(words: Words, row: int) -> bytes:
    return words[row].tobytes() if row < len(words) else b""


def surplus(
    part: Part, path: str, file_offset: int, words: Words, column: int
) -> Iterator[Difference]:
    """Of rows that lie one after the other from `file_offset` on: those that are not zero."""
    rows = np.flatnonzero(words.any(axis=1))
    for row, offset in zip(rows.tolist(), offsets_of(words[rows], column).tolist(), strict=True):
        place = file_offset + row * words.itemsize * words.shape[1]
        yield Difference(part, path, place, offset, b"", words[row].tobytes())
