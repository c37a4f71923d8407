"""Scan a log file for `reput.log.known_ranges`: find store times, queues, and message ids that have no index entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from reput.errors import StoreNotFoundError
from reput.files.reader import OpenFile
from reput.findings import Finding
from reput.format.commit_log import SYS_FLAG_PREPARED
from reput.kernels import key_match as kernel
from reput.kernels.rows import new_rows
from reput.log.dispatch_batch import DispatchBatch
from reput.log.files import CommitLogFile
from reput.log.known_file import KnownFile, ReplacedIds, StatedOffsets, TimedPiece
from reput.log.scan import FileScan, ScannedPiece
from reput.log.scan_mode import GROWING_READER_PLACES, READER_PLACES

# Maximum number of pieces into which a file is divided, and minimum size of a piece.
_MOST_PIECES, _LEAST_PIECE_BYTES = 1 << 8, 64 << 10
# Maximum number of ids that one kernel call returns.
_ROOM = 1 << 12
_LATEST = (1 << 63) - 1
# A log file with more queues is not remembered with its queues, which bounds the memory.
_MOST_QUEUES = 1 << 16
# Messages with this bit are prepared or rolled back, so they have no queue entry.
_UNDISPATCHED = SYS_FLAG_PREPARED
Offsets = npt.NDArray[np.int64]


def scan_range(
    open_file: OpenFile,
    file: CommitLogFile,
    known: KnownFile,
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
    collected = _Collected(known, max(file.size // _MOST_PIECES, _LEAST_PIECE_BYTES))
    scan = FileScan(
        file,
        known.stop,
        file.end,
        READER_PLACES if ends else GROWING_READER_PLACES,
        open_file=open_file,
    )
    told = 0
    try:
        for piece in scan.pieces():
            check()
            collected.add(piece, is_whole=len(scan.damage) == told)
            told = len(scan.damage)
            if known.ids is not None:
                collected.add_ids(piece)
    # The file has expired meanwhile.
    except StoreNotFoundError:
        return KnownFile(known.start, file.end, ids=known.ids, queues=known.queues)
    verdict = scan.verdict()
    damage = verdict.damage if ends else scan.damage
    stop = file.end if ends or scan.end.position >= file.end else scan.end.position
    return collected.result(stop, damage)


def stored_within(
    open_file: OpenFile, file: CommitLogFile, piece: TimedPiece, begin: int, end: int
) -> set[int]:
    """Return physical offsets of the messages in `piece` that were stored between two times (ms, inclusive).

    Raises StoreAccessError, StoreChangedError.
    """
    # Times beyond int64 would overflow in NumPy's comparison.
    begin, end = (min(max(time, -_LATEST - 1), _LATEST) for time in (begin, end))
    found: set[int] = set()
    scan = FileScan(file, piece.start, piece.stop, READER_PLACES, open_file=open_file)
    try:
        for part in scan.pieces():
            stored = part.batch.messages["store_timestamp"]
            is_within = (begin <= stored) & (stored <= end)
            found.update((part.positions[is_within] + part.base).tolist())
    # The file has expired meanwhile.
    except StoreNotFoundError:
        return set()
    return found


class _Collected:
    """Collects the results of a scan of a file: store times, queues, and message ids without an index entry."""

    def __init__(self, known: KnownFile, piece_bytes: int) -> None:
        self._known, self._piece_bytes = known, piece_bytes
        self._pieces = list(known.pieces)
        self._hashes: list[npt.NDArray[np.int32]] = []
        self._offsets: list[Offsets] = []
        self._queues = {one[:2]: one for one in known.queues or ()}

    def add(self, piece: ScannedPiece, *, is_whole: bool) -> None:
        """Take a batch. `is_whole` states whether there is no damage between the previous batch and this one."""
        times = piece.batch.messages["store_timestamp"]
        if not len(times):
            return
        if self._known.queues is not None:
            self._add_queues(piece.batch)
        offsets = piece.positions + piece.base
        steps_back = np.diff(times, prepend=times[0]) < 0
        # The log is divided into pieces at multiples of the piece size. A later scan of appended messages uses the same
        # borders, so the first appended messages may extend the last piece.
        number = offsets // self._piece_bytes
        first = np.append(0, np.flatnonzero(np.diff(number)) + 1)
        least, most = np.minimum.reduceat(times, first), np.maximum.reduceat(times, first)
        # `TimedPiece.ascends` states only whether the store times within one piece ascend. So ignore a step back from
        # one piece to the next.
        steps_back[first] = False
        stepped = np.add.reduceat(steps_back.astype(np.int64), first)
        stops = [*first[1:].tolist(), len(times)]
        for row, (begin, stop) in enumerate(zip(first.tolist(), stops, strict=True)):
            self._append(
                TimedPiece(
                    int(offsets[begin]), piece.record(stop - 1).stop, int(least[row]), int(most[row]),
                    int(offsets[stop - 1]), not stepped[row], is_whole or row > 0,
                ),
                int(times[begin]),
            )  # fmt: skip

    def _add_queues(self, batch: DispatchBatch) -> None:
        numbers, offsets = batch.messages["queue"], batch.messages["queue_offset"]
        is_dispatched = batch.messages["sys_flag"] & _UNDISPATCHED == 0
        first = np.full(len(batch.queues), _LATEST)
        last = np.full(len(batch.queues), -1)
        np.minimum.at(first, numbers[is_dispatched], offsets[is_dispatched])
        np.maximum.at(last, numbers[is_dispatched], offsets[is_dispatched])
        for number in np.unique(numbers).tolist():
            topic, queue_id = batch.queues[number]
            found = StatedOffsets(topic, queue_id)
            if last[number] >= 0:
                found = found._replace(first=int(first[number]), last=int(last[number]))
            before = self._queues.get((topic, queue_id))
            self._queues[topic, queue_id] = _together(before, found)

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
        queues = None
        if self._known.queues is not None and len(self._queues) <= _MOST_QUEUES:
            queues = tuple(self._queues.values())
        return KnownFile(self._known.start, stop, tuple(pieces), self._ids(), queues, every)

    def _ids(self) -> ReplacedIds | None:
        known = self._known.ids
        if known is None or not self._hashes:
            return known
        hashes = np.concatenate([np.frombuffer(known.hashes, np.int32), *self._hashes])
        offsets = np.concatenate([np.frombuffer(known.offsets, np.int64), *self._offsets])
        order = np.lexsort((offsets, hashes))
        return ReplacedIds(hashes[order].tobytes(), offsets[order].tobytes())


def _together(before: StatedOffsets | None, later: StatedOffsets) -> StatedOffsets:
    if before is None or before.first < 0:
        return later
    if later.first < 0:
        return before
    return later._replace(first=min(before.first, later.first), last=max(before.last, later.last))


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
