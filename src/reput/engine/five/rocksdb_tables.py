"""Write the tables of a RocksDB database. Each task sorts the entries of its key ranges and writes one SST file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.core import Queue
from reput.engine.compare import dispatched_entries
from reput.engine.five.rocksdb_layout import KeyedRange, ranges_of
from reput.engine.five.rocksdb_queues import entry_columns, entry_keys, entry_values
from reput.engine.five.rocksdb_writer import table_writer
from reput.engine.rebuild import QueueTask, WriteJob, batches_of, read_old_numbers, read_plan
from reput.format.rocksdb_queue import QueueEnd
from reput.io import DISK

_FIELDS = (
    "physical_offset", "size", "tags_code", "store_timestamp", "sys_flag", "queue", "queue_offset",
    "multi",
)  # fmt: skip
_Offsets = npt.NDArray[np.uint64]


class RocksTableWritten(NamedTuple):
    """The result of one table task.

    path         the file; None if the table would be empty
    entries      entries in the table
    replaced     for each queue, the number of entries that were replaced by a later entry with the same queue offset
    ends         the newest entry of each queue in this table
    stop         physical offset after the newest message
    refused      number of messages that get no new entry, because the queue offset that they state already has an
                 entry, or is out of order (see `reput.engine.compare.placement`)
    old_entries  number of old entries whose messages cannot be read
    """

    path: str | None
    entries: int
    replaced: dict[Queue, int]
    ends: list[QueueEnd]
    stop: int
    refused: int = 0
    old_entries: int = 0


def write_rocksdb_table(job: WriteJob, task: QueueTask) -> RocksTableWritten:
    """Write one table. Safe to run twice, also at the same time. Raises StoreAccessError, MissingExtraError."""
    ranges = ranges_of(read_plan(job.plan), task.number)
    blocks_of, refused = _collected(job, task.number, ranges)
    old = read_old_numbers(job.plan)
    old_entries = 0
    for part in ranges:
        if (said := old.get(part.queue)) is not None:
            # The bounds of a range are unsigned, but `kept_at` is signed, so limit the upper bound.
            inside = (said.kept_at >= part.first) & (said.kept_at <= min(part.last, 2**63 - 1))
            if inside.any():
                old_entries += int(inside.sum())
                block = said.kept_at[inside].astype(np.uint64), said.kept_values[inside]
                blocks_of.setdefault(part, []).insert(0, block)
    path = Path(job.parts) / f"{task.number:06d}.sst"
    entries = stop = 0
    replaced: dict[Queue, int] = {}
    ends: list[QueueEnd] = []
    if not blocks_of:
        return RocksTableWritten(None, 0, {}, [], 0, refused)
    DISK.create_folder(path.parent)
    with DISK.replacing(path) as attempt, table_writer(attempt) as table:
        for part in ranges:
            blocks = blocks_of.pop(part, None)
            if blocks is None:
                continue
            offsets = np.concatenate([offset for offset, _ in blocks])
            values = np.concatenate([value for _, value in blocks])
            ends.append(_end_of(part.queue, offsets, values, part.queue in old))
            stop = max(stop, int((values["physical_offset"] + values["size"]).max()))
            total = len(offsets)
            offsets, values = _sorted(offsets, values)
            table.put(entry_keys(part.queue, offsets), entry_values(values))
            entries += len(offsets)
            if total > len(offsets):
                count = replaced.get(part.queue, 0) + total - len(offsets)
                replaced[part.queue] = count
    return RocksTableWritten(str(path), entries, replaced, ends, stop, refused, old_entries)


_Blocks = list[tuple[_Offsets, npt.NDArray[np.void]]]


def _collected(
    job: WriteJob, number: int, ranges: Sequence[KeyedRange]
) -> tuple[dict[KeyedRange, _Blocks], int]:
    """Return the new entries of each key range, in log order, and the number of messages that get no entry.

    The entries of a key range are returned as blocks. A block has two arrays: queue offsets and RocksDB values.
    """
    old, refused = read_old_numbers(job.plan), 0
    ranges_of_queue: dict[Queue, list[KeyedRange]] = defaultdict(list)
    for part in ranges:
        ranges_of_queue[part.queue].append(part)
    blocks: dict[KeyedRange, _Blocks] = defaultdict(list)
    for batch in batches_of(job, number, ranges_of_queue, _FIELDS):
        for queue, messages, queue_offset in dispatched_entries(batch):
            if queue in old and queue in ranges_of_queue:
                places = messages["physical_offset"].astype(np.int64)
                queue_offset = old[queue].numbers(places, queue_offset)
                has_number = queue_offset >= 0
                # A queue may span several tasks. Only the task with the queue's first range counts messages without an
                # entry.
                if ranges_of_queue[queue][0].first == 0:
                    refused += int(np.count_nonzero(~has_number))
                messages, queue_offset = messages[has_number], queue_offset[has_number]
            for part in ranges_of_queue.get(queue, ()):
                offsets = queue_offset.astype(np.uint64)
                inside = (offsets >= part.first) & (offsets <= part.last)
                if inside.any():
                    blocks[part].append((offsets[inside], entry_columns(messages[inside])))
    return blocks, refused


def _end_of(
    queue: Queue, offsets: _Offsets, values: npt.NDArray[np.void], has_old: bool
) -> QueueEnd:
    """Return the queue's newest entry: the one that a broker would have written last.

    A broker writes entries in log order, and does not compare their queue offsets. New entries are in log order, so
    without old entries the last one is the newest. Old and new entries together are not in log order. Then the newest
    entry is the one with the highest physical offset.

    has_old  whether the table has old entries of this queue
    """
    row = int(np.argmax(values["physical_offset"])) if has_old else -1
    return QueueEnd(*queue, int(values["physical_offset"][row]), int(offsets[row].astype(np.int64)))


def _sorted(
    offsets: _Offsets, values: npt.NDArray[np.void]
) -> tuple[_Offsets, npt.NDArray[np.void]]:
    """Return entries in key order. Of several entries with one key, the last written one remains."""
    if len(offsets) > 1 and not (offsets[1:] > offsets[:-1]).all():
        order = np.argsort(offsets, kind="stable")
        offsets, values = offsets[order], values[order]
        is_last = np.append(offsets[1:] != offsets[:-1], True)
        offsets, values = offsets[is_last], values[is_last]
    return offsets, values
