"""Count the entries that get another number when queues in files become queues in RocksDB.

A file has entries in dispatch order, so an entry's number is its position. RocksDB stores entries under the queue
offsets of their messages. The two differ in light queues (%LMQ%): their queue offsets restart at 0 when a broker
starts, and messages of open transactions take a queue offset but have no entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput.core import ConsumeQueueSetReader, Queue, QueueReader
from reput.engine.compare import dispatched_entries
from reput.engine.rebuild.batch_file import queue_of, read_batches, read_runs
from reput.errors import MessageNotFoundError, StoreError
from reput.format.consume_queue import PRE_BLANK
from reput.format.dtypes import ENTRY_DTYPE

_FIELDS = ("physical_offset", "sys_flag", "queue", "queue_offset", "multi")
_Numbers = npt.NDArray[np.int64]


def renumbered_entries(
    store: Path, staged: Sequence[Path], suspects: Iterable[Queue]
) -> dict[Queue, int]:
    """Return, for each queue, how many staged entries have another queue offset in the store's ConsumeQueue files.

    Two kinds of queues are compared entry by entry: the queues in `suspects`, and queues whose queue offsets have gaps
    or repetitions, or do not end where the queue's files end. Queues without files, or with unreadable files, are not
    counted.

    staged    the staged files of the scan, with the queue offsets of the messages
    suspects  queues in which an entry replaced another entry with the same queue offset

    Raises StoreAccessError.
    """
    with closing(ConsumeQueueSetReader(store)) as files:
        odd = {*suspects, *_irregular(staged, files)}
        messages = _given_numbers(staged, odd)
        counts: dict[Queue, int] = {}
        for queue, (offsets, numbers) in messages.items():
            try:
                entries, places = _stored_numbers(files.queue(*queue))
            # The queue has no files, or they are damaged. A check of the store reports the damage.
            except StoreError:
                continue
            # If several messages have one queue offset, RocksDB keeps the last.
            last = len(numbers) - 1 - np.unique(numbers[::-1], return_index=True)[1]
            offsets, numbers = offsets[last], numbers[last]
            _, ours, theirs = np.intersect1d(offsets, entries, return_indices=True)
            if count := int((numbers[ours] != places[theirs]).sum()):
                counts[queue] = count
        return counts


def _irregular(staged: Sequence[Path], files: ConsumeQueueSetReader) -> Iterator[Queue]:
    """Yield queues whose queue offsets have gaps or repetitions, or do not end where the queue's files end."""
    ends: dict[Queue, int] = {}
    odd: set[Queue] = set()
    for path in staged:
        for name, run in zip(*read_runs(str(path)), strict=True):
            queue = queue_of(name)
            entries, first, slack, _, highest = run.item()
            if not entries:
                continue
            begin = ends.get(queue, max(first, 0))
            end = ends[queue] = begin + entries
            # A run is regular if its queue offsets are begin, begin + 1, and so on. Then its first queue offset is
            # `begin`, and its highest is `end - 1`. `slack` is the lowest difference between the queue offset of an
            # entry and the entry's index in the run. So `slack` is `begin` in a regular run. But `extend_runs`
            # computes `slack` without the entries that have queue offset 0. If the run's only entry has queue offset 0,
            # `slack` is therefore meaningless, and is not compared with `begin`.
            if (first, slack if end > 1 else begin, highest) != (begin, begin, end - 1):
                odd.add(queue)
    for queue, end in ends.items():
        try:
            if queue in odd or files.queue(*queue).max_queue_offset() != end:
                yield queue
        except (MessageNotFoundError, StoreError):
            continue


def _given_numbers(
    staged: Sequence[Path], queues: set[Queue]
) -> dict[Queue, tuple[_Numbers, _Numbers]]:
    """Return, for each of `queues`, the physical offsets and the queue offsets of its entries, in log order."""
    parts_of: dict[Queue, list[tuple[_Numbers, _Numbers]]] = {}
    for path in staged:
        for batch in read_batches(str(path), _FIELDS, queues):
            for queue, messages, queue_offset in dispatched_entries(batch):
                if queue in queues:
                    pair = messages["physical_offset"].astype(np.int64), queue_offset
                    parts_of.setdefault(queue, []).append(pair)
    return {queue: _joined(parts) for queue, parts in parts_of.items()}


def _stored_numbers(reader: QueueReader) -> tuple[_Numbers, _Numbers]:
    """Return the physical offsets and the queue offsets of a queue's entries. Raises StoreError."""
    first, stop = reader.min_queue_offset(), reader.max_queue_offset()
    parts, number = [], first
    for data in reader.entry_bytes(first, stop):
        entries = np.frombuffer(data, ENTRY_DTYPE)
        numbers = np.arange(number, number + len(entries), dtype=np.int64)
        number += len(entries)
        is_entry = (entries["size"] > 0) & (entries["size"] != PRE_BLANK.size)
        parts.append((entries["physical_offset"].astype(np.int64)[is_entry], numbers[is_entry]))
    return _joined(parts)


def _joined(parts: list[tuple[_Numbers, _Numbers]]) -> tuple[_Numbers, _Numbers]:
    empty = np.empty(0, np.int64)
    offsets, numbers = zip(*parts, strict=True) if parts else ((empty,), (empty,))
    return np.concatenate(offsets), np.concatenate(numbers)
