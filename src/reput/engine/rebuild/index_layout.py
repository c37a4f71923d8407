"""Assign index entries to IndexFiles before any file is written, by prefix sums over the splits."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from reput.base import StoreConfig
from reput.core import CommitLogFile
from reput.engine.rebuild.splits import SplitSummary
from reput.engine.rebuild.stitch import LogSummary
from reput.format.index_file import ITEM_BYTES


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Index entries [start, stop) of one staged file."""

    staged: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class IndexFileTask:
    """Writes one IndexFile.

    previous   the last entry of the file before it, or None for the first file
    log_files  the log files with the messages of its entries
    """

    number: int
    entries: tuple[KeyRange, ...]
    previous: KeyRange | None
    log_files: tuple[CommitLogFile, ...] = ()

    @property
    def weight(self) -> int:
        return ITEM_BYTES * (1 + sum(part.stop - part.start for part in self.entries))


def index_layout(
    log: LogSummary, config: StoreConfig, files: Sequence[CommitLogFile] = ()
) -> list[IndexFileTask]:
    """Cut the sequence of all index entries into files of index_items - 1 entries.

    When a file is full, the broker creates the next one for the next message, even if this message has no keys.
    """
    # Items are numbered from 1, because 0 marks an empty slot. So a file has room for index_items - 1 entries
    # (IndexFile.java).
    capacity = config.index_items - 1
    total = log.keys
    count = -(-total // capacity)
    # If the last file is full, and messages without keys follow the last message with keys, the broker has already
    # created the next file, which is empty.
    if total % capacity == 0 and _messages_after_last_key(log.splits):
        count += 1
    bounds, position = [], 0
    for split in log.splits:
        bounds.append((position, position + split.keys, split.staged))
        position += split.keys
    edges = {split.staged: (split.start, split.end) for split in log.splits}
    starts = [file.start for file in files]
    tasks, first_split = [], 0
    for number in range(count):
        # Begin with the split that contains entry `start - 1` (the last entry of the previous file), because the task
        # reads that entry too. The entry may be in an earlier split than entry `start`.
        start, stop = number * capacity, min((number + 1) * capacity, total)
        while first_split < len(bounds) and bounds[first_split][1] <= start - 1:
            first_split += 1
        before = _cut(bounds, first_split, start - 1, start) if number else []
        entries = _cut(bounds, first_split, start, stop)
        log_files: tuple[CommitLogFile, ...] = ()
        if entries:
            begin, end = edges[entries[0].staged][0] or 0, edges[entries[-1].staged][1]
            low = max(bisect_right(starts, begin) - 1, 0)
            log_files = tuple(files[low : bisect_left(starts, end)])
        tasks.append(IndexFileTask(number, tuple(entries), next(iter(before), None), log_files))
    return tasks


def _cut(
    bounds: list[tuple[int, int, str]], first_split: int, start: int, stop: int
) -> list[KeyRange]:
    ranges = []
    # Loop over positions, because a slice would copy the bounds of all later splits for each file.
    for place in range(first_split, len(bounds)):
        first, last, staged = bounds[place]
        if first >= stop:
            break
        low, high = max(start, first), min(stop, last)
        if low < high:
            ranges.append(KeyRange(staged, low - first, high - first))
    return ranges


def _messages_after_last_key(splits: list[SplitSummary]) -> bool:
    for split in reversed(splits):
        if split.keys:
            return split.keyless_tail
        if split.messages:
            return True
    return False
