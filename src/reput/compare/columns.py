"""Entries as columns, and which rows of two tables have no counterpart: integers, compared all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.log.offset_range import OffsetRange

Column = npt.NDArray[np.int64]
AnyColumn = npt.NDArray[np.integer]
Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


class FoundEntries(NamedTuple):
    """Entries of a queue as they are stored: their numbers in the queue, and what they say."""

    numbers: Column
    offsets: Column
    sizes: Column
    tags: Column

    def at(self, rows: npt.NDArray[np.intp] | Flags) -> FoundEntries:
        return FoundEntries(*(column[rows] for column in self))


class ExpectedEntries(NamedTuple):
    """Entries that the messages of a queue should have; `times` are the store timestamps (ms) of these."""

    numbers: Column
    offsets: Column
    sizes: Column
    tags: Column
    times: Column

    def at(self, rows: npt.NDArray[np.intp] | Flags) -> ExpectedEntries:
        return ExpectedEntries(*(column[rows] for column in self))


class FoundItems(NamedTuple):
    """Items of one IndexFile as they are stored; their numbers count from 1."""

    numbers: Column
    offsets: Column
    hashes: Column
    seconds: Column

    def at(self, rows: npt.NDArray[np.intp] | Flags) -> FoundItems:
        return FoundItems(*(column[rows] for column in self))


def key_pairs(offsets: Column, hashes: AnyColumn, base: int) -> npt.NDArray[np.uint64]:
    """Physical offset and key hash of each item as one number; the offsets lie less than 2**33 bytes after `base`."""
    return (offsets - base).astype(np.uint64) << np.uint64(31) | hashes.astype(np.uint64)


def in_ranges(offsets: Column, ranges: Sequence[OffsetRange]) -> Flags:
    """Which offsets lie in one of the ranges."""
    inside = np.zeros(len(offsets), np.bool_)
    for start, stop in ranges:
        inside |= (offsets >= start) & (offsets < stop)
    return inside


def unmatched(left: Sequence[AnyColumn], right: Sequence[AnyColumn]) -> tuple[Rows, Rows]:
    """Numbers of the rows of each table that the other has not, ascending; repeated rows count each time.

    Both tables have the same columns. Memory: some 24 bytes per row and column.
    """
    count = len(left[0])
    columns = [np.concatenate(pair) for pair in zip(left, right, strict=True)]
    side = np.zeros(count + len(right[0]), np.int64)
    side[count:] = 1
    order = np.lexsort([side, *columns[::-1]])
    new_row = np.ones(len(order), np.bool_)
    if len(order):
        new_row[1:] = np.any(
            [column[order][1:] != column[order][:-1] for column in columns], axis=0
        )
    run = np.cumsum(new_row) - 1
    of_right = side[order] == 1
    runs = int(run[-1]) + 1 if len(order) else 0
    lefts = np.bincount(run[~of_right], minlength=runs)
    rights = np.bincount(run[of_right], minlength=runs)
    # In each run come first the left rows, then the right ones; as many of each are matched as both have.
    first = np.flatnonzero(new_row)
    place = np.arange(len(order)) - first[run]
    matched = np.minimum(lefts, rights)[run]
    place_on_side = np.where(of_right, place - lefts[run], place)
    alone = place_on_side >= matched
    return np.sort(order[alone & ~of_right]), np.sort(order[alone & of_right] - count)


def in_common(left: Sequence[AnyColumn], right: Sequence[AnyColumn]) -> tuple[Rows, Rows]:
    """Rows of two tables that have the same values, paired, each once, the first of repeated ones."""
    keys = [np.concatenate(pair) for pair in zip(left, right, strict=True)]
    order = np.lexsort(keys[::-1])
    changes = np.ones(len(order), np.bool_)
    if len(order):
        changes[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(changes) - 1
    count = len(left[0])
    _, rows, other_rows = np.intersect1d(number[:count], number[count:], return_indices=True)
    return rows, other_rows
