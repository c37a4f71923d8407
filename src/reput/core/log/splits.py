"""Cut a CommitLog file into ranges that can be read separately, and find the first record of each range.

A file begins with a record. Inside the file, only a walk from its beginning shows where records begin. However, walks
from different starts soon reach the same records. So the first record of a range is found by a walk from a verifiable
record some megabytes before the range. If this walk meets damage, it may have begun at bytes of a message's body that
imitate a record, so the walk is repeated from the file's beginning. A caller that later joins all splits of a log can
instead guess the first record, and scan again where the guess was wrong.
"""

from __future__ import annotations

from reput.core.log.files import CommitLogFile
from reput.core.log.record_search import find_record, first_nonzero
from reput.core.log.scan import FileScan, ScanBuffers
from reput.core.log.scan_mode import ScanMode
from reput.io import OpenFile, RangeReader

DEFAULT_SPLIT_BYTES = 64 << 20
"""Default size of the log range per task."""

_APPROACH_BYTES = 8 << 20
"""A walk begins this many bytes before a range. The first record that it finds may be fake, inside the body of a
message. No message is as long as this distance, so the walk leaves that message before it reaches the range."""


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
