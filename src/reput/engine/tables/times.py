"""Find the ranges of a CommitLog that may contain messages of a time window.

A scan of a file finds the least and the greatest store time of each part, even if the clock stepped back, and remembers
them (`reput.core.log.known_ranges`). In a local log, all files with unknown times are scanned, up to a limit that keeps
planning fast.

In a remote log, only files at the edges of the window are scanned, because each byte must be fetched. From other files,
only timestamps of first records are sampled. Timestamps increase along the log unless the broker's clock steps back.
Therefore a sampled file is skipped only if its first timestamp and the next file's first timestamp both lie before the
window, or both after it, by more than `CLOCK_STEP_MS`. If the next file's first timestamp is lower, the clock
stepped back within the sampled file. Then this file may contain messages of any time between these two
timestamps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from reput import core
from reput.base import no_progress, waiting
from reput.format.commit_log import MIN_RECORD_BYTES, RecordError, decode, read_size_and_magic
from reput.io import OpenFile, RangeReader

CLOCK_STEP_MS = 3_600_000

_SEARCHED_BYTES = 1 << 20
# Maximum bytes that one plan scans to find store times. When this limit is reached, the times of the local files
# that are not scanned yet stay unknown, and the tasks read these files completely.
_MOST_SCANNED_BYTES = 4 << 30
# Each sample takes a request to the remote store, so only a few files are sampled.
_SAMPLED_FILES = 16
_EVER = (1 << 63) - 1
_MAX_RECORD_BYTES = 64 << 20  # A longer record is not read just to find its time.


class TimedRange(NamedTuple):
    """Offsets [start, stop) of one file, and the first message's store time (ms); None if the time is unreadable."""

    file: core.CommitLogFile
    start: int
    stop: int
    first_ms: int | None


class StoredRange(NamedTuple):
    """Offsets [start, stop) of one file, and whether `start` is a boundary between records.

    `at_record` is also true if damage begins at `start`, right after a record.
    """

    file: core.CommitLogFile
    start: int
    stop: int
    at_record: bool = True


class StoredBetween(NamedTuple):
    """A window of store times in ms. Both bounds are inclusive."""

    low: int
    high: int

    @classmethod
    def of(cls, low_ms: int | None, high_ms: int | None) -> StoredBetween:
        """Return a window. A bound of None means that the window has no limit there."""
        return cls(-_EVER if low_ms is None else low_ms, _EVER if high_ms is None else high_ms)


def first_stored(source: core.LogListing, low_ms: int) -> int:
    """Return a physical offset, not after the first message that was stored at `low_ms` or later.

    Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    # Remote files have no reliable modification times, so read the times of their messages.
    if source.is_local:
        first = next(stored_within(source, source.files, low_ms, None), None)
        return source.files[-1].start if first is None else first.file.start
    timed = [
        part for file in source.files for part in timed_ranges(source.open_file, file, file.size)
    ]
    return within(timed, low_ms, None)[0].start


def stored_within(
    source: core.LogListing,
    files: Sequence[core.CommitLogFile],
    low_ms: int | None,
    high_ms: int | None,
) -> Iterator[StoredRange]:
    """Yield the ranges of a local log, in order, that contain all messages stored from low_ms to high_ms.

    Raises StoreAccessError, StoreChangedError.
    """
    window = StoredBetween.of(low_ms, high_ms)
    left_bytes = _MOST_SCANNED_BYTES
    with closing(core.CommitLogReader(core.ListedLog(source))) as log:
        known_ranges = core.KnownRanges(log)
        for file in files:
            if not known_ranges.is_known(file):
                left_bytes -= file.size
                if left_bytes < 0:
                    yield StoredRange(file, file.start, file.end)
                    continue
            yield from _stored(file, known_ranges.learn(file), window)


def _stored(
    file: core.CommitLogFile, facts: core.KnownFile, window: StoredBetween
) -> Iterator[StoredRange]:
    """Yield the ranges of a file that may contain messages of a window."""
    stop = file.start
    for piece in facts.pieces:
        if not piece.is_outside(*window):
            yield StoredRange(file, piece.start, piece.stop)
            stop = piece.stop
    # The log ended here when it was scanned. It may have grown since.
    if stop == facts.stop < file.end:
        yield StoredRange(file, facts.stop, file.end)


class Elsewhere(NamedTuple):
    """The ranges of a remote log that may contain messages of a time window.

    Attributes:
        ranges: These ranges, in order.
        scanned_bytes: Bytes of files that were scanned to find their store times.
        sampled_files: Number of files that were judged only by their first timestamps.
    """

    ranges: list[StoredRange]
    scanned_bytes: int
    sampled_files: int


def stored_elsewhere(
    source: core.LogListing,
    files: Sequence[core.CommitLogFile],
    low_ms: int | None,
    high_ms: int | None,
    step_bytes: int,
) -> Elsewhere:
    """Find the ranges of a remote log that may contain messages stored from low_ms to high_ms.

    Args:
        source: The log.
        files: Some of its files, in order.
        low_ms, high_ms: The window, both inclusive.
        step_bytes: Distance between samples in files that are not scanned.

    Raises:
        StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    window = StoredBetween.of(low_ms, high_ms)
    with closing(core.CommitLogReader(core.ListedLog(source))) as log:
        cache = core.KnownRanges(log)
        facts = {file: cache.learn(file) for file in files if cache.is_known(file)}
    timed = [_timed(source, file, facts.get(file)) for file in files]
    near = [item for item in within(timed, low_ms, high_ms) if item.file not in facts]
    to_scan, left_bytes = [], _MOST_SCANNED_BYTES
    for file in _at_the_edges(timed, {item.file for item in near}, window):
        left_bytes -= file.size
        if left_bytes >= 0:
            to_scan.append(file)
    learned = waiting(True).run(
        partial(_learn, source), to_scan, [file.size for file in to_scan], no_progress
    )
    facts |= dict(zip(to_scan, learned, strict=True))
    unknown = {item.file for item in near if item.file not in facts}
    if len(unknown) <= _SAMPLED_FILES:
        # Keep the files with known times in the list: their timestamps may show that the clock stepped back.
        timed = [
            part
            for item in timed
            for part in (
                timed_ranges(source.open_file, item.file, step_bytes)
                if item.file in unknown
                else [item]
            )
        ]
    rest = [item for item in within(timed, low_ms, high_ms) if item.file in unknown]
    ranges = [StoredRange(*item[:3], at_record=item.start == item.file.start) for item in rest]
    ranges += [
        part
        for file, facts_of_file in facts.items()
        for part in _stored(file, facts_of_file, window)
    ]
    return Elsewhere(sorted(ranges), sum(file.size for file in to_scan), len(files) - len(facts))


