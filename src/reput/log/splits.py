"""Ranges of a CommitLog file that can be read apart: where a file is cut, and which record is the first of a range.

A file begins with a record; within it, where a walk from its beginning would meet a record is known only to that
walk. A walk that begins at any record before, however, soon meets the same ones: so the first record of a range is
found by walking up to it from one that proves itself some megabytes before. Where such a walk meets damage, it was
no record, but one forged in a body perhaps, or there is damage indeed; then the walk begins with the file. Whoever
joins all splits of a log afterwards can take a guess instead, and scan again where it was wrong.
"""

from __future__ import annotations

from itertools import pairwise

from reput.files.reader import OpenFile, RangeReader
from reput.log.files import CommitLogFile
from reput.log.offset_range import OffsetRange
from reput.log.record_search import find_record, first_nonzero
from reput.log.scan import FileScan, ScanBuffers
from reput.log.scan_mode import PLACES

DEFAULT_SPLIT_BYTES = 64 << 20
"""Of the log, for one task."""

_APPROACH_BYTES = 8 << 20
"""More than a message may have, so that a record forged in a body does not reach the range."""


def cut(
    file: CommitLogFile, start: int, stop: int, split_bytes: int, data_end: int | None = None
) -> list[OffsetRange]:
    """Physical offsets [start, stop) of a file in splits, at the same places of the file whatever `start` is.

    split_bytes  of each, but for the first and the last; at least 1
    data_end     nothing is cut after it
    """
    first = start + split_bytes - (start - file.start) % split_bytes
    last = stop if data_end is None else min(data_end, stop)
    begins = [start, *range(first, last, split_bytes)]
    return [OffsetRange(*edges) for edges in pairwise([*begins, stop])]


def guess_record(open_file: OpenFile, file: CommitLogFile, start: int, stop: int) -> int | None:
    """Physical offset of the first verifiable record in [start, stop), None where there is none.

    It may be forged in a body: whether a walk from before would meet it is for the caller to find out.

    Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    with open_file(file.path) as reader:
        return find_record(reader, file, start, stop)


def first_record(
    open_file: OpenFile, file: CommitLogFile, start: int, stop: int, buffers: ScanBuffers
) -> int:
    """Physical offset of the first record at or behind `start`; `stop` or more where none begins before.

    Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    if start <= file.start:
        return file.start
    with open_file(file.path) as reader:
        near = _record_before(reader, file, start, stop)
    if near is None:
        return stop
    for begin in (near, file.start):
        scan = FileScan(file, begin, start, PLACES, buffers=buffers, open_file=open_file)
        for _ in scan.batches():
            pass
        if not scan.damage and not scan.end.unreadable:
            break
    return scan.end.position if not scan.end.unreadable else stop


def _record_before(reader: RangeReader, file: CommitLogFile, start: int, stop: int) -> int | None:
    """Where to begin to walk; None where no record can begin in the range."""
    if start - file.start <= _APPROACH_BYTES:
        return file.start
    approach = start - _APPROACH_BYTES
    near = find_record(reader, file, approach, start)
    if near is not None:
        return near
    nothing_here = CommitLogFile(file.start, stop - file.start, file.path)
    if first_nonzero(reader, nothing_here, approach) is None:
        return None
    return file.start
