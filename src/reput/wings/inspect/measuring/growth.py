"""Measure how fast a store grows, from its newest log files, and when its disk is full.

`reput stats`, `reput report` and `reput fleet` share this rule. Only names, headers, ends and samples are read.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from reput import errors
from reput.base import DAY_MS
from reput.core import MessageStore, QueueReader, is_light
from reput.format.consume_queue import ENTRY_BYTES
from reput.format.index_file import ITEM_BYTES, SLOT_BYTES
from reput.io import Disk

LEAST_SPAN_MS = 60_000
"""A growth rate over a shorter time would be meaningless."""
# The sizes of at most this many entries of a queue are read. Of more entries, samples are.
_MOST_ENTRIES, _SAMPLES = 128, 16


class TopicGrowth(NamedTuple):
    """Bytes per day by which the messages of a topic grow the log; None if its entries cannot be read."""

    topic: str
    growth_bytes_per_day: float | None


class Growth(NamedTuple):
    """The growth of a store during the last day of its log, or since its beginning if it is younger.

    log_bytes_per_day    growth of the log
    store_bytes_per_day  growth of the log, of ConsumeQueues and of IndexFiles together
    topics               growth of each topic, the largest first
    problem              why the topics are unknown; empty if they are known
    """

    log_bytes_per_day: float
    store_bytes_per_day: float
    topics: tuple[TopicGrowth, ...] = ()
    problem: str = ""


class _Window(NamedTuple):
    """The newest part of the log: its first physical offset, its bytes and its duration."""

    begin: int
    size_bytes: int
    span_ms: int


def growth_of(store: MessageStore, end: int, newest_ms: int) -> Growth | None:
    """Return the growth of a store; None if its log spans less than a minute.

    Args:
        store: The store.
        end: The end of its log.
        newest_ms: Store time of its newest message.

    Raises StoreAccessError.
    """
    window = _window(store, end, newest_ms)
    if window is None:
        return None
    days = window.span_ms / DAY_MS
    try:
        sizes, entries, unknown = _queued(store, window.begin)
        index_share = _index_bytes_per_log_byte(store)
    except (
        errors.ReputError
    ) as error:  # If a database of queues cannot be read, only these figures are unknown.
        errors.raise_if_refused(error)
        rate = window.size_bytes / days
        return Growth(rate, rate, problem=str(error))
    rates = {topic: size / days for topic, size in sizes.most_common()}
    topics = tuple(
        TopicGrowth(topic, None if topic in unknown else rates[topic])
        for topic in (*rates, *sorted(unknown - rates.keys()))
    )
    whole = window.size_bytes * (1 + index_share) + entries * ENTRY_BYTES
    return Growth(window.size_bytes / days, whole / days, topics)


def disk_usage(store: MessageStore) -> tuple[int, int] | None:
    """Return the used and the free bytes of the store's disk; of several disks, of the fullest one.

    The result is None if the store is not local, or the disk cannot be read.
    """
    if not store.storage.is_local:
        return None
    # The log may be on other disks than the rest of the store.
    folders = {Path(file.path).parent for file in store.commit_log.files} | {Path(store.path)}
    try:
        return min((Disk().usage(folder) for folder in folders), key=lambda usage: usage[1])
    except errors.StoreAccessError:
        return None


def days_until_full(free_bytes: int | None, growth: Growth | None) -> float | None:
    """Return the days until the disk is full if the store keeps its growth and nothing expires; None if unknown."""
    if free_bytes == 0:
        return 0.0
    if free_bytes is None or growth is None or not growth.store_bytes_per_day:
        return None
    return free_bytes / growth.store_bytes_per_day


def _window(store: MessageStore, end: int, newest_ms: int) -> _Window | None:
    """Return the newest log files that span at least a day, or else the whole log; None if it spans too little."""
    files = store.commit_log.files
    for file in reversed(files):
        try:
            first = store.commit_log.get(file.start + file.gap)
        # The first record of the file is missing or damaged, so use the next older file.
        except (errors.MessageNotFoundError, errors.CorruptMessageError):
            continue
        span_ms = newest_ms - first.store_timestamp
        if span_ms >= DAY_MS or file is files[0]:
            is_long = span_ms >= LEAST_SPAN_MS
            return _Window(file.start, end - file.start, span_ms) if is_long else None
    return None


def _queued(store: MessageStore, begin: int) -> tuple[Counter[str], int, set[str]]:
    """Return the bytes of each topic's messages from a physical offset on, their entries, and the unreadable topics."""
    sizes, entries, unknown = Counter[str](), 0, set[str]()
    for topic, queue_id in store.list_queues():
        if is_light(topic):  # Its messages are those of another topic.
            continue
        try:
            size, count = _since(store.queues.queue(topic, queue_id), begin)
            sizes[topic] += size
            entries += count
        except errors.ReputError as error:
            errors.raise_if_refused(error)
            unknown.add(topic)
    return sizes, entries, unknown


def _since(queue: QueueReader, begin: int) -> tuple[int, int]:
    """Return the bytes and the number of a queue's messages from a physical offset on.

    If they are many, their bytes are estimated from samples.
    """
    stop = queue.max_queue_offset()
    # Most queues of a store with many topics have no new message, and then one entry suffices to show it.
    if stop <= 0 or queue.entry(stop - 1).physical_offset < begin:
        return 0, 0
    first = queue.min_queue_offset(begin)
    count = stop - first
    if count <= _MOST_ENTRIES:
        return sum(entry.size for entry in queue.entries(first, stop)), count
    mean = 0.0
    for sample in range(_SAMPLES):
        number = first + count * sample // _SAMPLES
        least, most = queue.span(number)
        mean += queue.entry(number).size / max(most - least, 1) / _SAMPLES
    return int(mean * count), count


def _index_bytes_per_log_byte(store: MessageStore) -> float:
    """Return the bytes that IndexFiles take per byte of log: items, and their share of the slots of full files."""
    files = [file for file in store.index.current() if file.next_item > 1]
    if not files:
        return 0.0
    log_bytes = files[-1].offset(files[-1].next_item - 1) - files[0].offset(1)
    used = sum(
        (file.next_item - 1) * (ITEM_BYTES + SLOT_BYTES * file.hash_slots / file.index_items)
        for file in files
    )
    return used / log_bytes if log_bytes > 0 else 0.0
