"""Find the messages of a queue that were stored since, or until, a time, even if the clock was set back.

Entries of a ConsumeQueue state no times, and times need not ascend, because a clock may have been set back. So the
search uses the known store times of pieces of the log (`reput.core.log.known_ranges`). A piece whose messages were all
stored before the time is skipped. A piece whose times ascend is bisected. Any other piece is scanned. Unreadable
messages are ignored. Pre-blank entries are placeholders without a message. Entries that are not in the order of their
messages would mislead the search, so it fails if it meets some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from reput.core.log.known_file import TimedPiece
from reput.core.log.known_ranges import KnownRanges
from reput.core.log.offset_range import OffsetRange, newest_first
from reput.core.queues.queue_index import LostEntriesError, QueueReader, check_order
from reput.errors import MessageNotFoundError
from reput.format.consume_queue import PRE_BLANK, ConsumeQueueEntry

TimestampOf = Callable[[int, ConsumeQueueEntry], int | None]
"""A function that returns the store timestamp (ms) for a queue offset and its entry.

It returns None if the log file is missing.
"""

_EVER = (1 << 63) - 1


class _FoundTime(NamedTuple):
    number: int
    entry: ConsumeQueueEntry


class QueueTimes:
    """A search by time in one queue. It uses the store times that are known for pieces of the log (`KnownRanges`).

    queue  the queue

    Methods raise MessageNotFoundError if a file expires during the search, and the errors of QueueReader's methods.
    """

    def __init__(self, queue: QueueReader, ranges: KnownRanges, timestamp_of: TimestampOf) -> None:
        self.queue, self._known, self._timestamp_of = queue, ranges, timestamp_of

    def first_since(self, timestamp: int, min_physical_offset: int) -> int:
        """Return the queue offset of the first message stored at or after a time (ms), or else the queue's end.

        In RocketMQ: getOffsetInQueueByTime, getMappedFileByTime.
        """
        position = min_physical_offset
        for piece in self._known.pieces(timestamp, _EVER):
            if piece.stop <= position:
                continue
            match = self._from(max(piece.start, position))
            if match is None:
                return self.queue.max_queue_offset()
            position = max(match.entry.physical_offset, piece.start)
            if position < piece.stop:
                number = self._first_in(piece, match.number, timestamp)
                if number is not None:
                    return number
        # Messages that were put after the log was examined are searched one by one.
        first, stop = self._from_known_end(), self.queue.max_queue_offset()
        for number, entry in self.queue.numbered(first, stop):
            if entry != PRE_BLANK and (self._timestamp_of(number, entry) or 0) >= timestamp:
                return number
        return stop

    def end_until(self, timestamp: int, min_physical_offset: int) -> int:
        """Return the queue offset after the last message stored at or before a time (ms).

        Without such a message, return the queue's minimum offset. Messages put after the log was examined are included.
        """
        least = self._place_of(min_physical_offset)
        high = self._from_known_end()
        if high < (stop := self.queue.max_queue_offset()):
            return stop
        for piece in self._known.pieces(-_EVER - 1, timestamp, newest_first=True):
            if high <= least:
                return least
            if self._lies_before(piece, high):
                continue
            low = max(self._place_of(piece.start), least)
            stop = min(self._place_of(piece.stop), high)
            number = self._end_in(piece, low, stop, timestamp) if low < stop else None
            if number is not None:
                return number
            high = low
        return least

    def spans(self, begin: int, end: int) -> list[range]:
        """Return ranges of queue offsets, newest first, with every message stored between two times (ms), inclusive.

        Messages put after the log was examined are included.
        """
        spans = [OffsetRange(self._from_known_end(), self.queue.max_queue_offset())]
        for start, stop in self._stretches(begin, end):
            low = self._place_of(start)
            spans.append(OffsetRange(low, max(self._place_of(stop), low)))
        # In a damaged queue, the ranges may overlap.
        return [range(*span) for span in newest_first(spans)]

    def _stretches(self, begin: int, end: int) -> Iterator[OffsetRange]:
        """Yield ranges of the log that may have messages of a time window (ms), newest first. Join adjacent ranges."""
        last: OffsetRange | None = None
        for piece in self._known.pieces(begin, end, newest_first=True):
            if last is not None and piece.stop == last.start:
                last = OffsetRange(piece.start, last.stop)
                continue
            if last is not None:
                yield last
            last = OffsetRange(piece.start, piece.stop)
        if last is not None:
            yield last

    def _place_of(self, physical_offset: int) -> int:
        """Return the queue offset of the first message at or after a physical offset, or else the queue's end."""
        number = self.queue.min_queue_offset(physical_offset)
        check_order(self.queue, number)
        return number

    def _from_known_end(self) -> int:
        """Return the queue offset of the first message that was put after the log was examined."""
        return self.queue.min_queue_offset(self._known.end())

    def _from(self, physical_offset: int) -> _FoundTime | None:
        """Return the first entry whose message begins at or after a physical offset; None if there is none."""
        number, stop = self._place_of(physical_offset), self.queue.max_queue_offset()
        return _first(self.queue, number, stop)

    def _lies_before(self, piece: TimedPiece, stop: int) -> bool:
        """Return whether the message of queue offset `stop` - 1 begins before `piece`, a range of the log."""
        try:
            return self.queue.entry(stop - 1).physical_offset < piece.start
        # The entry is missing or unreadable, so the place of its message is unknown.
        except (MessageNotFoundError, LostEntriesError):
            return False

    def _first_in(self, piece: TimedPiece, first: int, timestamp: int) -> int | None:
        """Return the queue offset of the first message stored at or after a time, within a piece of the log.

        Returns None if all messages of the queue in the piece are earlier. `first` is the queue's first queue offset in
        the piece.
        """
        if piece.is_whole and piece.least >= timestamp:
            return first
        stop = self._place_of(piece.stop)
        if not (piece.is_whole and piece.ascends):
            later = self._known.stored_within(piece, timestamp, _EVER)
            return next(self._numbers_of(piece, later, first, stop), None)
        number = self._bisected(first, stop, timestamp)
        entry = _first(self.queue, number, stop)
        return None if entry is None else entry.number

    def _end_in(self, piece: TimedPiece, first: int, stop: int, timestamp: int) -> int | None:
        """Return the queue offset after the last message in [first, stop) stored at or before a time, else None."""
        if piece.is_whole and piece.most <= timestamp:
            return stop
        if not (piece.is_whole and piece.ascends):
            earlier = self._known.stored_within(piece, -_EVER - 1, timestamp)
            numbers = list(self._numbers_of(piece, earlier, first, stop))
            return self.queue.span(numbers[-1])[1] if numbers else None
        # Find the first message stored after `timestamp`.
        number = self._bisected(first, stop, timestamp + 1)
        return number if number > first else None

    def _numbers_of(
        self, piece: TimedPiece, places: set[int], first: int, stop: int
    ) -> Iterator[int]:
        for number, entry in self.queue.numbered(first, stop) if places else ():
            if entry.physical_offset in places:
                yield number
            elif entry != PRE_BLANK and not piece.start <= entry.physical_offset < piece.stop:
                check_order(self.queue, number)

    def _bisected(self, low: int, high: int, timestamp: int) -> int:
        """Return the number of the first entry in [low, high) whose message was stored at or after a time, else `high`.

        The times must ascend.
        """
        while low < high:
            middle = (low + high) // 2
            entry = _first(self.queue, middle, high)
            if entry is None:
                # The rest of the range has only pre-blank entries, which have no message.
                high = middle
                continue
            middle_time = self._timestamp_of(*entry)
            if middle_time is None or middle_time < timestamp:
                # A message whose log file is missing counts as stored before `timestamp`.
                low = self.queue.after(*entry)
            else:
                high = middle
        return low


def _first(queue: QueueReader, number: int, stop: int) -> _FoundTime | None:
    """Return the first entry that is not pre-blank, from queue offset `number` to before `stop`.

    Returns None if all entries in this range are pre-blank.
    """
    for entry in queue.numbered(number, stop):
        if entry[1] != PRE_BLANK:
            return _FoundTime(*entry)
    return None
