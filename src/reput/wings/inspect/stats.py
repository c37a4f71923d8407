"""Measure a store in one pass over the log and one pass over the items of each IndexFile.

Memory does not grow with the log. It holds a row of numbers per queue, a timeline per topic, and a fixed number of
counters for keys and tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.base import DAY_MS
from reput.core import IndexEntries, IndexFileReader, MessageStore, newest_timestamp
from reput.engine.check import slots_by_chain_length
from reput.errors import StoreError
from reput.format.consume_queue import ENTRY_BYTES
from reput.format.index_file import file_bytes
from reput.format.properties import DEAD_LETTER_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from reput.format.real_queue import consumer_group
from reput.kernels.counting import SAMPLE, count_slots
from reput.wings.inspect.measuring.figures import (
    GroupFigures,
    IndexFileFigures,
    QueueFigures,
    Sizing,
    StoreFigures,
    Timeline,
    index_coverage,
)
from reput.wings.inspect.measuring.growth import (
    LEAST_SPAN_MS,
    days_until_full,
    disk_usage,
    growth_of,
)
from reput.wings.inspect.measuring.log_figures import LogFigures

_HASHES = 1 << 31
_ITEMS_PER_SLOT = 4  # The ratio of the broker's defaults: 20,000,000 items, 5,000,000 slots.
_LEAST_ITEMS, _MOST_ITEMS = 1_000, 100_000_000
PARTS = 60


class _Times(NamedTuple):
    """The store time (ms) of the first message, and the newest store time near the log's end; 0 if unknown."""

    begin_ms: int
    newest_ms: int

    @property
    def span_ms(self) -> int:
        return self.newest_ms - self.begin_ms


def measure_index_file(file: IndexFileReader) -> IndexFileFigures:
    """Measure an IndexFile by reading only its items: the slot of an item is computed from its hash.

    Memory: 20 bytes per slot.

    Raises StoreAccessError, StoreChangedError.
    """
    lengths = np.zeros(file.hash_slots, np.int32)
    sample: list[npt.NDArray[np.int32]] = [np.empty(0, np.int32)]
    entries = 0
    for _, items in IndexEntries(file).pieces(1, file.next_item):
        hashes = np.empty(len(items), np.int32)
        sample.append(hashes[: count_slots(items, lengths, hashes)].copy())
        entries += len(items)
    # To bound memory, only a fixed share of the hashes was kept. Scale the number of distinct hashes up.
    different = _different(np.concatenate(sample)) * SAMPLE
    slots = np.bincount(lengths)
    length = np.arange(len(slots))
    # In a chain of n items, a look-up of the newest item reads 1 item, and a look-up of the oldest item reads n items.
    # Together, the look-ups of all n items read n (n + 1) / 2 items.
    steps = float((slots * length * (length + 1)).sum()) / 2
    return IndexFileFigures(
        file.name,
        file.hash_slots,
        file.index_items,
        entries,
        int(slots[1:].sum()),
        slots_by_chain_length(slots),
        len(slots) - 1,
        steps / entries if entries else 0.0,
        different / _HASHES,
    )


def _different(hashes: npt.NDArray[np.int32]) -> int:
    """Return the number of distinct hashes. Sorting takes a tenth of the time that np.unique takes."""
    hashes = np.sort(hashes)
    return int(np.count_nonzero(np.diff(hashes))) + min(len(hashes), 1)


def sizing_of(
    store: MessageStore,
    log: LogFigures,
    index_files: Sequence[IndexFileFigures],
    times: _Times,
    end: int,
) -> Sizing:
    """Return advice on file sizes, from the average rates of the log."""
    # Item 0 takes space as well, although it is never used.
    used = sum(file_bytes(file.hash_slots, file.entries + 1) for file in index_files)
    of_queues = ENTRY_BYTES * log.messages
    ratio = (log.size_bytes + of_queues + used) / log.size_bytes if log.size_bytes else 1.0
    used_bytes, free = disk_usage(store) or (None, None)
    # Of a remote store, the disk is unknown, and its queues would take many requests.
    growth = None if free is None else growth_of(store, end, times.newest_ms)
    full_days = days_until_full(free, growth)
    if times.span_ms < LEAST_SPAN_MS:
        return Sizing(None, None, ratio, None, None, None, used_bytes, free, full_days)
    keys, size = (count * DAY_MS / times.span_ms for count in (log.index_entries, log.size_bytes))
    items = _rounded_up(min(max(int(keys) + 1, _LEAST_ITEMS), _MOST_ITEMS))
    full = index_files[-1].index_items - 1 if index_files else store.config.index_items - 1
    return Sizing(
        keys_per_day=keys,
        log_bytes_per_day=size,
        store_bytes_per_log_byte=ratio,
        index_items=items,
        hash_slots=items // _ITEMS_PER_SLOT,
        hours_per_index_file=24 * full / keys if keys else None,
        used_bytes=used_bytes,
        free_bytes=free,
        days_until_full=full_days,
    )


