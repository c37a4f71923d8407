"""Find the next record without a walk: search for its magic, then verify the record.

A record is verifiable if it states its physical offset, lengths that add up, and the CRC of its body
(`reput.format.commit_log.is_proven`). Bytes of a message's body can imitate a record and meet all these conditions. So
a split (a range for one task) that begins at a record found here is valid only if the walk over the previous split ends
at this record.
"""

from __future__ import annotations

from reput.core.log.files import CommitLogFile
from reput.format.commit_log import (
    MAGIC_POSITION,
    MIN_RECORD_BYTES,
    RecordError,
    crc_matches,
    is_proven,
    locate,
    read_size_and_physical_offset,
)
from reput.io import RangeReader, data_runs

# The first three bytes of both magics, V1 and V2.
_MAGIC_PREFIX = b"\xda\xa3\x20"
# Most searches end soon, so reads begin small and grow.
_FIRST_READ_BYTES = 64 << 10
_MAX_READ_BYTES = 4 << 20
_ZEROS = bytes(1 << 20)


def find_record(reader: RangeReader, file: CommitLogFile, start: int, stop: int) -> int | None:
    """Return the physical offset of the first verifiable record in [start, stop); None if no such record exists."""
    length = _FIRST_READ_BYTES
    for data_begin, data_end in data_runs(reader, start - file.start, file.size):
        # A hole is a range of zeros in a sparse file. If a magic directly follows a hole, its record begins in the
        # hole. So the search begins MAGIC_POSITION bytes before the data. A magic itself cannot lie in a hole, because
        # its bytes are not zero.
        position = max(start, file.start + data_begin - MAGIC_POSITION)
        end = file.start + data_end
        while position < min(stop, end):
            window = reader.read(position - file.start, min(length, end - position))
            # Skip windows of zeros. Comparing a window that fits into the processor's cache with zeros is ten times as
            # fast as searching the window for a magic.
            if window != _ZEROS:
                found = _search(reader, file, position, window, stop)
                if found is not None:
                    return found
                length = min(2 * length, _MAX_READ_BYTES)
            if position + len(window) == end:
                break
            # Windows overlap, so that a magic at their edge is found.
            position += max(len(window) - MAGIC_POSITION - len(_MAGIC_PREFIX), 1)
    return None


def _search(
    reader: RangeReader, file: CommitLogFile, base: int, window: bytes, stop: int
) -> int | None:
    at = window.find(_MAGIC_PREFIX, MAGIC_POSITION)
    while at >= 0:
        candidate = base + at - MAGIC_POSITION
        if candidate >= stop:
            return None
        if _is_record_at(reader, file, candidate):
            return candidate
        at = window.find(_MAGIC_PREFIX, at + 1)
    return None


def _is_record_at(reader: RangeReader, file: CommitLogFile, physical_offset: int) -> bool:
    """Return whether a complete record with the right CRC lies at this offset and states this offset."""
    remaining = file.end - physical_offset
    if remaining < MIN_RECORD_BYTES:
        return False
    position = physical_offset - file.start
    total, stated_offset = read_size_and_physical_offset(reader.read(position, MIN_RECORD_BYTES), 0)
    if stated_offset != physical_offset or not MIN_RECORD_BYTES <= total <= remaining:
        return False
    return is_proven(reader.read(position, total), 0, total, physical_offset)


def is_copied_whole(record: bytes) -> bool:
    """Return whether a record was copied to its end: its CRC is right, and its properties do not end with a zero."""
    try:
        layout = locate(record, 0, len(record))
    except RecordError:
        return False
    return crc_matches(record, layout) and (not layout.properties_bytes or record[-1] != 0)


def first_nonzero(reader: RangeReader, file: CommitLogFile, start: int) -> int | None:
    """Return the physical offset of the first nonzero byte in [start, file.end); None if all bytes are zero."""
    for data_begin, data_end in data_runs(reader, start - file.start, file.size):
        position = data_begin
        while position < data_end:
            window = reader.read(position, min(len(_ZEROS), data_end - position))
            if window != _ZEROS and (data := window.lstrip(b"\0")):
                return file.start + position + len(window) - len(data)
            position += len(window)
    return None
