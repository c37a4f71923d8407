"""Walk, with kernels, a CommitLog that another process may be writing, and find the first record of a range of it."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from reput.core import (
    CommitLogFile,
    FileScan,
    LogListing,
    ScanBuffers,
    ScanMode,
    end_for_reader,
    find_record,
    first_nonzero,
)
from reput.io import OpenFile, RangeReader

DEFAULT_SPLIT_BYTES = 64 << 20
"""Default size of the log range per task."""

_PAGE_BYTES = 64 << 10
_APPROACH_BYTES = 8 << 20
"""A walk begins this many bytes before a range. The first record that it finds may be fake, inside the body of a
message. No message is as long as this distance, so the walk leaves that message before it reaches the range."""


@dataclass(frozen=True, slots=True)
class Walked:
    """The extent of a walk: physical offset after the last complete record, and number of messages if counted."""

    end: int
    messages: int


def walk_on(
    source: LogListing,
    start: int,
    buffers: ScanBuffers,
    *,
    max_bytes: int | None = None,
    max_messages: int | None = None,
    in_last: ScanMode = ScanMode.GROWING_PLACES,
) -> Walked:
    """Walk to the end of the log, or up to a limit. A record must begin at `start`, or a file must end there.

    With a limit, the walk still takes at least one message if the log has one. `in_last` is the scan mode for the last
    file, which may still grow. Raises StoreError.
    """
    last = source.last_with_data()
    position, messages = start, 0
    for file in source.files:
        if last is None or file.start > last.start:
            # Later files were created in advance and are empty.
            break
        if file.end <= position:
            continue
        position = max(position, file.start)
        most = file.end if max_bytes is None else min(file.end, start + max_bytes)
        if file != last and max_messages is None:
            # The messages of this file need not be counted, so the file is skipped.
            position = file.end
            if most < file.end:
                return Walked(
                    first_record(source.open_file, file, most, file.end, buffers), messages
                )
            continue
        # The walk takes at least one message, even if `position` is already at the limit in bytes.
        position, walked = _walk_file(
            source.open_file, file, position, max(most, position + 1),
            in_last if file == last else ScanMode.PLACES, buffers,
            None if max_messages is None else max_messages - messages,
        )  # fmt: skip
        messages += walked
        if position < file.end or (max_messages is not None and messages >= max_messages):
            break
        if max_bytes is not None and position - start >= max_bytes:
            break
    return Walked(position, messages)


def _walk_file(
    open_file: OpenFile,
    file: CommitLogFile,
    start: int,
    stop: int,
    mode: ScanMode,
    buffers: ScanBuffers,
    max_messages: int | None,
) -> tuple[int, int]:
    scan = FileScan(
        file,
        start,
        stop,
        mode,
        buffers=buffers,
        open_file=open_file,
    )
    messages, newest = 0, None
    for piece in scan.pieces():
        count = len(piece.batch)
        if max_messages is not None:
            count = min(count, max_messages - messages)
        messages += count
        newest = piece.record(count - 1)
        if max_messages is not None and messages >= max_messages:
            return newest.stop, messages
    if not mode.is_growing:
        # Unreadable bytes are damage if a later file follows. They are skipped here; readers of the range report them.
        return scan.verdict().position, messages
    end = end_for_reader(scan.verdict(), newest, file, open_file)
    # The last record may be incomplete. Then it is not counted.
    return end, messages - (newest is not None and end < newest.stop)


def first_record(
    open_file: OpenFile, file: CommitLogFile, start: int, stop: int, buffers: ScanBuffers
) -> int:
    """Return the physical offset of the first record at or after `start`. Without one, return `stop` or a later offset.

    Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    if start <= file.start:
        return file.start
    with open_file(file.path) as reader:
        near = _record_before(reader, file, start, stop)
    if near is None:
        return stop
    for begin in (near, file.start):
        scan = FileScan(file, begin, start, ScanMode.PLACES, buffers=buffers, open_file=open_file)
        for _ in scan.batches():
            pass
        if not scan.damage and not scan.end.unreadable:
            break
    return scan.end.position if not scan.end.unreadable else stop


def _record_before(reader: RangeReader, file: CommitLogFile, start: int, stop: int) -> int | None:
    """Return the offset at which a walk to `start` begins; None if no record can begin in [start, stop).

    This is the offset of a verifiable record shortly before `start`, or else the beginning of the file.
    """
    if start - file.start <= _APPROACH_BYTES:
        return file.start
    approach = start - _APPROACH_BYTES
    near = find_record(reader, file, approach, start)
    if near is not None:
        return near
    nothing_here = CommitLogFile(file.start, stop - file.start, file.path)
    if first_nonzero(reader, nothing_here, approach) is None:
        # All bytes from `approach` to `stop` are zero, so no record begins there.
        return None
    return file.start


def find_log_end(source: LogListing, buffers: ScanBuffers) -> int:
    """Find the end of a log for readers, by a walk over the last records.

    The walk runs in compiled functions (`reput.kernels`). All callers have already loaded these functions, so the walk
    starts at once. Raises StoreError.
    """
    file = source.last_with_data()
    if file is None:
        return source.begin
    with source.open_file(file.path) as reader:
        # In most files the unwritten part is zeros. A binary search finds where they begin, and the walk starts well
        # before that.
        pages = bisect_left(
            range(file.size // _PAGE_BYTES),
            True,
            key=lambda page: not any(reader.read(page * _PAGE_BYTES, _PAGE_BYTES)),
        )
    near = file.start + max(pages * _PAGE_BYTES - _APPROACH_BYTES, 0)
    start = first_record(source.open_file, file, near, file.end, buffers)
    return walk_on(source, start, buffers).end


def first_record_of(source: LogListing, position: int, buffers: ScanBuffers) -> int:
    """Return the physical offset of the first record from a position on, or else the log's end. Raises StoreError."""
    end = find_log_end(source, buffers)
    for file in source.files:
        if file.start <= position < min(file.end, end):
            record_start = first_record(source.open_file, file, position, file.end, buffers)
            return min(record_start, end)
        if file.start > position:
            return min(file.start, end)
    return end


def not_whole(end: int) -> str:
    """Return a note for users: bytes follow the end of the log. This is normal only while a log is being written."""
    return f"the log ends at offset {end:,}; the bytes after it are not a valid record and are not read"
