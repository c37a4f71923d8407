"""Walk, with kernels, a CommitLog that another process may be writing."""

from __future__ import annotations

from dataclasses import dataclass

from reput.core.log.files import CommitLogFile
from reput.core.log.scan import FileScan, ScanBuffers
from reput.core.log.scan_mode import ScanMode
from reput.core.log.sources import LogListing
from reput.core.log.splits import first_record
from reput.core.log.verdict import end_for_reader
from reput.io import OpenFile


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
