"""Count messages of a topic over time, with the ConsumeQueues.

Counts follow the order of the queue: after the clock was set back, a message counts as stored at the latest store time
of the messages before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from reput.base import Time, checked, optional_milliseconds
from reput.engine.writer import AnyStore
from reput.errors import MessageNotFoundError


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
