"""The figures of a store: one pass over the log with the scan kernel, one over the items of each IndexFile.

Everything is counted over arrays, in memory that does not grow with the log: a row of numbers per queue, a timeline
per topic, counters of a fixed number for keys and tags.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from reput.errors import StoreError
from reput.examine.measuring.coverage import index_coverage
from reput.examine.measuring.figures import (
    GroupFigures,
    IndexFileFigures,
    QueueFigures,
    StoreFigures,
    Timeline,
)
from reput.examine.measuring.index_figures import measure_index_file
from reput.examine.measuring.log_figures import LogFigures
from reput.examine.measuring.sizing import sizing_of
from reput.format.group_topics import consumer_group
from reput.format.properties import DEAD_LETTER_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from reput.log.walk import newest_timestamp
from reput.query.message_store import MessageStore

PARTS = 60


def measure_store(store: MessageStore, parts: int = PARTS) -> StoreFigures:
    """What an open store holds. Nothing is written.

    Args:
        store: The store.
        parts: How many equal parts of time messages are counted in.

    Raises:
        StoreAccessError, StoreChangedError: a file cannot be read, or became shorter.
        StoreNotFoundError: files expired meanwhile.
    """
    end = store.end_offset()
    first_ms, last_ms = _times(store, end)
    span_ms = max(last_ms - first_ms, 0)
    log = LogFigures(Timeline(first_ms, max(-(-(span_ms + 1) // parts), 1), parts))
    index_files = _measure(store, log, end)
    queues = log.queues()
    return StoreFigures(
        store=store.path,
        log_begin=store.begin_offset(),
        log_end=end,
        messages=log.messages,
        inner_batches=log.inner_batches,
        size_bytes=log.size_bytes,
        index_entries=log.index_entries,
        timeline=log.timeline,
        topics=log.topics(),
        queues=queues,
        gaps=log.gaps(),
        keys=log.frequent_keys(store.commit_log),
        tags=log.frequent_tags(store.commit_log),
        groups=_groups(store, queues),
        coverage=index_coverage(store),
        index_files=index_files,
        sizing=sizing_of(store, log, index_files, span_ms),
        damage=log.damage,
    )


def _measure(store: MessageStore, log: LogFigures, end: int) -> list[IndexFileFigures]:
    """Read the log, and meanwhile, where files can be read from two threads, the IndexFiles."""
    index = store.index.current()
    if not store.storage.is_local:
        log.read(store.commit_log, end)
        return [measure_index_file(file) for file in index]
    with ThreadPoolExecutor(1) as beside:
        measured = beside.submit(lambda: [measure_index_file(file) for file in index])
        log.read(store.commit_log, end)
        return measured.result()


def _times(store: MessageStore, end: int) -> tuple[int, int]:
    """Store times of the first message and of the newest at the end; 0 where there is none."""
    last = newest_timestamp(store.commit_log, end) or 0
    try:
        return store.get(store.commit_log.first_offset).store_timestamp, last
    except StoreError:  # the log is empty, or begins with damage
        return last, last


def _groups(store: MessageStore, queues: list[QueueFigures]) -> list[GroupFigures]:
    """Return retries and dead letters by consumer group, most first."""
    counts: dict[str, list[int]] = {}
    topics = {queue.topic for queue in queues}
    for queue in queues:
        for place, prefix in enumerate((RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX)):
            if queue.topic.startswith(prefix):
                group = consumer_group(queue.topic, _example(store, queue), topics)
                counts.setdefault(group, [0, 0])[place] += queue.messages
    found = [GroupFigures(group, *count) for group, count in counts.items()]
    return sorted(found, key=lambda one: (-one.retries - one.dead_letters, one.group))


def _example(store: MessageStore, queue: QueueFigures) -> dict[str, str]:
    """Return the properties of the first message of a queue; none if it cannot be read."""
    try:
        first = store.min_queue_offset(queue.topic, queue.queue_id)
        return store.get_by_queue(queue.topic, queue.queue_id, first).properties
    except StoreError:
        return {}
