"""Cut the log into segments: some are covered by a key index, the others must be scanned.

The message at the border of two IndexFiles may have keys in both files, so neither file covers it. It is a tiny segment
to scan. There can be many such segments, so their records are cached as long as their log file is unchanged. The range
after the last index entry is read for every query, because a broker may be writing there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from reput.base import Finding
from reput.core.index.key_index import IndexPart, KeyIndex, NamedKey, TimeWindow
from reput.core.index.search import without_keys
from reput.core.log.files import CommitLogFile, lost_end
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.core.log.record import KeyedRecord
from reput.core.log.walk import LogWalk, lost_before, newest_timestamp
from reput.errors import CorruptMessageError, MessageNotFoundError
from reput.format.checkpoint import Checkpoint
from reput.io import Stamp

# `LogWalk` reads this many bytes at once. Records after the last index entry are cached only if they fit in one read.
_MOST_BYTES = 4 << 10

# A range of the log between the ranges of two IndexFiles must be scanned. Its records are cached if the range has at
# most this many bytes. A longer range is scanned for every query.
_KEPT_BYTES = 64 << 10
# To find the last dispatched message, at most this many bytes of the log after the last indexed message are read.
_TAIL_BYTES = 1 << 20


class ScannedTail(NamedTuple):
    """Records from `start` to the end of the log.

    records   newest first
    position  physical offset of the end of the log
    """

    start: int
    records: tuple[KeyedRecord, ...]
    damage: tuple[Finding, ...]
    position: int


class ShortTail:
    """The records at the end of the log. Each call of `read` reads the bytes, but parses them only after a change."""

    def __init__(
        self, log: CommitLogReader, without_keys: Callable[[int, int], list[Finding]]
    ) -> None:
        self._log, self._without_keys = log, without_keys
        self._window = b""
        self._tail: ScannedTail | None = None

    def read(self, start: int) -> ScannedTail | None:
        """Return all records from `start` to the end of the log; None if one read cannot return them all.

        `start` must be the beginning of a record, or the end of the log.

        Raises StoreAccessError, StoreChangedError.
        """
        if self._tail is None or self._tail.start != start or self._has_changed(start):
            self._tail = None
            walk = LogWalk(self._log, start, start + _MOST_BYTES)
            records = tuple(record.keyed() for record in walk)
            window = walk.whole_window()
            if window is not None:
                self._window = window
                damage = (*walk.damage, *self._without_keys(start, walk.position))
                self._tail = ScannedTail(start, records[::-1], damage, walk.position)
        return self._tail

    def _has_changed(self, start: int) -> bool:
        file = self._log.file_at(start)
        return file is None or self._log.read(file, start, len(self._window)) != self._window


@dataclass(frozen=True, slots=True)
class Segment:
    """Messages that begin at physical offsets [start, stop).

    part     the part of the index that covers them, or None if they must be scanned
    records  records of a segment that was already scanned, newest first
    damage   damage found in that scan, and records that have lost a key, according to the index
    """

    start: int
    stop: int
    part: IndexPart | None = None
    records: tuple[KeyedRecord, ...] | None = None
    damage: tuple[Finding, ...] = ()

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(self.start, self.stop)


class ComparedRecords(NamedTuple):
    """Records that were compared with the entries that lead to them, and a finding for each that has lost a key.

    records  physical offset and bytes of each record; no bytes if it could not be read
    """

    records: list[tuple[int, bytes]]
    damage: list[Finding]


class Planner:
    """Plans the segments of a store that may be growing, and keeps the plan while it is valid."""

    def __init__(self, log: CommitLogReader, index: KeyIndex, checkpoint: Checkpoint) -> None:
        self._log, self._index, self._checkpoint = log, index, checkpoint
        self._kept: dict[tuple[int, int], Segment] = {}
        self._kept_at: dict[CommitLogFile, Stamp | None] = {}
        self._log_files: tuple[CommitLogFile, ...] = ()
        self._parts: tuple[IndexPart, ...] = ()
        self._segments: tuple[Segment, ...] | None = None
        self._trusted_until = 0
        self._seen_end: tuple[int, int | None] = -1, None
        self._tail = ShortTail(log, lambda start, stop: self._compare(start, stop).damage)
        # Results for the segments that are scanned for every query. They end with the plan.
        self._compared: dict[tuple[int, int], ComparedRecords] = {}

    @property
    def problems(self) -> list[Finding]:
        """Return one finding for each part of the index that was not trusted when the segments were planned."""
        return self._index.problems

    def without_keys(self, start: int, stop: int) -> list[Finding]:
        """Return a finding for each record of a segment to scan that has lost a key of an entry.

        A scan cannot find such a record by this key. Raises StoreAccessError, StoreChangedError.
        """
        known = self._compared.get((start, stop))
        if known is None or not all(map(self._is_unchanged, known.records)):
            known = self._compared[start, stop] = self._compare(start, stop)
        return known.damage

    def lost_records(
        self, names: Collection[NamedKey], window: TimeWindow | None = None
    ) -> list[tuple[NamedKey, Finding]]:
        """Return keys, and a finding for each record that has lost one, according to entries that no part has.

        See `KeyIndex.lost_records`. Raises StoreAccessError, StoreChangedError.
        """
        return [
            (name, finding)
            for name, lost in self._index.lost_records(names, window)
            for finding in without_keys(self._log, [lost])
        ]

    def _compare(self, start: int, stop: int) -> ComparedRecords:
        pairs = list(self._index.compared(OffsetRange(start, stop)))
        records: list[tuple[int, bytes]] = []
        for offset, _ in pairs:
            try:
                records.append((offset, self._log.locate(offset).record()))
            except (MessageNotFoundError, CorruptMessageError):
                records.append((offset, b""))
        damage = without_keys(self._log, (lost for _, lost in pairs if lost is not None))
        return ComparedRecords(records, damage)

    def _is_unchanged(self, record: tuple[int, bytes]) -> bool:
        offset, data = record
        file = self._log.file_at(offset) if data else None
        return file is not None and self._log.read(file, offset, len(data)) == data

    def segments(self) -> tuple[Segment, ...]:
        """Return the segments of the log as it is now, newest first; each segment to scan lies within one file.

        Raises StoreNotFoundError, StoreAccessError, FormatError, UsageError.
        """
        self._log.refresh()
        if self._log.files != self._log_files:  # Another caller may have refreshed the log.
            self._segments = None
        parts, has_changed = self._index.parts(), self._drop_changed()
        if self._segments is None or parts != self._parts or has_changed:
            # Discard the old plan first: if planning fails halfway, the next call plans again.
            is_new, self._segments = self._segments is None, None
            self._log_files, self._parts = self._log.files, parts
            if is_new:
                self._kept.clear()
                self._kept_at.clear()
                # `_find_trusted_until` calls `_cut`, which uses this value, so it must be set before the call.
                self._trusted_until = self._log.files_end
                self._trusted_until = self._find_trusted_until()
            self._compared.clear()
            self._segments = tuple(self._cut())
        return self._segments

    def short_tail(self, segment: Segment) -> ScannedTail | None:
        """Return the records of the last segment if it must be scanned and is short, else None.

        Raises StoreAccessError, StoreChangedError.
        """
        is_last = segment.records is None and segment.stop == self._log.files_end
        return self._tail.read(segment.start) if is_last else None

    def lost_end(self, log_end: int) -> Finding | None:
        """Return a finding if index or checkpoint show that the log was once longer, else None.

        log_end  end of the log, found after the segments were planned

        Raises StoreAccessError, StoreChangedError.
        """
        newest = self._index.newest_entry
        if newest >= log_end:
            if (lost := lost_before(self._log, log_end, newest, "the index")) is not None:
                return lost
            log_end = newest + 1
        stored_ms = max(
            self._checkpoint.physic_msg_timestamp, self._checkpoint.logics_msg_timestamp
        )
        # If the message of the index's newest entry is near the end of the log, and is not older than the checkpoint,
        # the log has not lost its end. This test takes one read, whereas `newest_timestamp` walks over the end of the
        # log.
        if log_end - newest <= _MOST_BYTES and self._newest_indexed() >= stored_ms:
            return None
        if self._seen_end[0] != log_end:
            self._seen_end = log_end, newest_timestamp(self._log, log_end) if stored_ms else None
        last_ms = self._seen_end[1]
        if last_ms is not None and last_ms < stored_ms:
            return lost_end(self._log.files, log_end, log_end, "the checkpoint")
        return None

    def _cut(self) -> Iterator[Segment]:
        segments: list[Segment] = []
        position = self._log.min_offset
        for part in self._parts:
            # The ranges of adjacent IndexFiles may overlap by one message, which has keys in both files.
            start, stop = max(part.start, position), min(part.stop, self._trusted_until)
            if start < stop:
                segments += self._scanned(position, start, keep=True)
                segments.append(Segment(start, stop, part))
                position = stop
        segments += self._scanned(position, self._log.files_end, keep=False)
        return reversed(segments)

    def _scanned(self, start: int, stop: int, *, keep: bool) -> Iterator[Segment]:
        """Yield segments to scan, one for each CommitLog file, oldest first.

        keep  whether the records of small segments are cached
        """
        files = self._log.files
        for number in range(bisect_right(files, start, key=lambda file: file.end), len(files)):
            begin, end = max(start, files[number].start), min(stop, files[number].end)
            if begin >= stop:
                return
            if begin < end:
                # Segments after the last part of the index are not cached (`keep` is False): the end of the log grows,
                # so these segments are read every time.
                small = keep and end - begin <= _KEPT_BYTES
                yield self._read(begin, end) if small else Segment(begin, end)

    def _drop_changed(self) -> bool:
        """Remove cached log records whose files may have changed; return whether there were any such files."""
        changed = {
            file
            for file, stamp in self._kept_at.items()
            if stamp is None or stamp != self._stamp(file)
        }
        for file in changed:
            del self._kept_at[file]
        for start, stop in [one for one in self._kept if self._log.file_at(one[0]) in changed]:
            del self._kept[start, stop]
        return bool(changed)

    def _stamp(self, file: CommitLogFile) -> Stamp | None:
        """Return a file's stamp, or None if the file has just changed or is missing."""
        # Remote files have no stamps, and are treated as unchanged.
        return Stamp() if "://" in file.path else Stamp.present(file.path)

    def _read(self, start: int, stop: int) -> Segment:
        segment = self._kept.get((start, stop))
        if segment is None:
            file = self._log.file_at(start)
            if file is not None and file not in self._kept_at:
                self._kept_at[file] = self._stamp(file)
            walk = LogWalk(self._log, start, stop)
            records = tuple(reversed([record.keyed() for record in walk]))
            damage = (*walk.damage, *self._compare(start, stop).damage)
            segment = Segment(start, stop, records=records, damage=damage)
            self._kept[start, stop] = segment
        return segment

    def scanned(self) -> Iterator[Segment]:
        """Yield the segments of the log as it is now, newest first, all of them to scan. Raises as `segments` does."""
        for segment in self.segments():
            if segment.part is None:
                yield segment
            else:
                parts = self._scanned(segment.start, segment.stop, keep=False)
                yield from reversed([*parts])

    def _find_trusted_until(self) -> int:
        """Return the physical offset up to which the index is trusted: the log's end, or the start of its last file.

        The checkpoint has the store time of the last message that a broker dispatched. If the log has no message of
        this time or later, the end of the log was cut off. Then the last entries may point into the removed part, where
        other messages have been written since. A broker that cuts its log deletes all files after the cut. So the cut
        lies in what is now the last file, and only this file is affected.
        """
        dispatched_ms = self._checkpoint.logics_msg_timestamp
        # The log still has a message that is as new as the last dispatched message, so its end was not cut off.
        if self._newest_indexed() >= dispatched_ms:
            return self._log.files_end
        tail = self._log.files_end
        for segment in self._cut():
            if segment.part is not None:
                break
            tail = segment.start
        walk = LogWalk(self._log, tail, tail + _TAIL_BYTES)
        for record in walk:
            if record.keyed().store_timestamp >= dispatched_ms:
                return self._log.files_end
        last_file = self._log.file_at(walk.position - 1)
        return last_file.start if walk.at_end and last_file else self._log.files_end

    def _newest_indexed(self) -> int:
        """Return the store timestamp of the newest entry's message; 0 if the entry does not lead to a message."""
        try:
            record = self._log.locate(self._index.newest_entry)
            return record.keyed().store_timestamp
        except (MessageNotFoundError, CorruptMessageError):
            return 0
