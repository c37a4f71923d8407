"""Find and read the entries of ConsumeQueues and IndexFiles that point into one file of the log.

Entries are assigned to the log file of their message, so that each log file can be checked separately.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.core import CONSUME_QUEUE, EXTENSION, ExtensionFiles, Queue
from reput.engine.compare.columns import FoundEntries, FoundItems
from reput.format.consume_queue_ext import LAST_ADDRESS
from reput.format.dtypes import ITEM_DTYPE, RawEntries, raw_entries
from reput.format.index_file import IndexHeader, item_position
from reput.io import LOCAL, FileReader, OpenFiles

BEFORE, BEYOND = -1, -2
"""Used instead of log file numbers, for entries with physical offsets outside all log files.

BEFORE: before the first file, so the message has expired. BEYOND: beyond the end of the log.
"""

_NO_OFFSET = 1 << 63


class Span(NamedTuple):
    """The entries that point into one log file: the first, the last, and their number.

    Entries for other files may lie between them if the index is out of order.
    """

    first: int
    last: int
    total: int


@dataclass(frozen=True, slots=True)
class LogEdges:
    """The physical offsets at which the files of a log begin, and the end of the log."""

    starts: Sequence[int]
    end: int

    @classmethod
    def of(cls, starts: Sequence[int], end: int) -> LogEdges:
        """Return the edges of a log. If all files have the same size, their number does not matter to tasks."""
        even = range(starts[0], starts[-1] + 1, max(starts[1] - starts[0], 1) if starts[1:] else 1)
        return cls(even if list(even[: len(starts) + 1]) == list(starts) else tuple(starts), end)

    def files_of(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return for each offset the number of its log file, or BEFORE or BEYOND."""
        numbers = np.searchsorted(np.array(self.starts, np.int64), offsets, side="right") - 1
        numbers[offsets >= self.end] = BEYOND
        return numbers.astype(np.int64)

    def file_and_end(self, offset: int) -> tuple[int, int]:
        """Return the number of the log file of one offset, and the offset at which that file ends."""
        if offset >= self.end:
            return BEYOND, _NO_OFFSET
        number = bisect_right(self.starts, offset) - 1
        next_start = self.starts[number + 1] if number + 1 < len(self.starts) else self.end
        return number, min(next_start, self.end)


class Spans:
    """Collects for each log file the span of entries that point into it. Entries may be added in any order."""

    def __init__(self, edges: LogEdges) -> None:
        self._edges = edges
        self.by_file: dict[int, Span] = {}

    def add_ordered(self, count: int, first: int, offset_of: Callable[[int], int]) -> None:
        """Add `count` entries numbered from `first` on, which must be in the order of the log.

        Their log files are found by bisection, so `offset_of` reads the offsets of few entries.
        """
        begin = 0
        while begin < count:
            file, edge = self._edges.file_and_end(offset_of(begin))
            end = bisect_left(range(count), edge, begin, key=offset_of)
            self._note(file, first + begin, first + end - 1, end - begin)
            begin = end

    def add(self, offsets: npt.NDArray[np.int64], first: int) -> None:
        """Add the entries with these offsets, numbered from `first` on."""
        if not len(offsets):
            return
        files = self._edges.files_of(offsets)
        begins = np.concatenate([[0], np.flatnonzero(np.diff(files)) + 1])
        ends = np.concatenate([begins[1:], [len(files)]])
        for begin, end, file in zip(
            begins.tolist(), ends.tolist(), files[begins].tolist(), strict=True
        ):
            self._note(file, first + begin, first + end - 1, end - begin)

    def _note(self, file: int, low: int, high: int, count: int) -> None:
        span = self.by_file.get(file)
        if span is not None:
            low, high, count = min(span.first, low), max(span.last, high), count + span.total
        self.by_file[file] = Span(low, high, count)


class EntryPlaces(NamedTuple):
    """The files of a ConsumeQueue, each as (queue index of its first entry, number of entries, path)."""

    folder: str
    files: tuple[tuple[int, int, str], ...]

    def place(self, entry: int) -> tuple[str, int]:
        """Return the path of the file that contains an entry, and the position of the entry in it."""
        for first, count, path in self.files:
            if first <= entry < first + count:
                return path, (entry - first) * CONSUME_QUEUE.entry_bytes
        return self.folder, 0


