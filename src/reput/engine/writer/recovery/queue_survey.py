"""Find the plausible entries of one ConsumeQueue, after any crash or damage."""

from __future__ import annotations

import numpy as np

from reput.engine.compare import Offsets
from reput.engine.writer.recovery.queue_files import QueueFiles, is_blank, physical_offsets, sizes
from reput.format.dtypes import RawEntries, new_entries


class QueueSurvey:
    """The entries whose messages lie completely within the log, in the order of these messages in the log.

    An entry's rank is its place in this order. An entry's number is its position in the queue.

    If the entries in the files ascend by physical offset, without an empty entry between them, the rank of an entry is
    equal to its number, and entries are read on demand. Otherwise, all entries are kept in memory, sorted by physical
    offset.

    begin, stop  the first rank, and the rank after the last
    last         physical offset of the last entry's message; -1 if there are no entries
    is_ordered   whether the entries in the files ascend, without an empty entry between them
    """

    def __init__(self, found: QueueFiles, position: int, log_end: int) -> None:
        """Find the plausible entries from `position` on. Raises StoreAccessError, StoreChangedError."""
        self.found, self.position = found, position
        stop = found.ordered_stop(position)
        self.is_ordered = not found.has_data_from(stop)
        self._numbers: Offsets = np.empty(0, np.int64)
        self._words = new_entries(0)
        self.last = -1
        if self.is_ordered:
            self._end_before(stop, log_end)
        else:
            self._gather(log_end)

    def _end_before(self, stop: int, log_end: int) -> None:
        self.begin = self.position
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
        numbers, blocks = [self._numbers], [self._words]
        for first, words in self.found.all_entries(self.position):
            offsets, lengths = physical_offsets(words), sizes(words)
            good = (lengths > 0) & (offsets >= 0) & (offsets <= log_end - lengths)
            good &= ~is_blank(words)
            numbers.append(first + np.flatnonzero(good))
            blocks.append(words[good])
        self._numbers, self._words = np.concatenate(numbers), np.concatenate(blocks)
        offsets = physical_offsets(self._words)
        # The sort is stable: several entries of one message keep the order of the queue.
        order = np.argsort(offsets, kind="stable")
        self._numbers, self._words, self._offsets = (
            self._numbers[order], self._words[order], offsets[order],
        )  # fmt: skip
        self.begin, self.stop = 0, len(order)
        self.last = int(self._offsets[-1]) if len(order) else -1

    def rank_at(self, physical_offset: int, low: int) -> int:
        """Return the rank of the first entry whose message is at or after `physical_offset`, but at least `low`.

        An entry's rank is its place in log order, which is the order of the entries' messages in the log.
        """
        if self.is_ordered:
            return self.found.first_at(physical_offset, low, self.stop)
        return max(int(np.searchsorted(self._offsets, physical_offset)), low)

    def has_twice(self, rank: int) -> bool:
        """Return whether the entries with the ranks `rank` and `rank + 1` lead to the same message."""
        if self.is_ordered or rank + 1 >= self.stop:
            return False
        return bool(self._offsets[rank] == self._offsets[rank + 1])

    def read(self, rank: int, count: int) -> RawEntries:
        """Return up to `count` entries from the entry at `rank` on.

        `rank` is the entry's place in log order. If `is_ordered`, the place of an entry is its position in the queue,
        and the result includes pre-blank entries. Otherwise, pre-blank entries have no place, and the result does not
        include them.
        """
        count = max(min(count, self.stop - rank), 0)
        if self.is_ordered:
            return self.found.read(rank, count)
        return self._words[rank : rank + count]

    def numbers(self, rank: int, count: int) -> Offsets:
        """Return the queue offsets of up to `count` entries, from the entry at `rank` on."""
        if self.is_ordered:
            return np.arange(rank, rank + count)
        return self._numbers[rank : rank + count]

    def number_before(self, rank: int) -> int:
        """Return the queue position of the last entry before `rank`; -1 if no such entry exists.

        `is_ordered` must be true: the entries of the queue are in log order. Then an entry's rank (its place in log
        order) is equal to its position in the queue. Pre-blank entries, which lead to no message, are skipped.
        """
        return self.found.last_before(rank)

    def number_from(self, rank: int) -> int:
        """Return the queue position of the first entry at or after `rank`; `stop` if no such entry exists.

        `is_ordered` must be true: the entries of the queue are in log order. Then an entry's rank (its place in log
        order) is equal to its position in the queue. Pre-blank entries, which lead to no message, are skipped.
        """
        return self.found.next_entry(rank, self.stop)
