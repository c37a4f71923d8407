"""Scan a log file for `known_ranges`: find store times, queues, and message ids that have no index entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from reput.base import Finding
from reput.core.log.dispatch_batch import DispatchBatch, Queue
from reput.core.log.files import CommitLogFile
from reput.core.log.known_file import KnownFile, ReplacedIds, StatedOffsets, TimedPiece
from reput.core.log.scan import FileScan, ScannedPiece
from reput.core.log.verdict import ScanMode
from reput.errors import StoreNotFoundError
from reput.format.commit_log import SYS_FLAG_ROLLBACK, SYS_FLAG_TRANSACTION_MASK
from reput.io import OpenFile
from reput.kernels import key_match as kernel
from reput.kernels.batch_facts import PIECE_DTYPE, find_queue_ends, summarize_times
from reput.kernels.jit import new_rows

# Maximum number of pieces into which a file is divided, and minimum size of a piece.
_MOST_PIECES, _LEAST_PIECE_BYTES = 1 << 8, 64 << 10
# Maximum number of ids that one kernel call returns.
_ROOM = 1 << 12
_LATEST = (1 << 63) - 1
# A log file with more queues is not remembered with its queues, which bounds the memory.
_MOST_QUEUES = 1 << 16
# The same for its rolled-back messages. With more, a table reads the whole file.
_MOST_ROLLED_BACK = 1 << 12
Offsets = npt.NDArray[np.int64]
_NO_OFFSETS: Offsets = np.empty(0, np.int64)
# Pieces that one kernel call summarizes.
_PIECES_AT_ONCE = 1 << 10


def scan_range(
    open_file: OpenFile,
    file: CommitLogFile,
    facts: KnownFile,
    *,
    ends: bool,
    check: Callable[[], None] = lambda: None,
) -> KnownFile:
    """Extend the facts about a file by a scan of the bytes after its known range.

    check  is called after each piece; its errors end the scan
    ends  whether the file no longer grows, because later files have data; unreadable bytes at its end are then damage,
          and not a record that is still being written

    Raises StoreAccessError, StoreChangedError.
    """
    collected = _Collected(facts, _piece_bytes(file))
    scan = FileScan(
        file,
        facts.stop,
        file.end,
        ScanMode.READER_PLACES if ends else ScanMode.GROWING_READER_PLACES,
        open_file=open_file,
    )
    counted = 0
    try:
        for piece in scan.pieces():
            check()
            offsets = piece.positions + piece.base
            collected.add(piece.batch, offsets, is_whole=len(scan.damage) == counted)
            counted = len(scan.damage)
            if facts.ids is not None:
                collected.add_ids(piece)
    # The file has expired meanwhile.
    except StoreNotFoundError:
        return KnownFile(
            facts.start, file.end, ids=facts.ids, queues=facts.queues, rolled_back=None
        )
    verdict = scan.verdict()
    damage = verdict.damage if ends else scan.damage
    stop = file.end if ends or scan.end.position >= file.end else scan.end.position
    return collected.result(stop, damage)


class PassedRange:
    """Collects the facts of `scan_range` while records pass that are read for another purpose."""

    def __init__(self, file: CommitLogFile, known: KnownFile) -> None:
        """Extend the facts about a file."""
        self._collected = _Collected(known, _piece_bytes(file))

    @classmethod
    def begin(cls, file: CommitLogFile, start: int) -> Self | None:
        """Begin at physical offset `start` of a file. Return None if the facts about this file are not kept."""
        # In a DLedger log, records do not begin where they state.
        if not file.is_worth_keeping or file.gap:
            return None
        return cls(file, KnownFile(start, start, queues=()))

    def add(self, batch: DispatchBatch, offsets: Offsets | None = None) -> None:
        """Take the next records, which directly follow the previous ones.

        They begin at `offsets`, by default where they state.
        """
        self._collected.add(batch, offsets, is_whole=True)

    def result(self, stop: int) -> KnownFile:
        """Return the facts about the range up to `stop`. It has no damage."""
        return self._collected.result(stop, ())


def may_have_replaced_ids(open_file: OpenFile, file: CommitLogFile, *, ends: bool) -> bool:
    """Return whether a scan finds message ids without an index entry in a file. See `scan_range` for the arguments."""
    empty = KnownFile(file.start, file.start, ids=ReplacedIds())
    ids = scan_range(open_file, file, empty, ends=ends).ids
    return ids is None or bool(ids.hashes)


def _piece_bytes(file: CommitLogFile) -> int:
    return max(file.size // _MOST_PIECES, _LEAST_PIECE_BYTES)


def stored_within(
    open_file: OpenFile, file: CommitLogFile, piece: TimedPiece, begin: int, end: int
) -> set[int]:
    """Return physical offsets of the messages in `piece` that were stored between two times (ms, inclusive).

    Raises StoreAccessError, StoreChangedError.
    """
    # Times beyond int64 would overflow in NumPy's comparison.
    begin, end = (min(max(time, -_LATEST - 1), _LATEST) for time in (begin, end))
    offsets: set[int] = set()
    scan = FileScan(file, piece.start, piece.stop, ScanMode.READER_PLACES, open_file=open_file)
    try:
        for part in scan.pieces():
            timestamps = part.batch.messages["store_timestamp"]
            is_within = (begin <= timestamps) & (timestamps <= end)
            offsets.update((part.positions[is_within] + part.base).tolist())
    # The file has expired meanwhile.
    except StoreNotFoundError:
        return set()
    return offsets


def _pieces(
    batch: DispatchBatch, offsets: Offsets | None, piece_bytes: int
) -> Iterator[tuple[int, int, int, int, int]]:
    """Divide a batch at multiples of `piece_bytes`. Yield the fields of PIECE_DTYPE for each part.

    The log is divided into pieces at multiples of the piece size. A later scan of appended messages uses the same
    borders, so the first appended messages may extend the last piece.
    """
    begins = _NO_OFFSETS if offsets is None else offsets
    pieces, row = new_rows(_PIECES_AT_ONCE, PIECE_DTYPE), 0
    while row < len(batch):
        count = summarize_times(batch.messages, begins, row, piece_bytes, pieces)
        found = pieces[:count].tolist()
        yield from found
        row = found[-1][1]


class _Collected:
    """Collects the results of a scan of a file: store times, queues, and message ids without an index entry."""

    def __init__(self, known: KnownFile, piece_bytes: int) -> None:
        self._known, self._piece_bytes = known, piece_bytes
        self._pieces = list(known.pieces)
        self._hashes: list[npt.NDArray[np.int32]] = []
        self._offsets: list[Offsets] = []
        self._stated = {one[:2]: one for one in known.queues or ()}
        self._queues: list[Queue] = []
        self._rolled_back = None if known.rolled_back is None else list(known.rolled_back)
        self._first, self._last = np.empty((2, 0), np.int64)

    def add(self, batch: DispatchBatch, offsets: Offsets | None, *, is_whole: bool) -> None:
        """Take a batch whose records begin at `offsets`, or where they state.

        `is_whole` states that no damage lies between the previous batch and this one.
        """
        if not len(batch):
            return
        if self._known.queues is not None:
            self._add_queues(batch, offsets)
        begins = batch.messages["physical_offset"] if offsets is None else offsets
        sizes, times = batch.messages["size"], batch.messages["store_timestamp"]
        for first, stop, least, most, steps_back in _pieces(batch, offsets, self._piece_bytes):
            last = int(begins[stop - 1])
            self._append(
                TimedPiece(
                    int(begins[first]), last + int(sizes[stop - 1]), least, most,
                    last, not steps_back, is_whole or first > 0,
                ),
                int(times[first]),
            )  # fmt: skip

    def _add_queues(self, batch: DispatchBatch, offsets: Offsets | None) -> None:
        # A scan numbers queues in the order of their first messages, so earlier queues keep their numbers. Another scan
        # numbers them anew.
        if batch.queues[: len(self._queues)] != self._queues:
            self._fold()
        if new := len(batch.queues) - len(self._queues):
            self._first = np.concatenate([self._first, np.full(new, _LATEST)])
            self._last = np.concatenate([self._last, np.full(new, -1)])
        self._queues = batch.queues
        if find_queue_ends(batch.messages, self._first, self._last):
            self._add_rolled_back(batch, offsets)

    def _add_rolled_back(self, batch: DispatchBatch, offsets: Offsets | None) -> None:
        state = batch.messages["sys_flag"] & SYS_FLAG_TRANSACTION_MASK
        begins = batch.messages["physical_offset"] if offsets is None else offsets
        if self._rolled_back is not None:
            self._rolled_back += begins[state == SYS_FLAG_ROLLBACK].tolist()
            if len(self._rolled_back) > _MOST_ROLLED_BACK:
                self._rolled_back = None

    def _fold(self) -> None:
        """Add the numbered queues to `_stated`."""
        columns = self._queues, self._first.tolist(), self._last.tolist()
        for queue, first, last in zip(*columns, strict=True):
            found = StatedOffsets(*queue, *((first, last) if last >= 0 else ()))
            before = self._stated.get(found[:2])
            self._stated[found[:2]] = found if before is None else before.together(found)
        self._queues = []
        self._first, self._last = np.empty((2, 0), np.int64)

    def _all_queues(self) -> tuple[StatedOffsets, ...] | None:
        self._fold()
        is_known = self._known.queues is not None and len(self._stated) <= _MOST_QUEUES
        return tuple(self._stated.values()) if is_known else None

    def _append(self, found: TimedPiece, first_ms: int) -> None:
        last = self._pieces[-1] if self._pieces else None
        if last is None:
            self._pieces.append(found._replace(start=self._known.start))
        elif last.last // self._piece_bytes < found.start // self._piece_bytes:
            self._pieces.append(found._replace(start=last.stop))
        else:
            self._pieces[-1] = TimedPiece(
                last.start, found.stop, min(last.least, found.least), max(last.most, found.most),
                found.last, last.ascends and found.ascends and last.most <= first_ms,
                last.is_whole and found.is_whole,
            )  # fmt: skip

    def add_ids(self, piece: ScannedPiece) -> None:
        begins = np.ascontiguousarray(piece.positions)
        ends = begins + piece.batch.messages["size"]
        records = new_rows(len(begins), kernel.RECORD_DTYPE)
        kernel.locate_records(piece.data, begins, ends, np.ones(len(begins), np.uint8), records)
        for hashes, rows in _own_ids(piece.data, records):
            self._hashes.append(hashes)
            self._offsets.append(begins[rows] + piece.base)

    def result(self, stop: int, damage: Sequence[Finding]) -> KnownFile:
        pieces = self._pieces
        if pieces:
            is_whole = pieces[-1].is_whole and not any(
                lost.stop > pieces[-1].last for lost in damage
            )
            pieces[-1] = pieces[-1]._replace(stop=stop, is_whole=is_whole)
        elif damage:
            # The range has damage, but no message. Queries never skip a piece with `is_whole=False`, so every query
            # reports the damage.
            pieces = [TimedPiece(self._known.start, stop, 0, 0, -1, is_whole=False)]
        every = (*self._known.damage, *damage)
        queues = self._all_queues()
        rolled_back = None if self._rolled_back is None else tuple(self._rolled_back)
        return KnownFile(
            self._known.start, stop, tuple(pieces), self._ids(), queues, every,
            rolled_back=rolled_back,
        )  # fmt: skip

    def _ids(self) -> ReplacedIds | None:
        known = self._known.ids
        if known is None or not self._hashes:
            return known
        hashes = np.concatenate([np.frombuffer(known.hashes, np.int32), *self._hashes])
        offsets = np.concatenate([np.frombuffer(known.offsets, np.int64), *self._offsets])
        order = np.lexsort((offsets, hashes))
        return ReplacedIds(hashes[order].tobytes(), offsets[order].tobytes())


def _own_ids(
    data: npt.NDArray[np.uint8], records: npt.NDArray[np.void]
) -> Iterator[tuple[npt.NDArray[np.int32], Offsets]]:
    """Yield, in parts, the hashes of UNIQ_KEYs that have no index entry, and the rows of their records.

    If a record has several UNIQ_KEYs, a broker indexes only the last one.
    """
    first, size = 0, _ROOM
    while first < len(records):
        hashes, rows = np.empty(size, np.int32), np.empty(size, np.int64)
        count, done = kernel.hash_own_ids(data, records[first:], hashes, rows)
        if count:
            yield hashes[:count].copy(), rows[:count] + first
        # If not even the ids of a single record fitted (`done` is 0), more room is needed.
        size = size if done else 2 * size
        first += done
