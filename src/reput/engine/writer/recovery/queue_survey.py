"""Find the plausible entries of one queue, after any crash or damage."""

from __future__ import annotations

import numpy as np

from reput.engine.compare import Offsets
from reput.engine.writer.recovery.entry_layout import WORDS, Entries, EntryLayout
from reput.engine.writer.recovery.queue_files import QueueFiles, is_blank, physical_offsets, sizes
from reput.format.dtypes import RawEntries, new_entries


class RankedEntries:
    """The plausible entries of a queue, in the order of their messages in the log.

    An entry's rank is its place in this order. An entry's number is its queue offset: its position in a ConsumeQueue,
    and what the entry or its key states in other forms.

    layout       the entries in memory
    begin, stop  the first rank, and the rank after the last
    last         physical offset of the last entry's message; -1 if there are no entries
    is_ordered   whether the rank of an entry is its number. Then entries are read on demand. Otherwise all are in
                 memory
    """

    is_ordered = False

    def __init__(self, layout: EntryLayout, numbers: Offsets, entries: Entries) -> None:
        self.layout = layout
        self._hold(numbers, entries)

    def _hold(self, numbers: Offsets, entries: Entries) -> None:
        offsets = self.layout.offsets(entries)
        # The sort is stable: several entries of one message keep the order of the queue.
        order = np.argsort(offsets, kind="stable")
        self._numbers, self._entries, self._offsets = numbers[order], entries[order], offsets[order]
        self.begin, self.stop = 0, len(order)
        self.last = int(self._offsets[-1]) if len(order) else -1

    def rank_at(self, physical_offset: int, low: int) -> int:
        """Return the rank of the first entry whose message is at or after `physical_offset`, but at least `low`."""
        return max(int(np.searchsorted(self._offsets, physical_offset)), low)

    def has_twice(self, rank: int) -> bool:
        """Return whether the entries with the ranks `rank` and `rank + 1` lead to the same message."""
        return rank + 1 < self.stop and bool(self._offsets[rank] == self._offsets[rank + 1])

    def read(self, rank: int, count: int) -> Entries:
        """Return up to `count` entries from the entry at `rank` on. If `is_ordered`, they include pre-blank entries."""
        return self._entries[rank : rank + max(min(count, self.stop - rank), 0)]

    def numbers(self, rank: int, count: int) -> Offsets:
        """Return the queue offsets of up to `count` entries, from the entry at `rank` on."""
        return self._numbers[rank : rank + count]


class QueueSurvey(RankedEntries):
    """The entries of a ConsumeQueue whose messages lie completely within the log.

    If the entries in the files ascend by physical offset, without an empty entry between them, their ranks are their
    numbers.

    found     the files
    position  where the entries begin
    """

    def __init__(self, found: QueueFiles, position: int, log_end: int) -> None:
        """Find the plausible entries from `position` on. Raises StoreAccessError, StoreChangedError."""
        self.layout, self.found, self.position = WORDS, found, position
        stop = found.ordered_stop(position)
        self.is_ordered = not found.has_data_from(stop)
        if self.is_ordered:
            self._end_before(stop, log_end)
        else:
            self._gather(log_end)

    def _end_before(self, stop: int, log_end: int) -> None:
        self.begin, self.last = self.position, -1
        self.stop = self.found.last_before(self.found.first_at(log_end, self.begin, stop)) + 1
        while self.stop > self.begin:
            # Remove the last entry if the log ends within its message. When the log has a complete message at this
            # place, that message is dispatched, and gets an entry.
            entry = self.found.entry(self.stop - 1)
            if entry is not None and entry.physical_offset + entry.size <= log_end:
                self.last = entry.physical_offset
                return
            self.stop = self.found.last_before(self.stop - 1) + 1
        self.stop = self.begin

    def _gather(self, log_end: int) -> None:
        numbers, blocks = [np.empty(0, np.int64)], [new_entries(0)]
        for first, words in self.found.all_entries(self.position):
            offsets, lengths = physical_offsets(words), sizes(words)
            good = (lengths > 0) & (offsets >= 0) & (offsets <= log_end - lengths)
            good &= ~is_blank(words)
            numbers.append(first + np.flatnonzero(good))
            blocks.append(words[good])
        self._hold(np.concatenate(numbers), np.concatenate(blocks))

    def rank_at(self, physical_offset: int, low: int) -> int:
        """See RankedEntries."""
        if self.is_ordered:
            return self.found.first_at(physical_offset, low, self.stop)
        return super().rank_at(physical_offset, low)

    def has_twice(self, rank: int) -> bool:
        """See RankedEntries."""
        return not self.is_ordered and super().has_twice(rank)

    def read(self, rank: int, count: int) -> RawEntries:
        """See RankedEntries."""
        if self.is_ordered:
            return self.found.read(rank, max(min(count, self.stop - rank), 0))
        return super().read(rank, count)

    def numbers(self, rank: int, count: int) -> Offsets:
        """See RankedEntries."""
        return np.arange(rank, rank + count) if self.is_ordered else super().numbers(rank, count)
