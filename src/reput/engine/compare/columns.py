"""Hold entries as columns of integers, and match the rows of two such tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.core import OffsetRange

Column = npt.NDArray[np.int64]
AnyColumn = npt.NDArray[np.integer]
Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


class FoundEntries(NamedTuple):
    """Entries of a queue as stored. `numbers` are their queue offsets."""

    numbers: Column
    offsets: Column
    sizes: Column
    tags: Column

    def at(self, rows: npt.NDArray[np.intp] | Flags) -> FoundEntries:
        return FoundEntries(*(column[rows] for column in self))


class ExpectedEntries(NamedTuple):
    """Entries that a queue should have for its messages. `times` are the messages' store timestamps, ms."""

    numbers: Column
    offsets: Column
    sizes: Column
    tags: Column
    times: Column

    def at(self, rows: npt.NDArray[np.intp] | Flags) -> ExpectedEntries:
        return ExpectedEntries(*(column[rows] for column in self))


class FoundItems(NamedTuple):
    """Items of one IndexFile as stored; their numbers start at 1."""

    numbers: Column
    offsets: Column
    hashes: Column
    seconds: Column

    def at(self, rows: npt.NDArray[np.intp] | Flags) -> FoundItems:
        return FoundItems(*(column[rows] for column in self))


def key_pairs(offsets: Column, hashes: AnyColumn, base: int) -> npt.NDArray[np.uint64]:
    """Pack the physical offset and the key hash of each item into one number.

    Offsets must be less than 2**33 after `base`, because 31 of the 64 bits hold the hash.
    """
    return (offsets - base).astype(np.uint64) << np.uint64(31) | hashes.astype(np.uint64)


def in_ranges(offsets: Column, ranges: Sequence[OffsetRange]) -> Flags:
    """Return one flag per offset: whether it lies in one of the ranges."""
    inside = np.zeros(len(offsets), np.bool_)
    for start, stop in ranges:
        inside |= (offsets >= start) & (offsets < stop)
    return inside


def unmatched(left: Sequence[AnyColumn], right: Sequence[AnyColumn]) -> tuple[Rows, Rows]:
    """Return for each table the numbers of the rows that the other table lacks, ascending.

    A row that occurs twice in one table needs two counterparts. Both tables have the same columns. Memory: about 24
    bytes per row and column.
    """
    count = len(left[0])
    order, run = _sorted_rows(left, right)
    of_right = order >= count
    runs = int(run[-1]) + 1 if len(order) else 0
    lefts = np.bincount(run[~of_right], minlength=runs)
    rights = np.bincount(run[of_right], minlength=runs)
    # A run is a group of equal rows of both tables: first the rows of the left table, then the rows of the right table.
    # In each run, match each left row with one right row. The remaining rows are unmatched.
    first = np.flatnonzero(np.diff(run, prepend=-1))
    place = np.arange(len(order)) - first[run]
    matched = np.minimum(lefts, rights)[run]
    place_on_side = np.where(of_right, place - lefts[run], place)
    alone = place_on_side >= matched
    return np.sort(order[alone & ~of_right]), np.sort(order[alone & of_right] - count)


def in_common(left: Sequence[AnyColumn], right: Sequence[AnyColumn]) -> tuple[Rows, Rows]:
    """Pair each row of one table with the row of the other table that has the same values.

    If a table has equal rows, only the first of them is paired. Return the numbers of the paired rows in each table.
    """
    order, run = _sorted_rows(left, right)
    number = np.empty(len(order), np.int64)
    number[order] = run
    count = len(left[0])
    _, rows, other_rows = np.intersect1d(number[:count], number[count:], return_indices=True)
    return rows, other_rows


def _sorted_rows(left: Sequence[AnyColumn], right: Sequence[AnyColumn]) -> tuple[Rows, Rows]:
    """Sort the rows of two tables together. Rows of `right` are numbered after the rows of `left`.

    Returns:
        Two arrays. The first has the row numbers, sorted by the values of the rows; among equal rows, rows of `left`
        come first. The second has, for each row in this order, the number of its group of equal rows, counted from 0.
    """
    columns = [np.concatenate(pair) for pair in zip(left, right, strict=True)]
    # lexsort is stable, so left rows stay before right rows. It takes the least significant column first.
    order = np.lexsort(columns[::-1])
    is_new = np.ones(len(order), np.bool_)
    if len(order):
        is_new[1:] = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    return order, np.cumsum(is_new) - 1
