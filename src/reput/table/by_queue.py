"""The messages of some topics in a CommitLog file, found through their ConsumeQueues.

A ConsumeQueue may lack messages: prepared and rolled-back ones have no entries, queues get lost, dispatch lags
behind. So the entries of all queues together must tile the file from its beginning on; what lies behind the place
up to which they do is walked, and where they do not, all is.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from reput.errors import StoreError
from reput.files.reader import RangeReader
from reput.format.consume_queue import ENTRY_BYTES
from reput.kernels.queue_cover import step, sum_of_steps
from reput.store.commit_log_files import CommitLogFile
from reput.store.consume_queue import ENTRY_DTYPE
from reput.store.consume_queue_reader import ConsumeQueues

_MAX_QUEUES = 1 << 11
_SELECTIVE_SHARE = 0.1  # of the file's bytes; with more than that, one read is faster than many


@dataclass(frozen=True)
class QueuedRecords:
    """Records of a file, in order, int64 physical offsets and sizes; `end` is where the ConsumeQueues end."""

    physical_offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    end: int


def find_queued(
    folder: str, file: CommitLogFile, topics: Collection[str], start: int, stop: int
) -> QueuedRecords | None:
    """The records of these topics that begin in [start, stop) of a file, as the ConsumeQueues in the store's folder
    have them; None where those do not have all, or too many to be worth it.
    """
    try:
        return _find(ConsumeQueues(folder), file, topics, start, stop)
    except StoreError:  # queues may be damaged, or expire: the log tells all that they do
        return None


def _find(
    queues: ConsumeQueues, file: CommitLogFile, topics: Collection[str], start: int, stop: int
) -> QueuedRecords | None:
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
    return QueuedRecords(found["physical_offset"].astype("i8"), found["size"].astype("i8"), end)


class PackedRecords:
    """Records one behind the other, as if they were a file: a `reput.files.reader.RangeReader`.

    begin  int64[n + 1], where each begins there
    """

    def __init__(
        self, records: QueuedRecords, file: CommitLogFile, open_file: Callable[[str], RangeReader]
    ) -> None:
        self._records, self._file, self._open_file = records, file, open_file
        self.begin = np.concatenate([[0], np.cumsum(records.size)]).astype(np.int64)

    @property
    def file(self) -> CommitLogFile:
        return CommitLogFile(0, int(self.begin[-1]), self._file.path)

    def open(self, path: str) -> Self:
        self._reader = self._open_file(path)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.__exit__(*_)

    def read_into(self, buffer: npt.NDArray[np.uint8], position: int) -> None:
        end = position + len(buffer)
        first = int(np.searchsorted(self.begin, position, "right")) - 1
        last = int(np.searchsorted(self.begin, end, "left"))
        begins = self.begin[first : last + 1].tolist()
        offsets = self._records.physical_offset[first:last].tolist()
        for begin, stop, offset in zip(begins, begins[1:], offsets, strict=False):
            start, until = max(begin, position), min(stop, end)
            within = offset - self._file.start + start - begin
            self._reader.read_into(buffer[start - position : until - position], within)

    def read(self, position: int, length: int) -> bytes:
        buffer = np.empty(length, np.uint8)
        self.read_into(buffer, position)
        return buffer.tobytes()

    def next_run(self, position: int) -> tuple[int, int] | None:
        end = int(self.begin[-1])
        return (position, end) if position < end else None
