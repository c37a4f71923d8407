"""Read scattered records of a CommitLog file as if they were consecutive.

ConsumeQueues or IndexFiles show where these records are. ConsumeQueues may be incomplete: prepared and rolled-back
messages have no entries, queues may be lost, and dispatch may be late. Therefore ConsumeQueues are used only up to the
first gap: the entries of all queues together must cover the file up to there. The rest of the file is scanned.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.core import CommitLogFile, QueueIndex, open_queues
from reput.engine.messages import ALL_COLUMNS
from reput.engine.tables.filters import QUEUE_COLUMNS, Condition, Mask
from reput.errors import MissingExtraError, StoreError
from reput.format.consume_queue import ENTRY_BYTES
from reput.format.dtypes import ENTRY_DTYPE
from reput.io import RangeReader
from reput.kernels.entry_checks import step, sum_of_steps

_MAX_QUEUES = 1 << 11
_SELECTIVE_SHARE = 0.1  # Above this share of the file's bytes, reading the whole file is faster.


@dataclass(frozen=True)
class FoundRecords:
    """All requested records of a file before the offset `end`: physical offsets, ascending, and sizes."""

    physical_offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    end: int

    def __len__(self) -> int:
        return len(self.size)

    @classmethod
    def of(cls, places: Iterable[tuple[int, int]], end: int) -> FoundRecords:
        """Return the requested records before `end`. `places` has the physical offset and size of each."""
        rows = np.array(list(places), np.int64).reshape(-1, 2)
        return cls(rows[:, 0].copy(), rows[:, 1].copy(), end)

    def places(self) -> dict[int, int]:
        """Return the size of each record, by physical offset."""
        return dict(zip(self.physical_offset.tolist(), self.size.tolist(), strict=True))

    def between(self, start: int, stop: int) -> FoundRecords:
        """Return the records that begin in [start, stop)."""
        first, last = np.searchsorted(self.physical_offset, [start, stop]).tolist()
        return FoundRecords(self.physical_offset[first:last], self.size[first:last], stop)


class PackedRecords:
    """Presents scattered records as one consecutive file. A `reput.io.RangeReader`.

    begin: int64[n + 1], the position of each record in this file, and the end of the file
    """

    def __init__(
        self, records: FoundRecords, file: CommitLogFile, open_file: Callable[[str], RangeReader]
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


class OpenedQueues:
    """Keeps the queues of the most recent store open.

    The ranges of a task belong to few stores, one after the other. Opening a RocksDB database takes longer than reading
    a range.
    """

    def __init__(self) -> None:
        self._folder = ""
        self._queues: QueueIndex | None = None

    def of(self, folder: str) -> QueueIndex:
        """Return the ConsumeQueues of a store's folder, and keep them open. Raises StoreAccessError."""
        if self._queues is None or folder != self._folder:
            self.close()
            self._folder, self._queues = folder, open_queues(folder)
        return self._queues

    def close(self) -> None:
        if self._queues is not None:
            self._queues.close()
            self._queues = None


def queues_kept(names: Sequence[tuple[str, int]], conditions: Iterable[Condition]) -> Mask:
    """Return a mask of the queues, given by topic and queue id, that meet all conditions on these two columns."""
    columns = dict(zip(QUEUE_COLUMNS, zip(*names, strict=True), strict=True)) if names else {}
    kept = np.ones(len(names), np.bool_)
    for condition in conditions:
        if condition.column in columns:
            kind = ALL_COLUMNS.field(condition.column).type
            kept &= condition.keeps(pa.array(columns[condition.column], kind))
    return kept


def find_queued(
    queues: OpenedQueues,
    folder: str,
    file: CommitLogFile,
    conditions: Sequence[Condition],
    start: int,
    stop: int,
) -> FoundRecords | None:
    """Return the records that begin in [start, stop) of a file, in queues that meet conditions on topic and queue id.

    They are found through the ConsumeQueues in the store's folder. Returns None if the queues are incomplete, or if
    they lead to so many records that a scan is faster.
    """
    try:
        return _find(queues.of(folder), file, conditions, start, stop)
    except (StoreError, MissingExtraError):  # Damaged or expired queues: scan the log instead.
        queues.close()
        return None


def _find(
    queues: QueueIndex,
    file: CommitLogFile,
    conditions: Sequence[Condition],
    start: int,
    stop: int,
) -> FoundRecords | None:
    # The names are read only now: a queue that was created after the plan may have messages of this range.
    names = queues.list()
    if len(names) > _MAX_QUEUES:
        return None
    is_requested = queues_kept(names, conditions)
    # An entry states where its record begins and ends. The entries of all queues cover [file.start, end) without a
    # gap if each record begins where another one ends. To test this without a sort, hashes of all ends are added and
    # hashes of all begins are subtracted: only the hashes of `end` and `file.start` may remain. The random seed
    # prevents forged entries from passing.
    seed = np.uint64(secrets.randbits(64))
    total, end = np.uint64(0), -1
    parts = [np.empty(0, ENTRY_DTYPE)]
    for (topic, queue_id), is_kept in zip(names, is_requested, strict=True):
        queue = queues.queue(topic, queue_id)
        first, last = queue.min_queue_offset(file.start), queue.min_queue_offset(file.end)
        for data in queue.entry_bytes(first, last):
            # Kernels are compiled for writable arrays, but `bytes` are not writable.
            entries = np.frombuffer(bytearray(data), np.uint8)
            steps, furthest = sum_of_steps(entries, len(data) // ENTRY_BYTES, seed)
            with np.errstate(over="ignore"):
                total += np.uint64(steps)
            end = max(end, int(furthest))
            if is_kept:
                parts.append(np.frombuffer(data, ENTRY_DTYPE))
    if end <= start or total != np.uint64(step(file.start, end, seed)):
        return None
    found = np.concatenate(parts)
    found = found[(found["physical_offset"] >= start) & (found["physical_offset"] < stop)]
    if found["size"].sum(dtype=np.int64) > _SELECTIVE_SHARE * (end - file.start):
        return None
    found = found[np.argsort(found["physical_offset"], kind="stable")]
    return FoundRecords(found["physical_offset"].astype("i8"), found["size"].astype("i8"), end)
