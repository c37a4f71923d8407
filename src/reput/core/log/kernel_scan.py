"""Search a long range of the log for messages with given key hashes, for inner batches, or for wrong CRCs.

The search runs in compiled functions (kernels). This module imports numba, so it is imported only for ranges that are
long enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from reput.base import Finding, Kind
from reput.core.log.dispatch_batch import DispatchBatch
from reput.core.log.files import CommitLogFile
from reput.core.log.known_file import TimedPiece
from reput.core.log.reader import CommitLogReader
from reput.core.log.scan import FileScan
from reput.core.log.verdict import (
    DEFAULT_RULES,
    DispatchRules,
    FileEnd,
    ScanMode,
    WalkVerdict,
    end_of_file,
)
from reput.errors import StoreNotFoundError
from reput.format.commit_log import SYS_FLAG_INNER_BATCH, has_right_record_crc
from reput.io import FileReader, OpenFile, RangeReader
from reput.kernels.checksum import find_wrong_bodies

# Bytes whose CRCs are compared at a time: they stay in the processor's cache.
_PIECE_BYTES = 1 << 20
_FindWrong = Callable[
    [npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.void]], npt.NDArray[np.int64]
]


def scan_with_kernel(
    log: CommitLogReader, start: int, stop: int, hashes: Iterable[int], *, by_tags: bool = False
) -> tuple[list[int], list[Finding], int, TimedPiece | None]:
    """Scan a range within one file for messages with one of these key hashes, or also of hashes of tags.

    Returns the messages' physical offsets, newest first; the damage; the physical offset after the last byte read; and
    the times of all records, or None if they were not examined. If the offset after the last byte read is less than
    `stop`, no record begins between the two offsets.

    Raises StoreAccessError, StoreChangedError.
    """
    file = log.file_at(start)
    # The file has expired meanwhile.
    if file is None:
        return [], [], stop, None
    wanted = np.array(sorted(hashes), np.int32)
    rules = DispatchRules(tags_from=0) if by_tags else DEFAULT_RULES
    scan = FileScan(file, start, stop, ScanMode.READER, rules, open_file=log.source.open)
    offsets: list[int] = []
    pieces: list[TimedPiece] = []
    try:
        for batch in scan.batches():
            pieces += _times(batch)
            rows = batch.key_row[np.isin(batch.key_hash, wanted)]
            offsets += np.unique(batch.messages["physical_offset"][rows]).tolist()
    except StoreNotFoundError:
        # The file expired while it was scanned.
        return [], [], stop, None
    position, damage = scan.end.position, scan.damage
    if scan.end.unreadable:
        while (
            damage and damage[-1].stop == position and damage[-1].kind is not Kind.MISPLACED_RECORD
        ):
            # Do not report damage at the end: the caller decides whether it is damage or the log's torn end.
            position = damage.pop().start
    return offsets[::-1], damage, position, TimedPiece.joined(pieces)


def _times(batch: DispatchBatch) -> list[TimedPiece]:
    """Return a list of one TimedPiece with the store times of a batch, or an empty list if the batch is empty."""
    stored, offsets = batch.messages["store_timestamp"], batch.messages["physical_offset"]
    if not len(stored):
        return []
    last, end = int(offsets[-1]), int(offsets[-1] + batch.messages["size"][-1])
    return [TimedPiece(int(offsets[0]), end, int(stored.min()), int(stored.max()), last)]


def find_inner_batches(
    log: CommitLogReader, start: int, stop: int
) -> tuple[list[tuple[int, int]], list[Finding]]:
    """Return offset and size of the inner batches in a range of one file, oldest first, and the damage in it.

    Raises StoreAccessError, StoreChangedError.
    """
    file = log.file_at(start)
    # The file has expired meanwhile.
    if file is None:
        return [], []
    scan = FileScan(file, start, stop, ScanMode.READER_PLACES, open_file=log.source.open)
    found: list[tuple[int, int]] = []
    try:
        for piece in scan.pieces():
            is_batch = piece.batch.messages["sys_flag"] & SYS_FLAG_INNER_BATCH != 0
            offsets = (piece.base + piece.positions[is_batch]).tolist()
            sizes = piece.batch.messages["size"][is_batch].tolist()
            found += zip(offsets, sizes, strict=True)
    except StoreNotFoundError:
        # The file expired while it was scanned.
        return [], []
    return found, scan.damage


def end_within(
    file: CommitLogFile,
    start: int,
    open_file: OpenFile = FileReader,
    *,
    whole_records: bool = False,
) -> FileEnd:
    """Walk from `start` on, and return the offset of the first record that is unreadable or has a wrong CRC.

    For `whole_records` see `recovered_end`. Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    find_wrong = _wrong_records if whole_records else wrong_bodies
    scan = FileScan(file, start, file.end, ScanMode.UP_TO_DAMAGE, open_file=open_file)
    position = start
    with open_file(file.path) as reader:
        if file.gap:
            position = file.after_header(reader, start)
        for batch in scan.batches():
            # Records are adjacent until the first damage, so add up their sizes. The physical offsets that the records
            # state may be wrong.
            sizes = batch.messages["size"] + file.gap
            ends = position + np.cumsum(sizes, dtype=np.int64)
            stop = WalkVerdict(file.end, scan.damage).end_for_broker()
            sound = int(np.searchsorted(ends - sizes, stop))
            edges = np.concatenate([[position], ends[:sound]]) - file.start
            bad = _first_bad_crc(reader, edges, batch.messages, find_wrong)
            if bad is not None:
                return FileEnd(file.start + bad, False)
            if scan.damage:
                return FileEnd(stop, False)
            position = int(ends[-1])
    return end_of_file(scan.verdict(), file)


def _first_bad_crc(
    reader: RangeReader,
    edges: npt.NDArray[np.int64],
    messages: npt.NDArray[np.void],
    find_wrong: _FindWrong,
) -> int | None:
    """Return the position of the first record with a wrong CRC.

    `edges` are the beginnings of all records, and the end of the last one.
    """
    first, last = 0, len(edges) - 1
    buffer = np.empty(0, np.uint8)
    while first < last:
        # Check one piece at a time, so that its bytes stay in the processor's cache.
        stop = int(np.searchsorted(edges, edges[first] + _PIECE_BYTES))
        stop = min(max(stop, first + 1), last)
        length = int(edges[stop] - edges[first])
        if length > len(buffer):
            buffer = np.empty(max(length, 2 * _PIECE_BYTES), np.uint8)
        piece = buffer[:length]
        reader.read_into(piece, int(edges[first]))
        bad = find_wrong(piece, edges[first:stop] - edges[first], messages[first:stop])
        if len(bad):
            return int(edges[first + bad[0]])
        first = stop
    return None


def wrong_bodies(
    data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64], messages: npt.NDArray[np.void]
) -> npt.NDArray[np.int64]:
    """Return the rows of records whose body does not match its CRC. `data` contains these records completely."""
    wrong = np.empty(len(positions), np.int64)
    return wrong[: find_wrong_bodies(data, positions, messages["sys_flag"], wrong)]


def _wrong_records(
    data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64], messages: npt.NDArray[np.void]
) -> npt.NDArray[np.int64]:
    """Return the rows of records whose CRC of the whole record is missing or wrong."""
    ends = positions + messages["size"]
    spans = enumerate(zip(positions.tolist(), ends.tolist(), strict=True))
    wrong = [row for row, (begin, end) in spans if not has_right_record_crc(data.data[begin:end])]
    return np.array(wrong, np.int64)
