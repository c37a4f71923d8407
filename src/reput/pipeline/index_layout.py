"""Assign index entries to IndexFiles before any file is written, by prefix sums over the splits."""

from __future__ import annotations

from dataclasses import dataclass

from reput.config import StoreConfig
from reput.format.index_file import ITEM_BYTES
from reput.pipeline.splits import SplitSummary
from reput.pipeline.stitch import LogSummary


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Index entries [start, stop) of one staged file."""

    staged: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class IndexFileTask:
    """One IndexFile: its entries, and the single entry before them, None for the first file."""

    number: int
    entries: tuple[KeyRange, ...]
    previous: KeyRange | None

    @property
    def weight(self) -> int:
        return ITEM_BYTES * (1 + sum(part.stop - part.start for part in self.entries))


def index_layout(log: LogSummary, config: StoreConfig) -> list[IndexFileTask]:
    """Cut the sequence of all index entries into files of index_items - 1 entries.

    The broker creates the next file when any message, with or without keys, follows the entry that filled the last one.
    """
    # An IndexFile counts from 1: item 0 means an empty slot, so it holds one entry less
    # (IndexFile.java).
    capacity = config.index_items - 1
    total = log.keys
    count = -(-total // capacity)
    # A full last file and a later message: the broker has created one more, still empty, file.
    if total % capacity == 0 and _messages_after_last_key(log.splits):
        count += 1
    bounds, position = [], 0
    for split in log.splits:
        bounds.append((position, position + split.keys, split.staged))
        position += split.keys
    tasks, first_split = [], 0
    for number in range(count):
        start, stop = number * capacity, min((number + 1) * capacity, total)
        while first_split < len(bounds) and bounds[first_split][1] <= start - 1:
            first_split += 1
        before = _cut(bounds, first_split, start - 1, start) if number else []
        entries = _cut(bounds, first_split, start, stop)
        tasks.append(IndexFileTask(number, tuple(entries), next(iter(before), None)))
    return tasks


def _cut(
    bounds: list[tuple[int, int, str]], first_split: int, start: int, stop: int
) -> list[KeyRange]:
    ranges = []
    # A loop with indexes, not a slice: a large log has many bounds, and a slice would copy them for
    # each file.
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
