"""Ranges of a CommitLog file that can be read apart: which record is the first of a range.

A file begins with a record; within it, where a walk from its beginning would meet a record is known only to that
walk. A walk that begins at any record before, however, soon meets the same ones: so the first record of a range is
found by walking up to it from one that proves itself some megabytes before. Where such a walk meets damage, it was
no record, but one forged in a body perhaps, or there is damage indeed; then the walk begins with the file.
"""

from __future__ import annotations

from reput.config import StoreConfig
from reput.files.reader import RangeReader
from reput.store.commit_log_files import CommitLogFile
from reput.store.record_search import find_record, first_nonzero
from reput.store.scan import FileScan, ScanBuffers
from reput.table.file_systems import OpenFile

_APPROACH_BYTES = 8 << 20
"""More than a message may have, so that a record forged in a body does not reach the range."""


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
        scan = FileScan(
            file,
            begin,
            start,
            StoreConfig(),
            salvage=True,
            places_only=True,
            buffers=buffers,
            open_file=open_file,
        )
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
