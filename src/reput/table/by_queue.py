"""The messages of some topics in a CommitLog file, found through their ConsumeQueues.

A ConsumeQueue may lack messages: prepared and rolled-back ones have no entries, queues get lost, dispatch lags
behind. So the entries of all queues together must tile the file from its beginning on; what lies behind the place
up to which they do is walked, and where they do not, all is.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection

import numpy as np

from reput.errors import MissingExtraError, StoreError
from reput.format.consume_queue import ENTRY_BYTES
from reput.format.dtypes import ENTRY_DTYPE
from reput.kernels.queue_cover import step, sum_of_steps
from reput.log.files import CommitLogFile
from reput.queues.queue_index import QueueIndex
from reput.queues.store_queues import open_queues
from reput.table.found_records import FoundRecords

_MAX_QUEUES = 1 << 11
_SELECTIVE_SHARE = 0.1  # of the file's bytes; with more than that, one read is faster than many


class OpenedQueues:
    """The queues of the store that was asked for last. A task's ranges are of few stores, one after the other, and a
    database takes longer to open than a range to read.
    """

    def __init__(self) -> None:
        self._folder = ""
        self._queues: QueueIndex | None = None

    def of(self, folder: str) -> QueueIndex:
        """Raises StoreAccessError."""
        if self._queues is None or folder != self._folder:
            self.close()
            self._folder, self._queues = folder, open_queues(folder)
        return self._queues

    def close(self) -> None:
        if self._queues is not None:
            self._queues.close()
            self._queues = None


def find_queued(
    opened: OpenedQueues,
    folder: str,
    file: CommitLogFile,
    topics: Collection[str],
    start: int,
    stop: int,
) -> FoundRecords | None:
    """The records of these topics that begin in [start, stop) of a file, as the ConsumeQueues in the store's folder
    have them; None where those do not have all, or too many to be worth it.
    """
    try:
        return _find(opened.of(folder), file, topics, start, stop)
    except (StoreError, MissingExtraError):  # damaged, expired: the log tells all that they do
        opened.close()
        return None


def _find(
    queues: QueueIndex,
    file: CommitLogFile,
    topics: Collection[str],
    start: int,
    stop: int,
) -> FoundRecords | None:
    listed = queues.list()
    if len(listed) > _MAX_QUEUES:
        return None
    seed = np.uint64(secrets.randbits(64))
    total, end = np.uint64(0), -1
    wanted = [np.empty(0, ENTRY_DTYPE)]
    for topic, queue_id in listed:
        queue = queues.queue(topic, queue_id)
        first, last = queue.min_queue_offset(file.start), queue.min_queue_offset(file.end)
        for data in queue.entry_bytes(first, last):
            entries = np.frombuffer(bytearray(data), np.uint8)
            steps, furthest = sum_of_steps(entries, len(data) // ENTRY_BYTES, seed)
            with np.errstate(over="ignore"):
                total += np.uint64(steps)
            end = max(end, int(furthest))
            if topic in topics:
                wanted.append(np.frombuffer(data, ENTRY_DTYPE))
    if end <= start or total != np.uint64(step(file.start, end, seed)):
        return None
    found = np.concatenate(wanted)
    found = found[(found["physical_offset"] >= start) & (found["physical_offset"] < stop)]
    if found["size"].sum(dtype=np.int64) > _SELECTIVE_SHARE * (end - file.start):
        return None
    found = found[np.argsort(found["physical_offset"], kind="stable")]
    return FoundRecords(found["physical_offset"].astype("i8"), found["size"].astype("i8"), end)
