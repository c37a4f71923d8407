"""Compare one file of the log with all entries that point into it.

The comparison needs no other log file, so files can be compared in parallel. It has two steps:

fast   Kernels confirm that every record is intact and each of its entries is in place. Most files pass.
slow   A file that fails is compared again, stretch by stretch, to locate and explain each difference.

The log is read in pieces of consecutive records, in the salvage mode of a rebuild. Entries are matched with messages by
physical offset, so one missing entry does not affect the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from reput import core
from reput.engine.compare.columns import Column, ExpectedEntries, FoundEntries, FoundItems
from reput.engine.compare.found import IndexSpan, QueueSpan
from reput.engine.compare.stretch import LogStretch, stretches
from reput.format.dtypes import RawEntries, new_entries
from reput.kernels import entry_matches

# If a log file has more queue entries than this, the fast step is skipped. This limits its memory to 320 MiB.
_MOST_ENTRIES = 1 << 24
_ITEMS_READ = 1 << 16


class ComparedFile(NamedTuple):
    """A log file, and the places of the entries that point into it.

    stop: the physical offset at which the file ends, or at which the log ends if that is earlier
    log_end: the physical offset at which the log ends
    ends_log: whether this is the last file with a record
    """

    file: core.CommitLogFile
    stop: int
    log_end: int
    ends_log: bool
    rules: core.DispatchRules
    queues: tuple[QueueSpan, ...]
    index_files: tuple[IndexSpan, ...]


class QueueRun(NamedTuple):
    """The expected and the stored entries of one queue for one stretch of the log.

    place: the files of the queue; None if the queue has no files
    """

    queue: core.Queue
    expected: ExpectedEntries
    found: FoundEntries
    place: QueueSpan | None


class IndexRun(NamedTuple):
    """The items of one IndexFile that point into one stretch of the log."""

    found: FoundItems
    place: IndexSpan


class FileComparison:
    """Compares one log file with the queue entries and index items that point into it.

    Buffers are shared by all comparisons of a process: page faults of new memory cost more than the comparison.

    scan: the latest walk over the file
    """

    def __init__(self, task: ComparedFile) -> None:
        self._task = task
        self._entries: dict[core.Queue, FoundEntries] = {}
        self._items: list[FoundItems] = []
        self.scan = self._new_scan()

    def _new_scan(self) -> core.FileScan:
        task = self._task
        return core.FileScan(
            task.file, task.file.start, task.stop, core.ScanMode.SALVAGE, task.rules,
            buffers=_memory().scan,
        )  # fmt: skip

    def latest_if_sound(self, is_sound: Callable[[core.ScannedPiece], bool]) -> int | None:
        """Do the fast step: return the latest store timestamp (ms) if the file and all its entries are valid.

        Returns None if the file has no message, or if `stretches` (the slow step) must compare the file again.
        `is_sound` checks the records of a piece. Raises StoreError.
        """
        task, scan = self._task, self.scan
        length = sum(len(queue.numbers) for queue in task.queues)
        # If all queues or all IndexFiles are missing, leave it to `stretches` to report each missing entry.
        if not (task.queues and task.index_files) or length > _MOST_ENTRIES:
            return None
        queues, index = _SoundQueues(task.queues, length), _SoundIndex(task.index_files)
        latest = None
        for piece in scan.pieces():
            batch = piece.batch
            if scan.damage or not is_sound(piece):
                return None
            if not queues.match(batch, piece.positions + piece.base) or not index.match(batch):
                return None
            high = int(batch.messages["store_timestamp"].max())
            latest = high if latest is None else max(latest, high)
        if not self._ends_well():
            return None
        return latest if queues.are_all_matched() and index.is_all_matched() else None

    def _ends_well(self) -> bool:
        """Return whether the last record is followed only by a blank record, or by zeros at the end of the log."""
        task, scan = self._task, self.scan
        if scan.damage or scan.end.torn:
            return False
        is_end = task.ends_log and scan.end.position >= task.log_end
        return is_end or not scan.end.unreadable

    def stretches(
        self, look: Callable[[core.ScannedPiece], None], has_light: bool
    ) -> Iterator[LogStretch]:
        """Read all queue entries and index items that point into the file, then yield stretches of the file.

        A stretch has about 32 MiB of records. Reading the records is the slow step of the comparison.
        `compare.stretch.stretches` describes the arguments. Raises StoreError.
        """
        task = self._task
        self._entries = {one.queue: one.read() for one in task.queues}
        self._items = [one.read() for one in task.index_files]
        self.scan = self._new_scan()
        yield from stretches(
            self.scan, task.file, task.log_end, ends_log=task.ends_log,
            has_light=has_light, look=look,
        )  # fmt: skip

    def queue_runs(self, stretch: LogStretch) -> Iterator[QueueRun]:
        """Yield the expected and the stored entries of each queue for a stretch of the log."""
        places = {one.queue: one for one in self._task.queues}
        for queue in sorted({*stretch.queues, *places}):
            entries = self._entries.get(queue, _NO_ENTRIES)
            entries = entries.at(_inside(entries.offsets, stretch))
            yield QueueRun(queue, stretch.entries(queue), entries, places.get(queue))

    def index_runs(self, stretch: LogStretch) -> list[IndexRun]:
        """Return the items of each IndexFile for a stretch of the log.

        Together, the IndexFiles should have an item for each key in the stretch.
        """
        return [
            IndexRun(items.at(_inside(items.offsets, stretch)), place)
            for items, place in zip(self._items, self._task.index_files, strict=True)
        ]

    def with_tags(self, stretch: LogStretch) -> tuple[Column, Column]:
        """Return the items of a stretch with those for tags, whatever the rules say: their offsets and their hashes.

        A broker of 5.4 has put such items, also if a broker of 5.3 has continued the store. Raises StoreError.
        """
        task, rules = self._task, replace(self._task.rules, tags_from=0)
        # The buffers of `stretches` are in use.
        scan = core.FileScan(
            task.file,
            stretch.start,
            stretch.stop,
            core.ScanMode.SALVAGE,
            rules,
            buffers=core.ScanBuffers(),
        )
        offsets, hashes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for piece in scan.pieces():
            offsets.append((piece.positions + piece.base)[piece.batch.key_row])
            hashes.append(piece.batch.key_hash.astype(np.int64))
        return np.concatenate(offsets), np.concatenate(hashes)

    def entries_within(self, start: int, stop: int) -> int:
        """Return the number of entries that lead to offsets from `start` to `stop`."""
        return sum(
            int(np.count_nonzero((entries.offsets >= start) & (entries.offsets < stop)))
            for entries in self._entries.values()
        )


_NO_ENTRIES = FoundEntries(*4 * (np.empty(0, np.int64),))


def _inside(offsets: Column, stretch: LogStretch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return (offsets >= stretch.start) & (offsets < stretch.stop)


class _Memory:
    def __init__(self) -> None:
        self.scan = core.ScanBuffers()
        self.entries = new_entries(0)
        self.items = new_entries(_ITEMS_READ)

    def room_for(self, entries: int) -> RawEntries:
        if entries > len(self.entries):
            self.entries = new_entries(entries)
        return self.entries[:entries]


@cache
def _memory() -> _Memory:
    return _Memory()


class _SoundQueues:
    """Checks whether ConsumeQueue entries match messages, for `FileComparison.latest_if_sound`.

    One array holds the entries of all queues.
    """

    def __init__(self, places: tuple[QueueSpan, ...], length: int) -> None:
        self._queues: list[core.Queue] = []
        self._places: dict[core.Queue, tuple[int, int, int]] = {}
        self._totals = {one.queue: one.span.total for one in places if one.span is not None}
        self._entries = _memory().room_for(length)
        begin = 0
        for place in places:
            if count := place.read_into(self._entries[begin:]):
                self._places[place.queue] = (place.numbers.start, begin, count)
                begin += count
        # Arguments of the kernel. Each queue has a column: number of its first entry, place of this entry in
        # `_entries`, number of entries, number of matched entries.
        self._arrays = np.zeros((4, 0), np.int64)

    def match(self, batch: core.DispatchBatch, offsets: Column) -> bool:
        # The scan gives numbers to queues in the order of their first messages. So queues of earlier batches keep their
        # numbers, and new queues are at the end of `batch.queues`.
        if len(batch.queues) > len(self._queues):
            self._meet(batch.queues)
        first, start, count, matched = self._arrays
        return bool(
            entry_matches.match_queue_entries(
                batch.messages, batch.multi, offsets, first, start, count, self._entries, matched
            )
        )

    def _meet(self, queues: list[core.Queue]) -> None:
        new = [self._places.get(queue, (0, 0, 0)) for queue in queues[len(self._queues) :]]
        columns = np.array([(*place, 0) for place in new], np.int64).T
        self._arrays = np.ascontiguousarray(np.concatenate([self._arrays, columns], axis=1))
        self._queues = queues

    def are_all_matched(self) -> bool:
        """Return whether each entry that points into the file was matched."""
        matched = dict(zip(self._queues, self._arrays[3].tolist(), strict=True))
        return all(matched.get(queue, 0) == total for queue, total in self._totals.items())


class _SoundIndex:
    """Checks whether IndexFile items match the keys of messages, for `FileComparison.latest_if_sound`.

    Items are read block by block, as the comparison proceeds.
    """

    def __init__(self, places: tuple[IndexSpan, ...]) -> None:
        self._places = list(reversed(places))
        self._state = np.zeros(entry_matches.ITEM_STATE_FIELDS, np.int64)
        self._items = _memory().items[:0]
        # The numbers of three items: the first in memory, the next to read, and the item after the last one to compare.
        self._first = self._next = self._stop = 0
        self._place = places[0]

    def match(self, batch: core.DispatchBatch) -> bool:
        """Return whether the next items are exactly the items of this batch's keys, in the same order."""
        state = self._state
        state[: entry_matches.ITEM] = 0
        while state[entry_matches.KEY] < len(batch.key_hash):
            if state[entry_matches.ITEM] == len(self._items) and not self._go_on():
                return False
            header, base = self._place.header, self._place.first_base
            begin = header.begin_timestamp
            # `IndexFile.putKey` counts the seconds of item 1 from the end time of the previous file.
            first_begin = (
                begin if self._first > 1 else entry_matches.ANY_TIME if base is None else base
            )
            if not entry_matches.match_items(
                batch.messages, batch.key_hash, state, self._items, begin, first_begin
            ):
                return False
            if state[entry_matches.ITEM] == len(self._items) and not self._is_header_right():
                return False
        return True

    def _go_on(self) -> bool:
        """Read the next block of items, from the next IndexFile if necessary; return False at the end."""
        if self._next == self._stop:
            if not self._places:
                return False
            self._place = self._places.pop()
            span = self._place.span
            self._next, self._stop = span.first, span.last + 1
            # Items of other log files lie between the items of this file, so the order is wrong. The slow step
            # (`FileComparison.stretches`) will report this.
            if self._stop - self._next != span.total:
                return False
        count = min(self._stop - self._next, _ITEMS_READ)
        self._items = _memory().items[:count]
        self._place.read_into(self._items, self._next)
        self._first, self._next = self._next, self._next + count
        self._state[entry_matches.ITEM] = 0
        return count > 0

    def _is_header_right(self) -> bool:
        """Return whether the header's times match the first and the last item, as far as these were read."""
        header = self._place.header
        if self._place.is_growing:
            return True
        first, last = (
            int(self._state[entry_matches.FIRST_TIME]),
            int(self._state[entry_matches.LAST_TIME]),
        )
        if self._first == 1 and first != header.begin_timestamp:
            return False
        is_last = self._next - 1 == header.last_item(1 << 31)
        return not is_last or last == header.end_timestamp

    def is_all_matched(self) -> bool:
        """Return whether each item that points into the file was matched."""
        return (
            not self._places
            and self._next == self._stop
            and int(self._state[entry_matches.ITEM]) == len(self._items)
        )
