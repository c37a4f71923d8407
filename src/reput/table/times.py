"""Which ranges of a CommitLog can hold messages of a time.

Of a log on this machine it is known when the messages of each range were stored (`reput.log.known_ranges`), whatever
the clock did; what is not known yet is found out, but for what would take a plan too long.

Of any other log first timestamps are sampled. They grow along the log but for steps back of the broker's clock. So a
range is left out only where its first timestamp and that of the following range miss the time by more than
`CLOCK_STEP_MS`; where the first timestamps themselves step back, a range may hold any between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import accumulate
from typing import NamedTuple

from reput.files.reader import OpenFile, RangeReader
from reput.format.commit_log import MIN_RECORD_BYTES, RecordError, decode, read_size_and_magic
from reput.log.files import CommitLogFile
from reput.log.known_ranges import KnownRanges
from reput.log.reader import CommitLogReader
from reput.log.record_search import find_record
from reput.log.sources import ListedLog, LogListing

CLOCK_STEP_MS = 3_600_000

_SEARCHED_BYTES = 1 << 20
_MOST_SCANNED_BYTES = 4 << 30  # for one plan: what is not known beyond is read whole by tasks
_EVER = (1 << 63) - 1
_MAX_RECORD_BYTES = 64 << 20  # one that claims more is not read to learn its time


class TimedRange(NamedTuple):
    """Physical offsets [start, stop) of one file; when its first message was stored, None where none can be read."""

    file: CommitLogFile
    start: int
    stop: int
    first_ms: int | None


class StoredRange(NamedTuple):
    """Physical offsets [start, stop) of one file."""

    file: CommitLogFile
    start: int
    stop: int


def stored_within(
    source: LogListing,
    files: Sequence[CommitLogFile],
    low_ms: int | None,
    high_ms: int | None,
) -> Iterator[StoredRange]:
    """Ranges of files of a log on this machine, in order, that hold all messages stored from low_ms to high_ms.

    Raises StoreAccessError, StoreChangedError.
    """
    low, high = -_EVER if low_ms is None else low_ms, _EVER if high_ms is None else high_ms
    left_bytes = _MOST_SCANNED_BYTES
    with closing(CommitLogReader(ListedLog(source))) as log:
        known_ranges = KnownRanges(log)
        for file in files:
            if not known_ranges.is_known(file):
                left_bytes -= file.size
                if left_bytes < 0:
                    yield StoredRange(file, file.start, file.end)
                    continue
            known = known_ranges.learn(file)
            stop = file.start
            for piece in known.pieces:
                if not piece.is_outside(low, high):
                    yield StoredRange(file, piece.start, piece.stop)
                    stop = piece.stop
            if stop == known.stop < file.end:  # the end of the log, with what it may be torn by
                yield StoredRange(file, known.stop, file.end)


def timed_ranges(open_file: OpenFile, file: CommitLogFile, step_bytes: int) -> Iterator[TimedRange]:
    """A file in ranges of about so many bytes. Raises StoreNotFoundError, StoreAccessError, StoreChangedError."""
    with open_file(file.path) as reader:
        for start in range(file.start, file.end, step_bytes):
            stop = min(start + step_bytes, file.end)
            at: int | None = start
            if start > file.start:
                at = find_record(reader, file, start, min(start + _SEARCHED_BYTES, stop))
            first_ms = None if at is None else _store_timestamp(reader, file, at)
            yield TimedRange(file, start, stop, first_ms)


def within(
    ranges: Sequence[TimedRange], low_ms: int | None, high_ms: int | None
) -> list[TimedRange]:
    """Those of a log's ranges, in order, that can hold messages stored from low_ms to high_ms."""
    stamps = [part.first_ms for part in ranges]
    known = [stamp for stamp in stamps if stamp is not None]
    if not known:
        return list(ranges)
    # What cannot be read tells nothing: its neighbours do.
    highest = list(accumulate((min(known) if s is None else s for s in stamps), max))
    lowest = list(accumulate((max(known) if s is None else s for s in reversed(stamps)), min))[::-1]
    kept = []
    for number, part in enumerate(ranges):
        last = number + 1 == len(ranges)
        # Unreadable first records hide how far the time went on: look behind them.
        following = next((n for n in range(number + 1, len(ranges)) if stamps[n] is not None), None)
        newest = None if last or following is None else highest[following]
        if low_ms is not None and newest is not None and newest < low_ms - CLOCK_STEP_MS:
            continue
        oldest = lowest[number] if stamps[number] is not None else None
        if high_ms is not None and oldest is not None and oldest > high_ms + CLOCK_STEP_MS:
            continue
        kept.append(part)
    return kept


def _store_timestamp(reader: RangeReader, file: CommitLogFile, at: int) -> int | None:
    left = file.end - at
    if left < MIN_RECORD_BYTES:
        return None
    size, _ = read_size_and_magic(reader.read(at - file.start, MIN_RECORD_BYTES), 0)
    if not MIN_RECORD_BYTES <= size <= min(left, _MAX_RECORD_BYTES):
        return None
    try:
        return decode(reader.read(at - file.start, size)).store_timestamp
    except RecordError:
        return None
