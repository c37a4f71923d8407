"""Read messages of a topic by time, newest first, with the ConsumeQueues.

If a clock was set back, the search takes longer but misses no message.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from heapq import merge
from typing import NamedTuple

from reput.base import Finding, Kind, Time, checked, optional_milliseconds
from reput.core.query.evidence import Coverage
from reput.core.query.message_store import MessageStore
from reput.core.query.shared_store import AnyStore
from reput.core.query.tail import TailFilter
from reput.core.query.window_evidence import lost_beside, window_coverage
from reput.core.queues.queue_index import finding_of
from reput.errors import CorruptMessageError, FormatError, MessageNotFoundError
from reput.format.commit_log import MessageExt, RecordError, decode

# Number of messages of the first read, and of the largest one. Reads grow, because often few messages are wanted.
_FIRST_MESSAGES, _MOST_MESSAGES = 16, 256
# Messages up to this size are kept until they are returned. For longer messages, only the physical offset is kept.
_KEPT_BYTES = 4 << 10
_READ_BYTES = 1 << 20
# A search ends after this number of problems. Otherwise, a badly damaged queue would be read entry by entry to its
# beginning.
_MOST_PROBLEMS = 16
# A value greater than all times and physical offsets.
_AT_THE_END = 2**63


@dataclass(frozen=True, slots=True)
class TopicMessages:
    """Messages of a topic, newest first.

    Attributes:
        cursor: where to continue (`after=cursor`) if the limit shortened the answer, else None
        coverage: the evidence that no message is missing, in the log from the cursor on
    """

    messages: tuple[MessageExt, ...]
    cursor: int | None
    coverage: Coverage

    @property
    def is_complete(self) -> bool:
        return self.coverage.is_complete

    @property
    def problems(self) -> tuple[Finding, ...]:
        """Return the reasons why messages may be missing from the answer. It is empty if the answer is complete."""
        return self.coverage.unreadable


@checked
def messages_of_topic(
    store: AnyStore,
    topic: str,
    begin: Time | None = None,
    end: Time | None = None,
    limit: int = 100,
    after: int | None = None,
    max_bytes: int | None = None,
) -> TopicMessages:
    """Return the newest messages of a topic.

    Args:
        store: The store.
        topic: The topic. An unknown topic has no messages.
        begin, end: Store times, both inclusive: ms since 1970, or datetimes with a timezone.
        limit: Maximum number of messages.
        after: A cursor; only older messages are returned.
        max_bytes: Maximum bytes of records. At least one message is returned.

    Raises:
        StoreAccessError, StoreChangedError: a file cannot be read, or became shorter.
    """
    problems: list[Finding] = []
    times = optional_milliseconds(begin), optional_milliseconds(end, is_end=True)
    limits = TailFilter(topic, begin=times[0], end=times[1])
    messages, cursor, last = list[MessageExt](), None, 0
    rest_bytes = math.inf if max_bytes is None else max_bytes
    with nullcontext(store) if isinstance(store, MessageStore) else store.reader() as reader:
        queues = [
            _QueueBack(reader, queue, limits, after, problems).messages()
            for queue in reader.list_queues(topic)
        ]
        newest_first = merge(*queues, key=lambda place: -place.physical_offset)
        # Look for one message beyond the limits. If there is one, the answer is incomplete and needs a cursor.
        for number, place in enumerate(newest_first):
            if number == limit or (messages and place.size_bytes > rest_bytes):
                cursor = last
                break
            last = place.physical_offset
            if (message := _message(reader, place)) is not None:
                rest_bytes -= message.size_bytes
                messages.append(message)
        coverage = window_coverage(reader, topic, times, (cursor, after), problems)
    return TopicMessages(tuple(messages), cursor, coverage)


class _QueuePosition(NamedTuple):
    """Offset and size of a found message, and the message. To save memory, long messages are not kept (None)."""

    physical_offset: int
    size_bytes: int
    message: MessageExt | None


def _message(store: MessageStore, place: _QueuePosition) -> MessageExt | None:
    """Return the message; None if it has expired since it was found."""
    if place.message is not None:
        return place.message
    try:
        return store.get(place.physical_offset)
    except MessageNotFoundError:
        return None


class _QueueBack:
    """A reader of one queue from its end backwards. Unreadable messages are reported as problems."""

    def __init__(
        self,
        store: MessageStore,
        queue: tuple[str, int],
        limits: TailFilter,
        after: int | None,
        problems: list[Finding],
    ) -> None:
        """Read the messages in the time window of `limits` that are older than the cursor `after`."""
        self._store, self._queue, self._problems = store, queue, problems
        self._limits, self._after = limits, after

    def messages(self) -> Iterator[_QueuePosition]:
        """Yield the messages, newest first."""
        try:
            spans = self._spans()
        # The queue was deleted after it was listed.
        except MessageNotFoundError:
            return
        step, last = _FIRST_MESSAGES, -1
        mark = len(self._problems)
        for span in spans:
            low, high = span.start, span.stop
            while low < high:
                start = max(high - step, low)
                for place in reversed(self._read(start, high)):
                    # An inner batch has several queue offsets, so it is read several times.
                    if place.physical_offset != last:
                        yield place
                    last = place.physical_offset
                if len(self._problems) - mark > _MOST_PROBLEMS:
                    return
                high, step = start, min(2 * step, _MOST_MESSAGES)

    def _least(self) -> int:
        return self._store.min_queue_offset(*self._queue, check=False)

    def _spans(self) -> list[range]:
        """Return ranges of queue offsets, newest first, that contain all requested messages."""
        limits = self._limits
        try:
            low, high = self._bounds()
            if limits.has_window:
                self._problems += lost_beside(self._store, *self._queue, range(low, high))
            if low >= high or not limits.has_window:
                return [range(low, high)]
            begin = -_AT_THE_END if limits.begin is None else limits.begin
            end = _AT_THE_END if limits.end is None else limits.end
            spans = self._store.spans_by_time(*self._queue, begin, end)
            return [range(max(span.start, low), min(span.stop, high)) for span in spans]
        except FormatError as error:
            # The times of a damaged queue do not show where to begin, so the whole queue is read.
            self._problems.append(finding_of(error))
            return [range(self._least(), self._store.max_queue_offset(*self._queue))]

    def _bounds(self) -> tuple[int, int]:
        """Return the queue offset of the first requested message, and the queue offset after the last one."""
        store, queue, limits = self._store, self._queue, self._limits
        try:
            low = store.min_queue_offset(*queue)
        # The first entries are lost. Report this, and search the later entries.
        except FormatError as error:
            self._problems.append(finding_of(error))
            low = self._least()
        high = store.max_queue_offset(*queue)
        if limits.end is not None:
            high = min(high, store.end_offset_by_time(*queue, limits.end, check=False))
        if limits.begin is not None:
            low = max(low, store.offset_by_time(*queue, limits.begin, check=False))
        if self._after is not None and low < high:
            # Within a queue, physical offsets ascend with queue offsets.
            stop = high
            high = low + bisect_left(range(low, high), self._after, key=lambda n: self._at(n, stop))
        return low, high

    def _at(self, queue_offset: int, stop: int) -> int:
        """Return the physical offset of the queue's first readable message at or after `queue_offset`."""
        for offset in range(queue_offset, stop):
            try:
                return self._store.get_by_queue(*self._queue, offset).physical_offset
            except (FormatError, MessageNotFoundError):
                continue
        return _AT_THE_END

    def _read(self, start: int, stop: int) -> list[_QueuePosition]:
        """Return the requested messages with queue offsets in [start, stop).

        If the messages cannot be read together, they are read one by one.
        """
        try:
            places, count, position = [], 0, start
            while position < stop:
                pulled = self._store.pull_records(
                    *self._queue, position, stop - position, None, _READ_BYTES
                )
                if not pulled.records:
                    break
                count += len(pulled.records)
                places += self._places(map(decode, pulled.records))
                position = pulled.next_begin_offset
            # If fewer records were read than the range from `start` to `stop` has queue offsets, read the messages one
            # by one (below), to find out which messages are missing. Inner batches are also read one by one: one record
            # has several queue offsets, also after `stop`.
            if count == stop - start == position - start:
                return places
        except MessageNotFoundError:
            return []
        except (FormatError, RecordError):
            # Reading one by one shows which messages cannot be read.
            pass
        return self._read_each(start, stop)

    def _read_each(self, start: int, stop: int) -> list[_QueuePosition]:
        positions: list[_QueuePosition] = []
        problems, mark = self._problems, len(self._problems)
        for offset in reversed(range(start, stop)):
            try:
                positions += self._places([self._store.get_by_queue(*self._queue, offset)])
            except MessageNotFoundError as error:
                # The message has expired.
                if offset < self._least():
                    break
                name = "/".join(map(str, self._queue))
                problems.append(Finding(Kind.MISSING_LOG_FILE, name, str(error)))
            except CorruptMessageError as error:
                # An entry that is not in the order of its queue leads to another message than the missing one.
                newer = positions[-1].physical_offset if positions else _AT_THE_END
                is_placed = error.physical_offset < newer and self._is_after(offset, error)
                problem = finding_of(error)
                problems.append(problem if is_placed else replace(problem, physical_offset=None))
            except FormatError as error:
                problems.append(finding_of(error))
            if len(problems) - mark > _MOST_PROBLEMS:
                break
        return positions[::-1]

    def _is_after(self, queue_offset: int, error: CorruptMessageError) -> bool:
        """Return whether an unreadable message is known to be after the previous message of its queue."""
        try:
            before = self._store.get_by_queue(*self._queue, queue_offset - 1).physical_offset
        except CorruptMessageError as other:
            before = other.physical_offset
        except (FormatError, MessageNotFoundError):
            return queue_offset <= self._least()
        return before < error.physical_offset

    def _places(self, messages: Iterable[MessageExt]) -> list[_QueuePosition]:
        return [
            _QueuePosition(
                message.physical_offset,
                message.size_bytes,
                message if message.size_bytes <= _KEPT_BYTES else None,
            )
            for message in messages
            if self._limits.takes_time(message.store_timestamp)
            and (self._after is None or message.physical_offset < self._after)
        ]
