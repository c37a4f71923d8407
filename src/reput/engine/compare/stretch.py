"""Derive the expected entries from the log, one stretch (about 32 MiB of one file) at a time.

Besides its own queue, a message may be in further queues, which its property INNER_MULTI_DISPATCH names. Light queues
(LMQ) are such further queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from reput.base import Finding
from reput.core import CommitLogFile, FileScan, LocatedRecord, OffsetRange, Queue, ScannedPiece
from reput.engine.compare.columns import Column, ExpectedEntries, Flags, in_ranges
from reput.format.commit_log import SYS_FLAG_PREPARED, locate

_STRETCH_BYTES = 32 << 20
_NONE: Column = np.empty(0, np.int64)
_NO_ENTRIES = ExpectedEntries(*5 * (_NONE,))


class LogStretch:
    """A range of consecutive messages, and the entries that they should have.

    start, stop: physical offsets
    offsets: physical offsets of the messages
    times: store timestamps of the messages, ms
    key_offsets, key_hashes: the expected items of IndexFiles, one per key
    damage: unreadable ranges since the end of the previous stretch
    taken: for each light queue (LMQ), physical offsets of half messages, which use up a queue offset but get no entry
    """

    def __init__(self, start: int, has_light: bool = False) -> None:
        self._has_light = has_light
        self.start = self.stop = start
        self.offsets = self.times = self.key_offsets = _NONE
        self.key_hashes: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self.queues: dict[Queue, ExpectedEntries] = {}
        self.damage: list[Finding] = []
        self.taken: dict[Queue, list[int]] = {}
        self._parts: list[tuple[Column, npt.NDArray[np.void], Column, npt.NDArray[np.int32]]] = []
        self._queue_parts: dict[Queue, list[tuple[Column, Column]]] = {}
        self._rows = 0

    def add(self, piece: ScannedPiece) -> None:
        batch = piece.batch
        offsets = piece.positions + piece.base
        messages = batch.messages.copy()
        self._parts.append((offsets, messages, offsets[batch.key_row], batch.key_hash.copy()))
        bounds, rows, queue_offset = batch.queue_entries()
        edges = bounds.tolist()
        for number in np.flatnonzero(np.diff(bounds)).tolist():
            part = slice(edges[number], edges[number + 1])
            self._queue_parts.setdefault(batch.queues[number], []).append(
                (rows[part] + self._rows, queue_offset[part].copy())
            )
        for queue, offset in _taken_offsets(piece) if self._has_light else ():
            self.taken.setdefault(queue, []).append(offset)
        self._rows += len(messages)
        self.stop = int(offsets[-1]) + int(messages["size"][-1])

    def close(self, stop: int) -> None:
        """Join the added pieces into arrays. The stretch ends at `stop`."""
        self.stop = stop
        if not self._parts:
            return
        offsets, messages, key_offsets, hashes = zip(*self._parts, strict=True)
        self.offsets, self.key_offsets = np.concatenate(offsets), np.concatenate(key_offsets)
        self.key_hashes = np.concatenate(hashes)
        joined = np.concatenate(messages)
        self.times = joined["store_timestamp"]
        sizes = joined["size"].astype(np.int64)
        for queue, parts in self._queue_parts.items():
            rows, numbers = (np.concatenate(columns) for columns in zip(*parts, strict=True))
            columns = (self.offsets, sizes, joined["tags_code"], self.times)
            self.queues[queue] = ExpectedEntries(numbers, *(column[rows] for column in columns))
        self._parts.clear()
        self._queue_parts.clear()

    def entries(self, queue: Queue) -> ExpectedEntries:
        return self.queues.get(queue, _NO_ENTRIES)

    def times_of(self, offsets: Column) -> Column:
        """Return the store timestamps of the messages at these offsets. A message must begin at each offset."""
        return self.times[np.searchsorted(self.offsets, offsets)]

    def in_damage(self, offsets: Column) -> Flags:
        """Return one flag per offset: whether it lies in unreadable bytes."""
        return in_ranges(offsets, OffsetRange.of(self.damage))


def stretches(
    scan: FileScan,
    file: CommitLogFile,
    log_end: int,
    *,
    ends_log: bool,
    has_light: bool,
    look: Callable[[ScannedPiece], None],
) -> Iterator[LogStretch]:
    """Yield the records of a file in stretches of about 32 MiB, each with the damage that lies in it.

    Args:
        scan: A new walk over the file.
        file: The log file.
        log_end: The physical offset at which the log ends.
        ends_log: Whether this is the last file with a record. If so, bytes after `log_end` are not reported as damage.
        has_light: Whether the store has light queues (LMQ). Only then is `LogStretch.taken` filled.
        look: Called with each piece (consecutive records) before the entries of its messages are derived.

    Raises StoreError.
    """
    stretch, count = LogStretch(file.start, has_light), 0
    for piece in scan.pieces():
        look(piece)
        stretch.add(piece)
        if stretch.stop - stretch.start >= _STRETCH_BYTES:
            stretch.damage = [lost for lost in scan.damage[count:] if lost.start < stretch.stop]
            count += len(stretch.damage)
            stretch.close(stretch.stop)
            yield stretch
            stretch = LogStretch(stretch.stop, has_light)
    stretch.damage = list(scan.damage[count:])
    if scan.end.unreadable:
        stretch.damage.append(file.lost(scan.end.position, file.end, scan.end.unreadable))
    # Bytes after the end of the log are unused space, or the remains of truncated messages: no damage.
    if ends_log:
        stretch.damage = [lost for lost in stretch.damage if lost.start < log_end]
    stretch.close(min(file.end, log_end))
    yield stretch


def _taken_offsets(piece: ScannedPiece) -> Iterator[tuple[Queue, int]]:
    """Yield (light queue, physical offset) for each half message, and each light queue (LMQ) that it names.

    The half message uses up a queue offset in the light queue, but gets no entry. The physical offset is that of the
    half message.
    """
    open_rows = np.flatnonzero(piece.batch.messages["sys_flag"] & SYS_FLAG_PREPARED)
    for row in open_rows.tolist():
        where = piece.record(row)
        begin = where.start - piece.base
        data = piece.data[begin : where.stop - piece.base].tobytes()
        record = LocatedRecord(where.start, data, locate(data, 0, len(data)))
        for topic, queue_id, _ in record.further_places():
            yield Queue(topic, queue_id), where.start