def _rounded_up(count: int) -> int:
    """Round up to two significant digits."""
    step = int(10 ** max(len(str(count)) - 2, 0))
    return -(-count // step) * step


def measure_store(store: MessageStore) -> StoreFigures:
    """Measure an open store.

    Args:
        store: The store.

    Raises:
        StoreAccessError, StoreChangedError: a file cannot be read, or became shorter.
        StoreNotFoundError: a file is missing, and has not expired.
    """
    end = store.end_offset()
    times = _times(store, end)
    # The length of a part is rounded up, so that the last message is in the last part and not after it.
    log = LogFigures(Timeline(times.begin_ms, max(-(-(times.span_ms + 1) // PARTS), 1), PARTS))
    index_files = _measure(store, log, end)
    queues = log.queues()
    lost_end = store.lost_end(end) or store.lost_end_of_queues(end)
    return StoreFigures(
        store=store.path,
        log_begin=store.begin_offset(),
        log_end=end,
        messages=log.messages,
        inner_batches=log.inner_batches,
        size_bytes=log.size_bytes,
        index_entries=log.index_entries,
        newest_ms=times.newest_ms,
        timeline=log.timeline,
        topics=log.topics(),
        queues=queues,
        gaps=log.gaps(),
        keys=log.frequent_keys(store.commit_log),
        tags=log.frequent_tags(store.commit_log),
        groups=_groups(store, queues),
        coverage=index_coverage(store),
        index_files=index_files,
        sizing=sizing_of(store, log, index_files, times, end),
        damage=log.damage if lost_end is None else [*log.damage, lost_end],
    )


def _measure(store: MessageStore, log: LogFigures, end: int) -> list[IndexFileFigures]:
    """Measure the log and the IndexFiles, in two threads if the store is local."""
    index = store.index.current()
    if not store.storage.is_local:
        log.read(store.commit_log, end)
        return [measure_index_file(file) for file in index]
    # The kernels release the interpreter's lock, so both threads run at the same time.
    with ThreadPoolExecutor(1) as beside:
        figures = beside.submit(lambda: [measure_index_file(file) for file in index])
        log.read(store.commit_log, end)
        return figures.result()


def _times(store: MessageStore, end: int) -> _Times:
    last = newest_timestamp(store.commit_log, end) or 0
    try:
        first = store.get(store.commit_log.first_offset).store_timestamp
    except StoreError:  # The log is empty, or begins with damage.
        first = last
    return _Times(first, max(first, last))


def _groups(store: MessageStore, queues: list[QueueFigures]) -> list[GroupFigures]:
    """Return the number of retries and dead letters by consumer group, the largest first."""
    counts: dict[str, list[int]] = {}
    topics = {queue.topic for queue in queues}
    for queue in queues:
        for place, prefix in enumerate((RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX)):
            if queue.topic.startswith(prefix):
                # The name of a pop retry topic (5.x) contains the group's name, but does not show where that name ends.
                # A message's properties may state the group.
                group = consumer_group(queue.topic, _example(store, queue), topics)
                counts.setdefault(group, [0, 0])[place] += queue.messages
    groups = [GroupFigures(group, *count) for group, count in counts.items()]
    return sorted(groups, key=lambda group: (-group.retries - group.dead_letters, group.group))


def _example(store: MessageStore, queue: QueueFigures) -> dict[str, str]:
    """Return the properties of the first message of a queue; an empty dictionary if it cannot be read."""
    try:
        first = store.min_queue_offset(queue.topic, queue.queue_id)
        return store.get_by_queue(queue.topic, queue.queue_id, first).properties
    except StoreError:
        return {}
