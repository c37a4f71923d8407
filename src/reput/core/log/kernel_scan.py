"""Search a long range of the log for messages with given key hashes, or for inner batches.

The search runs in compiled functions (kernels). This module imports numba, so it is imported only for ranges that are
long enough.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reput.base import Finding, Kind
from reput.core.log.dispatch_batch import DispatchBatch
from reput.core.log.known_file import TimedPiece
from reput.core.log.reader import CommitLogReader
from reput.core.log.scan import FileScan
from reput.core.log.scan_mode import DEFAULT_RULES, DispatchRules, ScanMode
from reput.errors import StoreNotFoundError
from reput.format.commit_log import SYS_FLAG_INNER_BATCH


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
