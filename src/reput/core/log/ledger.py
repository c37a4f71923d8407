"""Walk a DLedger log, in which a header precedes each record.

A walk's position is the beginning of a record, as in any log. The step to the next record is longer by a header. A walk
may begin at a record or at its header. So it may also begin where a file begins, or where the previous record ends.
"""

from __future__ import annotations

import os

from reput.core.log.files import CommitLogFile
from reput.format.dledger import LEDGER_HEADER_BYTES, is_end_mark, is_header
from reput.format.file_names import LEDGER_DATA_FOLDER, LEDGER_PREFIX
from reput.io import RangeReader

# Total length of the two fields (magic and size) with which the mark at the end of a DLedger file begins.
_END_BYTES = 8


def gap_of(path: str) -> int:
    """Return the size of the header before each record of a log file: 0 except for files in `dledger-<id>/data`."""
    folder = os.path.dirname(path)
    is_ledger = os.path.basename(os.path.dirname(folder)).startswith(LEDGER_PREFIX)
    return (
        LEDGER_HEADER_BYTES if is_ledger and os.path.basename(folder) == LEDGER_DATA_FOLDER else 0
    )


def after_header(reader: RangeReader, file: CommitLogFile, position: int) -> int:
    """Return the physical offset of a record. `position` is this offset, or the offset of its DLedger header.

    Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    at = position - file.start
    head = reader.read(at, max(min(file.gap, file.size - at), 0))
    if at == 0 or is_header(head, position) or is_end_mark(head, file.size - at):
        return position + file.gap
    return position


def is_ledger_end(reader: RangeReader, file: CommitLogFile, position: int) -> bool:
    """Return whether the records of a DLedger file have ended, so that no record begins at `position`.

    The header of such a record would lie directly before `position`. At the end, the file has its end mark in place of
    this header, or has too few bytes left for an end mark.

    Raises as `after_header` does.
    """
    at = position - file.gap - file.start
    left = file.size - at
    return left < _END_BYTES or is_end_mark(reader.read(at, _END_BYTES), left)
