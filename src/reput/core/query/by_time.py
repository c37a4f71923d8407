"""Read messages of a topic by time, newest first, or count them over time, with the ConsumeQueues.

If a clock was set back, the search takes longer but misses no message. Counts follow the order of the queue: after the
clock was set back, a message counts as stored at the latest store time of the messages before it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from heapq import merge
from typing import NamedTuple

from reput.base import Finding, Kind, Time, checked, optional_milliseconds
from reput.core.query.evidence import Coverage
from reput.core.query.message_store import MessageStore
from reput.core.query.shared_store import AnyStore
from reput.core.query.window_evidence import lost_beside, window_coverage
from reput.core.queues.queue_index import LostEntriesError
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
    bounds = _Bounds(optional_milliseconds(begin), optional_milliseconds(end, is_end=True), after)
    queues = [
        _back(store, topic, queue_id, bounds, problems) for _, queue_id in store.list_queues(topic)
    ]
    newest_first = merge(*queues, key=lambda place: -place.physical_offset)
    messages, cursor, last = list[MessageExt](), None, 0
    rest_bytes = math.inf if max_bytes is None else max_bytes
    # Look for one message beyond the limits. If there is one, the answer is incomplete and needs a cursor.
    for number, place in enumerate(newest_first):
        if number == limit or (messages and place.size_bytes > rest_bytes):
            cursor = last
            break
        last = place.physical_offset
        if (message := _message(store, place)) is not None:
            rest_bytes -= message.size_bytes
            messages.append(message)
    with _reader(store) as reader:
        times, within = (bounds.begin, bounds.end), (cursor, after)
        coverage = window_coverage(reader, topic, times, within, problems)
    return TopicMessages(tuple(messages), cursor, coverage)


class _QueuePosition(NamedTuple):
    """Offset and size of a found message, and the message. To save memory, long messages are not kept (None)."""

    physical_offset: int
    size_bytes: int
    message: MessageExt | None


@dataclass(frozen=True, slots=True)
class _Bounds:
    begin: int | None
    end: int | None
    after: int | None

    def takes(self, message: MessageExt) -> bool:
        time = message.store_timestamp
        return (
            (self.begin is None or self.begin <= time)
            and (self.end is None or time <= self.end)
            and (self.after is None or message.physical_offset < self.after)
        )


def _reader(store: AnyStore) -> AbstractContextManager[MessageStore]:
    return nullcontext(store) if isinstance(store, MessageStore) else store.reader()


def _message(store: AnyStore, place: _QueuePosition) -> MessageExt | None:
    """Return the message; None if it has expired since it was found."""
    if place.message is not None:
        return place.message
    try:
        return store.get(place.physical_offset)
    except MessageNotFoundError:
        return None


def _back(
    store: AnyStore, topic: str, queue_id: int, bounds: _Bounds, problems: list[Finding]
) -> Iterator[_QueuePosition]:
    """Yield messages of one queue, newest first. Unreadable messages are reported as problems."""
    try:
        try:
            spans = _spans(store, topic, queue_id, bounds, problems)
        except (CorruptMessageError, FormatError) as error:
            # The times of a damaged queue do not show where to begin, so the whole queue is read.
            problems.append(_problem(error))
            low = store.min_queue_offset(topic, queue_id, check=False)
            spans = [range(low, store.max_queue_offset(topic, queue_id))]
    # The queue was deleted after it was listed.
    except MessageNotFoundError:
        return
    step, last = _FIRST_MESSAGES, -1
    mark = len(problems)
    for span in spans:
        low, high = span.start, span.stop
        while low < high:
            start = max(high - step, low)
            for place in reversed(_read(store, (topic, queue_id), start, high, bounds, problems)):
                # An inner batch has several queue offsets, so it is read several times.
                if place.physical_offset != last:
                    yield place
                last = place.physical_offset
            if len(problems) - mark > _MOST_PROBLEMS:
                return
            high, step = start, min(2 * step, _MOST_MESSAGES)


def _spans(
    store: AnyStore, topic: str, queue_id: int, bounds: _Bounds, problems: list[Finding]
) -> list[range]:
    """Return ranges of queue offsets, newest first, that contain all messages within the bounds."""
    low, high = _range(store, topic, queue_id, bounds, problems)
    if bounds.begin is not None or bounds.end is not None:
        with _reader(store) as reader:
            problems += lost_beside(reader, topic, queue_id, range(low, high))
    if low >= high or (bounds.begin is None and bounds.end is None):
        return [range(low, high)]
    begin = -_AT_THE_END if bounds.begin is None else bounds.begin
    end = _AT_THE_END if bounds.end is None else bounds.end
    spans = store.spans_by_time(topic, queue_id, begin, end)
    return [range(max(span.start, low), min(span.stop, high)) for span in spans]


def _range(
    store: AnyStore, topic: str, queue_id: int, bounds: _Bounds, problems: list[Finding]
) -> tuple[int, int]:
    """Return the queue offset of the first message within the bounds, and the queue offset after the last one."""
    try:
        low = store.min_queue_offset(topic, queue_id)
    # The first entries are lost. Report this, and search the later entries.
    except FormatError as error:
        problems.append(_problem(error))
        low = store.min_queue_offset(topic, queue_id, check=False)
    high = store.max_queue_offset(topic, queue_id)
    if bounds.end is not None:
        high = min(high, store.end_offset_by_time(topic, queue_id, bounds.end, check=False))
    if bounds.begin is not None:
        low = max(low, store.offset_by_time(topic, queue_id, bounds.begin, check=False))
    if bounds.after is not None and low < high:
        offsets = range(low, high)

        def place(queue_offset: int) -> int:
            return _place(store, (topic, queue_id), queue_offset, high)

        # Within a queue, physical offsets ascend with queue offsets.
        high = low + bisect_left(offsets, bounds.after, key=place)
    return low, high


def _place(store: AnyStore, queue: tuple[str, int], queue_offset: int, stop: int) -> int:
    """Return the physical offset of a queue's first readable message at or after `queue_offset`."""
    for offset in range(queue_offset, stop):
        try:
            return store.get_by_queue(*queue, offset).physical_offset
        except (CorruptMessageError, FormatError, MessageNotFoundError):
            continue
    return _AT_THE_END


