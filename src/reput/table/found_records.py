"""Records of a CommitLog file that an index leads to, read as if they lay one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from reput.files.reader import RangeReader
from reput.log.files import CommitLogFile


@dataclass(frozen=True)
class FoundRecords:
    """Records of a file, in order, int64 physical offsets and sizes; `end` is up to where the index has them all."""

    physical_offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    end: int

    def __len__(self) -> int:
        return len(self.size)

    @classmethod
    def of(cls, places: Iterable[tuple[int, int]], end: int) -> FoundRecords:
        """Of offsets and sizes."""
        rows = np.array(list(places), np.int64).reshape(-1, 2)
        return cls(rows[:, 0].copy(), rows[:, 1].copy(), end)

    def between(self, start: int, stop: int) -> FoundRecords:
        """Those that begin in [start, stop); the index has all of them up to `stop`."""
        first, last = np.searchsorted(self.physical_offset, [start, stop]).tolist()
        return FoundRecords(self.physical_offset[first:last], self.size[first:last], stop)


class PackedRecords:
    """Records one after the other, as if they were a file: a `reput.files.reader.RangeReader`.

    begin  int64[n + 1], where each begins there
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
