"""Where a CommitLog ends that another process may be writing."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from reput.files.reader import OpenFile
from reput.format.commit_log import BLANK_BYTES
from reput.log.files import CommitLogFile
from reput.log.scan import FileScan, ScanBuffers
from reput.log.scan_mode import GROWING_PLACES, PLACES, ScanMode
from reput.log.sources import LogListing
from reput.log.splits import first_record
from reput.log.verdict import end_for_reader

_FILE_TAIL_BYTES = 8 << 20
_PAGE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Walked:
    """How far a walk came: physical offset behind the last whole record; messages, if they had to be counted."""

    end: int
    messages: int


def find_log_end(source: LogListing, buffers: ScanBuffers) -> int:
    """Physical offset behind the last whole record of the log. Raises StoreError."""
    file = source.last_with_data()
    if file is None:
        return source.begin
    with source.open_file(file.path) as reader:
        # Of most files what is not written yet is zeros: look for where they begin, and walk from well before.
        pages = bisect_left(
            range(file.size // _PAGE_BYTES),
            True,
            key=lambda page: not any(reader.read(page * _PAGE_BYTES, _PAGE_BYTES)),
        )
    near = file.start + max(pages * _PAGE_BYTES - _FILE_TAIL_BYTES, 0)
    start = first_record(source.open_file, file, near, file.end, buffers)
    return walk_on(source, start, buffers).end


def not_whole(end: int) -> str:
    """What a report says of a log with bytes after its end, which only a log in use should have."""
    return f"the log ends at offset {end:,}; the bytes after it are not a valid record and are left out"


def is_at_end(source: LogListing, position: int) -> bool:
    """Whether nothing was written yet at this physical offset; for the price of one small read. Raises StoreError."""
    for file in source.files:
        if file.start <= position < file.end:
            with source.open_file(file.path) as reader:
                head = reader.read(position - file.start, min(BLANK_BYTES, file.end - position))
            return not any(head)
    return not source.files or position >= source.files[-1].end


def first_record_of(source: LogListing, position: int, buffers: ScanBuffers) -> int:
    """Physical offset of the first record at or behind a position, or of the end of the log. Raises StoreError."""
    end = find_log_end(source, buffers)
    for file in source.files:
        if file.start <= position < min(file.end, end):
            found = first_record(source.open_file, file, position, file.end, buffers)
            return min(found, end)
        if file.start > position:
            return min(file.start, end)
    return end


def walk_on(
    source: LogListing,
    start: int,
    buffers: ScanBuffers,
    *,
    max_bytes: int | None = None,
    max_messages: int | None = None,
    in_last: ScanMode = GROWING_PLACES,
) -> Walked:
    """From a record's begin or a file's end to the end of the log, or until a limit is reached; at least one
    message is taken where there is one; `in_last` is how the last file is walked. Raises StoreError.
    """
    last = source.last_with_data()
    position, messages = start, 0
    for file in source.files:
        if last is None or file.start > last.start:
            break
        if file.end <= position:
            continue
        position = max(position, file.start)
        most = file.end if max_bytes is None else min(file.end, start + max_bytes)
        if file != last and max_messages is None:
            # Its messages need not be counted.
            position = file.end
            if most < file.end:
                return Walked(
                    first_record(source.open_file, file, most, file.end, buffers), messages
                )
            continue
        position, found = _walk_file(
            source.open_file, file, position, max(most, position + 1),
            in_last if file == last else PLACES, buffers,
            None if max_messages is None else max_messages - messages,
        )  # fmt: skip
        messages += found
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
        # What cannot be read before a later file is damage: it is passed over, and reported to whoever reads it.
        return scan.verdict().position, messages
    end = end_for_reader(scan.verdict(), newest, file, open_file)
    return end, messages - (newest is not None and end < newest.stop)