def _read(
    store: AnyStore,
    queue: tuple[str, int],
    start: int,
    stop: int,
    bounds: _Bounds,
    problems: list[Finding],
) -> list[_QueuePosition]:
    """Return the messages with queue offsets in [start, stop) that `bounds` accepts (by time and physical offset).

    If the messages cannot be read together, they are read one by one.
    """
    try:
        places, count, position = [], 0, start
        while position < stop:
            pulled = store.pull_records(*queue, position, stop - position, None, _READ_BYTES)
            if not pulled.records:
                break
            count += len(pulled.records)
            places += _places(map(decode, pulled.records), bounds)
            position = pulled.next_begin_offset
        # If fewer records were read than the range from `start` to `stop` has queue offsets, read the messages one by
        # one (below), to find out which messages are missing. Inner batches are also read one by one: one record
        # has several queue offsets, also after `stop`.
        if count == stop - start == position - start:
            return places
    except MessageNotFoundError:
        return []
    except (CorruptMessageError, FormatError, RecordError):
        # Reading one by one shows which messages cannot be read.
        pass
    positions: list[_QueuePosition] = []
    mark = len(problems)
    for offset in reversed(range(start, stop)):
        try:
            positions += _places([store.get_by_queue(*queue, offset)], bounds)
        except MessageNotFoundError as error:
            # The message has expired.
            if offset < store.min_queue_offset(*queue, check=False):
                break
            problems.append(Finding(Kind.MISSING_LOG_FILE, f"{queue[0]}/{queue[1]}", str(error)))
        except CorruptMessageError as error:
            # An entry that is not in the order of its queue leads to another message than the missing one.
            newer = positions[-1].physical_offset if positions else _AT_THE_END
            is_placed = error.physical_offset < newer and _is_after(store, queue, offset, error)
            problem = _problem(error)
            problems.append(problem if is_placed else replace(problem, physical_offset=None))
        except FormatError as error:
            problems.append(_problem(error))
        if len(problems) - mark > _MOST_PROBLEMS:
            break
    return positions[::-1]