def _timed(
    source: core.LogListing, file: core.CommitLogFile, facts: core.KnownFile | None
) -> TimedRange:
    if facts is None:
        return next(iter(timed_ranges(source.open_file, file, file.size)))
    times = core.TimedPiece.joined(facts.pieces)
    return TimedRange(file, file.start, file.end, None if times is None else times.least)


def _learn(source: core.LogListing, file: core.CommitLogFile) -> core.KnownFile:
    """Scan a file with a separate reader, because readers are not thread-safe."""
    with closing(core.CommitLogReader(core.ListedLog(source))) as log:
        return core.KnownRanges(log).learn(file)


def _at_the_edges(
    timed: Sequence[TimedRange], near: set[core.CommitLogFile], window: StoredBetween
) -> list[core.CommitLogFile]:
    """Return the files in which an edge of the window may lie, the nearest to an edge first.

    Only these files are scanned for the store times of their parts, because only these files may have parts outside the
    window. The files between the edges must be read whole in any case.
    """
    distances: list[tuple[int, core.CommitLogFile]] = []
    for number, item in enumerate(timed):
        if item.file not in near or item.first_ms is None:
            continue
        next_ms = timed[number + 1].first_ms if number + 1 < len(timed) else None
        times = (item.first_ms,) if next_ms is None else (item.first_ms, next_ms)
        is_open = next_ms is None and window.high != _EVER
        inner = range(window.low + CLOCK_STEP_MS, window.high - CLOCK_STEP_MS + 1)
        if is_open or any(time not in inner for time in times):
            edges = [edge for edge in window if abs(edge) != _EVER]
            distance = min(abs(edge - time) for edge in edges for time in times)
            distances.append((distance, item.file))
    return [file for _, file in sorted(distances)]


def timed_ranges(
    open_file: OpenFile, file: core.CommitLogFile, step_bytes: int
) -> Iterator[TimedRange]:
    """Divide a file into ranges of about `step_bytes`, each with the store time of its first record.

    Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    with open_file(file.path) as reader:
        for start in range(file.start, file.end, step_bytes):
            stop = min(start + step_bytes, file.end)
            at: int | None = start
            if start > file.start:
                at = core.find_record(reader, file, start, min(start + _SEARCHED_BYTES, stop))
            first_ms = None if at is None else _store_timestamp(reader, file, at)
            yield TimedRange(file, start, stop, first_ms)


def within(
    ranges: Sequence[TimedRange], low_ms: int | None, high_ms: int | None
) -> list[TimedRange]:
    """Return the ranges, in order, that may contain messages stored from low_ms to high_ms."""
    stamps = [part.first_ms for part in ranges]
    readable = [stamp for stamp in stamps if stamp is not None]
    if not readable:
        return list(ranges)
    # Running maximum and minimum of the timestamps. Unreadable timestamps are ignored.
    highest = list(accumulate((min(readable) if s is None else s for s in stamps), max))
    lowest = list(accumulate((max(readable) if s is None else s for s in reversed(stamps)), min))[
        ::-1
    ]
    parts = []
    for number, part in enumerate(ranges):
        last = number + 1 == len(ranges)
        # After an unreadable first record, use the next readable timestamp.
        next_number = next(
            (n for n in range(number + 1, len(ranges)) if stamps[n] is not None), None
        )
        newest = None if last or next_number is None else highest[next_number]
        if low_ms is not None and newest is not None and newest < low_ms - CLOCK_STEP_MS:
            continue
        oldest = lowest[number] if stamps[number] is not None else None
        if high_ms is not None and oldest is not None and oldest > high_ms + CLOCK_STEP_MS:
            continue
        parts.append(part)
    return parts


def _store_timestamp(reader: RangeReader, file: core.CommitLogFile, at: int) -> int | None:
    rest = file.end - at
    if rest < MIN_RECORD_BYTES:
        return None
    size, _ = read_size_and_magic(reader.read(at - file.start, MIN_RECORD_BYTES), 0)
    if not MIN_RECORD_BYTES <= size <= min(rest, _MAX_RECORD_BYTES):
        return None
    try:
        return decode(reader.read(at - file.start, size)).store_timestamp
    except RecordError:
        return None
