"""Items of an IndexFile compared with the log: which messages have a key that no item has."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import StoreNotFoundError
from reput.index.entries import IndexEntries
from reput.log.files import CommitLogFile
from reput.log.offset_range import OffsetRange, ranges_of
from reput.log.reader import CommitLogReader
from reput.log.scan import FileScan, Piece, ScanBuffers
from reput.log.scan_mode import SALVAGE

_HASH_BITS = 31


class Compared(NamedTuple):
    """Messages that begin in [start, end) were compared; those of `holes`, oldest first, have a key without an item.

    end  of the last message: the record that begins before the `stop` asked for may reach beyond it
    """

    end: int
    holes: list[OffsetRange]


class LogComparison:
    """Compares stretches of a log with a file's items. Raises StoreAccessError, StoreChangedError."""

    def __init__(self, log: CommitLogReader, entries: IndexEntries) -> None:
        self._log, self._entries, self._buffers = log, entries, ScanBuffers()

    def compare(self, start: int, stop: int, first: int, last: int) -> Compared:
        """Messages that begin in [start, stop), one at `start`, with items first to last, which are in order."""
        position, holes = start, []
        for file in self._log.files:
            if file.end <= position or file.start >= stop:
                continue
            if file.start > position:
                holes.append(OffsetRange(position, file.start))
                position = file.start
            begin = self._entries.first_at(position, first, last)
            after = self._entries.first_at(file.end, begin, last)
            end, found = self._in_file(
                file, position, min(stop, file.end), *self._entries.decoded(begin, after)
            )
            holes += found
            position = max(end, position)
        if position < stop:
            holes.append(OffsetRange(position, stop))
        return Compared(max(position, stop), holes)

    def _in_file(
        self,
        file: CommitLogFile,
        start: int,
        stop: int,
        offsets: npt.NDArray[np.int64],
        hashes: npt.NDArray[np.uint32],
    ) -> tuple[int, list[OffsetRange]]:
        """(end of the last message, holes)."""
        scan = FileScan(file, start, stop, SALVAGE, buffers=self._buffers)
        known = _pairs(offsets, hashes, file.start)
        holes: list[OffsetRange] = []
        try:
            for piece in scan.pieces():
                holes += _missing(piece, known, file.start)
        except StoreNotFoundError:  # expired meanwhile
            return file.end, [OffsetRange(start, file.end)]
        end = scan.end.position
        if scan.misplaced:  # what such a message's items point to is not where it lies
            return end, [OffsetRange(start, max(end, stop))]
        holes += ranges_of(scan.damage)
        if scan.end.unreadable:
            holes.append(OffsetRange(end, max(end, stop)))
        return max(end, stop) if scan.end.unreadable else end, sorted(holes)


def _pairs(
    offsets: npt.NDArray[np.int64], hashes: npt.NDArray[np.uint32], base: int
) -> npt.NDArray[np.uint64]:
    """Offset and hash as one number; a file has less than 2**33 bytes."""
    return (offsets - base).astype(np.uint64) << np.uint64(_HASH_BITS) | hashes


def _missing(piece: Piece, known: npt.NDArray[np.uint64], base: int) -> list[OffsetRange]:
    """Runs of messages with keys, unbroken by one whose keys all have items, that have a key without one."""
    batch = piece.batch
    begins = piece.base + piece.positions
    if not len(batch.key_hash):
        return []
    asked = _pairs(begins[batch.key_row], batch.key_hash.view(np.uint32), base)
    low, high = (int(place) - base << _HASH_BITS for place in (begins[0], begins[-1] + 1))
    first, last = np.searchsorted(known, np.array((low, high), np.uint64))
    lacks = ~np.isin(asked, known[first:last])
    if not lacks.any():
        return []
    keyed = np.flatnonzero(batch.messages["key_count"])
    lacking = np.bincount(batch.key_row[lacks], minlength=len(batch))[keyed] > 0
    edges = np.flatnonzero(np.diff(np.concatenate(([False], lacking, [False])).astype(np.int8)))
    firsts, lasts = keyed[edges[::2]], keyed[edges[1::2] - 1]
    ends = begins[lasts] + batch.messages["size"][lasts]
    return [OffsetRange(int(a), int(b)) for a, b in zip(begins[firsts], ends, strict=True)]