def _is_after(
    store: AnyStore, queue: tuple[str, int], queue_offset: int, error: CorruptMessageError
) -> bool:
    """Return whether an unreadable message is known to be after the previous message of its queue."""
    try:
        before = store.get_by_queue(*queue, queue_offset - 1).physical_offset
    except CorruptMessageError as other:
        before = other.physical_offset
    except (FormatError, MessageNotFoundError):
        return queue_offset <= store.min_queue_offset(*queue, check=False)
    return before < error.physical_offset


def _places(messages: Iterable[MessageExt], bounds: _Bounds) -> list[_QueuePosition]:
    return [
        _QueuePosition(
            message.physical_offset,
            message.size_bytes,
            message if message.size_bytes <= _KEPT_BYTES else None,
        )
        for message in messages
        if bounds.takes(message)
    ]


def _problem(error: FormatError) -> Finding:
    if isinstance(error, CorruptMessageError):
        return Finding(
            Kind.UNREADABLE_RECORD, error.path, error.reason, error.offset, error.physical_offset
        )
    is_gap = isinstance(error, LostEntriesError)
    return Finding.of_error(Kind.QUEUE_GAP if is_gap else Kind.MISSING_QUEUE_ENTRY, error)


@dataclass(frozen=True, slots=True)
class Volume:
    """The number of messages of a topic in equal intervals: `messages[n]` is the number in interval n."""

    begin_ms: int
    part_ms: int
    messages: list[int]


@checked
def volume_of_topic(
    store: AnyStore,
    topic: str,
    begin: Time | None = None,
    end: Time | None = None,
    parts: int = 60,
) -> Volume:
    """Count messages of a topic over time.

    Args:
        store: The store.
        topic: The topic.
        begin, end: Store times as in `messages_of_topic`; by default the times of the first and last message.
        parts: Maximum number of intervals. Each is a whole number of ms long.

    Raises:
        MessageNotFoundError: the topic has no messages.
        CorruptMessageError, FormatError: a queue, or one of its messages, cannot be read.
        StoreAccessError, StoreChangedError: a file cannot be read, or became shorter.
    """
    queues = [queue_id for _, queue_id in store.list_queues(topic)]
    first, last = optional_milliseconds(begin), optional_milliseconds(end, is_end=True)
    if first is None or last is None:
        earliest, latest = _times(store, topic, queues)
        first, last = earliest if first is None else first, latest if last is None else last
    # Round both divisions up: the intervals must reach the end, and there may be at most `parts`.
    part_ms = max(-(-(last + 1 - first) // parts), 1)
    count = max(-(-(last + 1 - first) // part_ms), 1)
    bounds = [first + part_ms * number for number in range(count + 1)]
    totals = [0] * count
    for queue_id in queues:
        offsets = _offsets_at(store, topic, queue_id, bounds)
        for number in range(count):
            totals[number] += offsets[number + 1] - offsets[number]
    return Volume(first, part_ms, totals)


def _times(store: AnyStore, topic: str, queues: list[int]) -> tuple[int, int]:
    """Return the earliest and the latest store time of a topic's messages.

    Raises MessageNotFoundError if the topic has no messages.
    """
    times = []
    for queue_id in queues:
        low, high = store.min_queue_offset(topic, queue_id), store.max_queue_offset(topic, queue_id)
        if low < high:
            times += [
                store.get_by_queue(topic, queue_id, offset).store_timestamp
                for offset in (low, high - 1)
            ]
    if not times:
        raise MessageNotFoundError(f"topic {topic}: no messages")
    return min(times), max(times)


def _offsets_at(store: AnyStore, topic: str, queue_id: int, bounds: list[int]) -> list[int]:
    """Return, for each time, the queue offset of the first message stored at or after it.

    If two times have the same queue offset, the times between them are not looked up.
    """
    offsets: dict[int, int] = {}

    def fill(first: int, last: int) -> None:
        if offsets[first] == offsets[last]:
            offsets.update(dict.fromkeys(range(first, last), offsets[first]))
        elif last - first > 1:
            middle = (first + last) // 2
            offsets[middle] = store.offset_by_time(topic, queue_id, bounds[middle])
            fill(first, middle)
            fill(middle, last)

    last = len(bounds) - 1
    for number in (0, last):
        offsets[number] = store.offset_by_time(topic, queue_id, bounds[number])
    fill(0, last)
    return [offsets[number] for number in range(len(bounds))]
