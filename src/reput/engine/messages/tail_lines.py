"""Convert all messages of a log to JSON lines. In a long log, compiled functions convert most of the messages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from reput import core
from reput.core import CommitLogFile, CommitLogReader, ScanMode
from reput.engine.messages.codec import RecordLines
from reput.engine.messages.tail import LogTail
from reput.errors import StoreNotFoundError

_TOGETHER = 4096
_FEW = 10_000
"""Number of lines that Python writes before the kernels (compiled functions) are loaded.

Loading the kernels takes as long as writing these lines.
"""


class SomeLines(NamedTuple):
    """Some lines with their line ends, and the number of messages.

    They are valid until the next lines are requested.
    """

    messages: int
    data: bytes | memoryview


def lines_of_all(tail: LogTail, log: CommitLogReader) -> Iterator[SomeLines]:
    """Yield the lines of `tail.new_records(to_the_end=True)`. `tail.position` and `tail.damage` are updated.

    Args:
        tail: The reader of the records. It must have no filter.
        log: The log of the same store.

    Raises StoreAccessError, StoreChangedError.
    """
    lines = RecordLines()
    few, count = _FEW, 0
    records = tail.new_records(to_the_end=True)
    while some := list(islice(records, _TOGETHER)):
        yield SomeLines(len(some), b"".join(lines.of(some)))
        count += len(some)
        if few and count > few:
            few = 0
            records.close()
            tail.position = some[-1].physical_offset + some[-1].layout.total_bytes
            # The records after this position were read, but not yielded. They are read again below, so drop their
            # damage: it must not be reported twice.
            tail.damage = [lost for lost in tail.damage if lost.start < tail.position]
            for file in log.files:
                if file.start <= tail.position < file.end and not file.gap:
                    yield from _plain_lines(tail, log, file)
            records = tail.new_records(to_the_end=True)


def _plain_lines(tail: LogTail, log: CommitLogReader, file: CommitLogFile) -> Iterator[SomeLines]:
    """Yield lines of one file, from the tail's position to its end or to unreadable bytes. Update the position."""
    from reput.engine.messages.message_lines import log_lines

    scan = core.FileScan(
        file, tail.position, file.end, ScanMode.READER_UP_TO_DAMAGE, open_file=log.source.open
    )
    try:
        for piece in scan.pieces():
            if scan.damage:
                return
            count = len(piece.batch)
            last = piece.record(count - 1)
            places = piece.positions, piece.positions + piece.base
            for lines in log_lines(piece.data, *places, on_wrong_crc=tail.report_wrong_crc):
                yield SomeLines(count, lines)
                count = 0
            tail.position = last.stop
    # The file has expired since the files were listed.
    except StoreNotFoundError:
        return
    if not scan.damage and not scan.end.unreadable:
        tail.position = scan.end.position
