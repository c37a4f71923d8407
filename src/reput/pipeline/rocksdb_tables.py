"""The tasks that write the tables of a RocksDB: each sorts the entries of its key ranges and writes one SST file."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.files.writer import make_folder, replacing
from reput.format.rocksdb_queue import QueueEnd
from reput.log.dispatch_batch import Queue
from reput.pipeline.rocksdb_layout import KeyedRange, RocksTask
from reput.pipeline.write_files import WriteJob, batches_of
from reput.queues.rocksdb_dispatch import (
    dispatched_entries,
    entry_columns,
    entry_keys,
    entry_values,
)
from reput.queues.rocksdb_writer import table_writer

_FIELDS = (
    "physical_offset", "size", "tags_code", "store_timestamp", "sys_flag", "queue", "queue_offset",
    "multi",
)  # fmt: skip
_Offsets = npt.NDArray[np.uint64]


class RocksTableWritten(NamedTuple):
    """A table of a database.

    path      None where it would be empty
    entries   how many it has
    replaced  entries of each queue that a later one with the same queue offset replaced
    ends      the newest entry of each queue, as far as this table goes
    stop      physical offset after the newest message
    """

    path: str | None
    entries: int
    replaced: dict[Queue, int]
    ends: list[QueueEnd]
    stop: int


def write_rocksdb_table(job: WriteJob, task: RocksTask) -> RocksTableWritten:
    """Safe to run twice, and beside itself. Raises StoreAccessError, MissingExtraError."""
    found = _collected(job, task)
    path = Path(job.parts) / f"{task.number:06d}.sst"
    entries = stop = 0
    replaced: dict[Queue, int] = {}
    ends: list[QueueEnd] = []
    if not found:
        return RocksTableWritten(None, 0, {}, [], 0)
    make_folder(path.parent)
    with replacing(path) as attempt, table_writer(attempt) as table:
        for part in task.ranges:
            blocks = found.pop(part, None)
            if blocks is None:
                continue
            offsets = np.concatenate([offset for offset, _ in blocks])
            values = np.concatenate([value for _, value in blocks])
            ends.append(_end_of(part.queue, offsets, values))
            stop = max(stop, int((values["physical_offset"] + values["size"]).max()))
            given = len(offsets)
            offsets, values = _sorted(offsets, values)
            table.put(entry_keys(part.queue, offsets), entry_values(values))
            entries += len(offsets)
            if given > len(offsets):
                count = replaced.get(part.queue, 0) + given - len(offsets)
                replaced[part.queue] = count
    return RocksTableWritten(str(path), entries, replaced, ends, stop)


_Blocks = list[tuple[_Offsets, npt.NDArray[np.void]]]


def _collected(job: WriteJob, task: RocksTask) -> dict[KeyedRange, _Blocks]:
    """Offsets and values of each range, in the order of the log."""
    wanted: dict[Queue, list[KeyedRange]] = defaultdict(list)
    for part in task.ranges:
        wanted[part.queue].append(part)
    found: dict[KeyedRange, _Blocks] = defaultdict(list)
    for batch in batches_of(job, wanted, _FIELDS):
        for queue, messages, queue_offset in dispatched_entries(batch):
            for part in wanted.get(queue, ()):
                offsets = queue_offset.astype(np.uint64)
                inside = (offsets >= part.first) & (offsets <= part.last)
                if inside.any():
                    found[part].append((offsets[inside], entry_columns(messages[inside])))
    return found


def _end_of(queue: Queue, offsets: _Offsets, values: npt.NDArray[np.void]) -> QueueEnd:
    """The entry that was written last; the broker does not compare queue offsets."""
    newest = int(values["physical_offset"][-1])
    return QueueEnd(*queue, newest, int(offsets[-1].astype(np.int64)))


def _sorted(
    offsets: _Offsets, values: npt.NDArray[np.void]
) -> tuple[_Offsets, npt.NDArray[np.void]]:
    """In the order of the keys, the last written of each."""
    if len(offsets) > 1 and not (offsets[1:] > offsets[:-1]).all():
        order = np.argsort(offsets, kind="stable")
        offsets, values = offsets[order], values[order]
        is_last = np.append(offsets[1:] != offsets[:-1], True)
        offsets, values = offsets[is_last], values[is_last]
    return offsets, values
