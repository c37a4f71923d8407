"""Where an IndexFile is looked at that nobody has proved: the items most likely to show that others are missing.

Of a file of few items every link is followed. In any file the widest stretches of the log between two neighbouring
items are looked for, from a number of items at equal distances, always in the half of the log that is wider: while
indexing was off, the log went on. Of each the first messages are read, and none may have keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import pairwise

from reput.errors import StoreError
from reput.index.reader import IndexFileReader
from reput.log.keyed_record import read_keyed_record
from reput.log.offset_range import OffsetRange
from reput.log.reader import CommitLogReader
from reput.log.walk import LogWalk

FEW_ITEMS = 1 << 11
_SAMPLED_ITEMS = 128
_GAPS, _GAPS_IF_IN_DOUBT = 8, 64
_FULL_SHARE = 100  # so many files are looked at as closely as one
_READ_RECORDS = 8
_READ_BYTES = 16 << 10
_SAME_MESSAGE = 64


def lost_items(file: IndexFileReader, last: int) -> list[int]:
    """Items 1 to `last`, which are few, that no look-up reaches, descending."""
    leads_to: dict[int, int] = {}
    lost = []
    links = file.links(last)
    for number in range(last, 0, -1):
        hashed, offset, previous = links[number - 1]
        slot = hashed % file.hash_slots
        reached = leads_to.get(slot)
        if reached is None:
            reached = file.newest_counted(slot, last)
        if reached != number or not 0 <= previous < number or hashed < 0 or offset < 0:
            lost.append(number)
        leads_to[slot] = previous if reached == number else reached
    return lost


def find_gaps(
    file: IndexFileReader, log: CommitLogReader, first: int, last: int, files: int = 1
) -> list[int]:
    """Items of first to last - 1 after whose message the log has others with keys before the next item's.

    files  how many are looked at beside it: of very many, each is looked at less closely

    Raises StoreAccessError, StoreChangedError.
    """
    if first >= last:
        return []
    share = max(files / _FULL_SHARE, 1.0)
    widest = _widest_gaps(file, first, last, max(int(_SAMPLED_ITEMS / share), 2))
    most, found = max(int(_GAPS / share), 1), []
    for looked_at, number in enumerate(widest):
        if looked_at >= most:
            break
        if _misses_message(file, log, number, last):
            found.append(number)
            most = _GAPS_IF_IN_DOUBT
    return found


def _widest_gaps(file: IndexFileReader, first: int, last: int, samples: int) -> Iterator[int]:
    """Items whose message lies far before the next item's, about the farthest first."""

    def offset(number: int) -> int:
        return file.offset(number)

    step = max((last - first) // samples, 1)
    numbers = [*range(first, last, step), last]
    offsets = [*map(offset, numbers)]
    stretches = [
        (a - b, low, high) for (low, high), (a, b) in zip(pairwise(numbers), pairwise(offsets), strict=True)
    ]  # fmt: skip
    heapify(stretches)
    while stretches and stretches[0][0] < 0:
        _, low, high = heappop(stretches)
        begin, end = offset(low), offset(high)
        while high - low > 1:
            middle = (low + high) // 2
            between = offset(middle)
            if between - begin >= end - between:
                heappush(stretches, (between - end, middle, high))
                high, end = middle, between
            else:
                heappush(stretches, (begin - between, low, middle))
                low, begin = middle, between
        yield low


def _misses_message(file: IndexFileReader, log: CommitLogReader, number: int, last: int) -> bool:
    """Whether the log has messages with keys, or what cannot be read, between an item's message and the next item's.

    Only the first few messages there are read. Raises StoreAccessError, StoreChangedError.
    """
    begin = file.offset(number)
    following = range(number + 1, min(number + _SAME_MESSAGE, last) + 1)
    ends = (end for n in following if (end := file.offset(n)) != begin)
    end = next(ends, begin)
    try:
        gap = OffsetRange(begin + log.locate(begin).layout.total_bytes, end)
    except StoreError:
        return True
    if gap.start >= gap.stop:
        return end not in (begin, gap.start)
    walk = LogWalk(log, gap.start, min(gap.stop, gap.start + _READ_BYTES))
    records = (
        read_keyed_record(record) for _, record in zip(range(_READ_RECORDS), walk, strict=False)
    )
    return any(record.keys for record in records) or bool(walk.damage)
