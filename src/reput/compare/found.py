"""Read the entries in index files that lead to the messages of one file of the log."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.compare.columns import FoundEntries, FoundItems
from reput.compare.spans import Span
from reput.files.open_files import OpenFiles
from reput.files.reader import FileReader
from reput.files.storage import LOCAL
from reput.format.consume_queue_ext import LAST_ADDRESS
from reput.format.dtypes import ITEM_DTYPE
from reput.format.index_file import ITEM_BYTES, IndexHeader, item_position
from reput.log.dispatch_batch import Queue
from reput.queues.kinds import CONSUME_QUEUE, EXTENSION
from reput.queues.reader import ExtensionFiles

RawEntries = npt.NDArray[np.uint32]
"""uint32[n, 5]: entries or items, the files' bytes."""


class EntryPlaces(NamedTuple):
    """The files of a ConsumeQueue: number of the first entry, entries, path of each."""

    folder: str
    files: tuple[tuple[int, int, str], ...]

    def place(self, entry: int) -> tuple[str, int]:
        """Return the path of the file to which an entry belongs, and its first byte there."""
        for first, count, path in self.files:
            if first <= entry < first + count:
                return path, (entry - first) * CONSUME_QUEUE.entry_bytes
        return self.folder, 0


class QueueSpan(NamedTuple):
    """The entries of a queue that lead into one file of the log, and the files that hold them.

    span   None if the queue has no such entry
    files  the files with entries of the span
    stop   number of the queue's first entry that is not written
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
        return entries.at(entries.sizes > 0)  # an entry without a size is not written: a gap

    def read_into(self, words: RawEntries) -> int:
        """Read the span as it is stored; return the number of entries up to its first gap."""
        wanted, stop = self.numbers.start, self.numbers.stop
        for first, count, path in self.files.files:
            if not first <= wanted < min(first + count, stop):
                continue
            end = min(first + count, stop)
            part = words[wanted - self.numbers.start : end - self.numbers.start]
            with FileReader(path) as reader:
                at = (wanted - first) * CONSUME_QUEUE.entry_bytes
                reader.read_into(part.reshape(-1).view(np.uint8), at)
            wanted = end
        return wanted - self.numbers.start


def resolve_units(codes: npt.NDArray[np.int64], units: Path) -> None:
    """Replace addresses by the tags codes of a queue's extension files. The address of a lost unit stays."""
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
    """The items of one IndexFile that lead into one file of the log.

    first_base  time from which the time of the file's first item counts, ms; None if unknown
    is_growing  the file is still being written, so its header is not compared
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
        self.read_into(data.view(np.uint32).reshape(-1, ITEM_BYTES // 4), self.span.first)
        names = ("physical_offset", "key_hash", "time_diff_s")
        numbers = np.arange(self.span.first, self.span.last + 1)
        return FoundItems(numbers, *(data[name].astype(np.int64) for name in names))

    def read_into(self, words: RawEntries, first: int) -> None:
        """Read items as they are stored, from number `first` on. Raises StoreError."""
        with FileReader(self.path) as reader:
            at = item_position(self.hash_slots, first)
            reader.read_into(words.reshape(-1).view(np.uint8), at)