class QueueSpan(NamedTuple):
    """The entries of a queue that point into one file of the log, and the files that contain them.

    span   the numbers of the first and the last of these entries; None if the queue has no such entry
    files  the files with entries of the span
    stop   number of the queue's first unwritten entry
    """

    queue: Queue
    span: Span | None
    files: EntryPlaces
    stop: int = 0

    @property
    def numbers(self) -> range:
        return range(0) if self.span is None else range(self.span.first, self.span.last + 1)

    def read(self) -> FoundEntries:
        """Return the written entries of the span. Raises StoreError."""
        numbers, blocks = [np.empty(0, np.int64)], [np.empty(0, CONSUME_QUEUE.dtype)]
        for first, count, path in self.files.files:
            begin, stop = max(self.numbers.start, first), min(self.numbers.stop, first + count)
            if begin < stop:
                data = np.empty(stop - begin, CONSUME_QUEUE.dtype)
                with FileReader(path) as reader:
                    at = (begin - first) * CONSUME_QUEUE.entry_bytes
                    reader.read_into(data.view(np.uint8), at)
                numbers.append(np.arange(begin, stop))
                blocks.append(data)
        data = np.concatenate(blocks)
        folder = Path(self.files.folder)
        resolve_units(
            data["tags_code"],
            folder.parents[2] / EXTENSION.folder / folder.parent.name / folder.name,
        )
        columns = (data[name].astype(np.int64) for name in ("physical_offset", "size", "tags_code"))
        entries = FoundEntries(np.concatenate(numbers), *columns)
        return entries.at(entries.sizes > 0)  # An entry with size 0 was never written.

    def read_into(self, words: RawEntries) -> int:
        """Read the entries of the span into `words`. Stop at a missing file, and return the number of entries read."""
        position, stop = self.numbers.start, self.numbers.stop
        for first, count, path in self.files.files:
            if not first <= position < min(first + count, stop):
                continue
            end = min(first + count, stop)
            part = words[position - self.numbers.start : end - self.numbers.start]
            with FileReader(path) as reader:
                at = (position - first) * CONSUME_QUEUE.entry_bytes
                reader.read_into(part.reshape(-1).view(np.uint8), at)
            position = end
        return position - self.numbers.start


def resolve_units(codes: npt.NDArray[np.int64], units: Path) -> None:
    """Replace addresses of extension units by the tags codes that the units contain.

    A broker with enableConsumeQueueExt stores an address in place of the tags code. If the unit is lost, the address
    stays, and shows up as a difference.
    """
    addressed = np.flatnonzero(codes <= LAST_ADDRESS)
    if not len(addressed):
        return
    with closing(OpenFiles(LOCAL.open)) as open_files:
        files = ExtensionFiles(str(units), open_files)
        for row in addressed.tolist():
            unit = files.unit(int(codes[row]))
            if unit is not None:
                codes[row] = unit.tags_code


class IndexSpan(NamedTuple):
    """The items of one IndexFile that point into one file of the log.

    first_base: the time to which the seconds of the first item are relative, ms; None if unknown
    is_growing: whether the IndexFile is still being written; then its header is not compared
    """

    path: str
    hash_slots: int
    header: IndexHeader
    span: Span
    first_base: int | None
    is_growing: bool

    def read(self) -> FoundItems:
        """Return the items. Raises StoreError."""
        data = np.empty(self.span.last - self.span.first + 1, ITEM_DTYPE)
        self.read_into(raw_entries(data), self.span.first)
        names = ("physical_offset", "key_hash", "time_diff_s")
        numbers = np.arange(self.span.first, self.span.last + 1)
        return FoundItems(numbers, *(data[name].astype(np.int64) for name in names))

    def read_into(self, words: RawEntries, first: int) -> None:
        """Read items as stored, from number `first` on. Raises StoreError."""
        with FileReader(self.path) as reader:
            at = item_position(self.hash_slots, first)
            reader.read_into(words.reshape(-1).view(np.uint8), at)
