"""Choose the items of an unproved IndexFile to check: those most likely to show that others are missing.

In a file with few items, every link is followed. In any file, the widest gaps between the messages of two neighbouring
items are searched for, because the log grows while indexing is off. The search starts at evenly spaced items and always
halves the wider part. The first messages in each gap are read, and none may have keys. A look-up in the file also
checks the pages of its slot table (`SlotPages`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import log, log1p

from reput.errors import StoreError
from reput.index.key_index import UntrustedIndexError
from reput.index.reader import SLOT_PAGE_BYTES, IndexFileReader
from reput.log.keyed_record import read_keyed_record
from reput.log.offset_range import OffsetRange
from reput.log.reader import CommitLogReader
from reput.log.walk import LogWalk

FEW_ITEMS = 1 << 11
_SAMPLED_ITEMS = 128
_GAPS, _GAPS_IF_IN_DOUBT = 8, 64
_FULL_SHARE = 100  # This many files are checked as closely as one.
_READ_RECORDS = 8
_READ_BYTES = 16 << 10
_SAME_MESSAGE = 64

LEAST_DOUBT = 21.0  # of a probability, as its negative logarithm: 1e-9
_MOST_COMPARED = 1 << 10
_MOST_UNFOUNDED = 4


def lost_items(file: IndexFileReader, last: int) -> list[int]:
    """Return the items 1 to `last`, which are few, that no look-up reaches, descending."""
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
    """Return items of first to last - 1 with unindexed keyed messages between their message and the next item's.

    files  number of files checked together: with very many, each is checked less closely

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
    """Yield items whose message lies far before the next item's, approximately the farthest first."""
    known: dict[int, int] = {}

    def offset(number: int) -> int:
        found = known.get(number)
        if found is None:
            found = known[number] = file.offset(number)
        return found

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
    """Return whether messages with keys, or unreadable bytes, lie between an item's message and the next item's.

    Only the first few messages between them are read. Raises StoreAccessError, StoreChangedError.
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


class LostSlotsError(UntrustedIndexError):
    """A page of the slot table that does not lead to items of its slots; `offset` is in the IndexFile."""


class SlotPages:
    """Checks the slot table of one IndexFile: whether the slots near a requested slot match the items.

    A power cut loses whole pages of a file that is written through a map. A page of slots comes back as zeros, or in an
    earlier state, and no chain shows that items are hidden. Hashes of keys spread over all slots. So a page is in doubt
    if it has far fewer used slots than the file's other pages, or if its newest item is far older than the file's. Such
    a page is rare in a valid file (once in a thousand million pages) if the keys' hashes spread evenly, which they may
    not. In doubt, the items themselves are searched for the hash, and the slots are trusted only if they lead to all of
    them.

    Costs one small read per page, and a search of all items if a page is in doubt.
    """

    def __init__(self, file: IndexFileReader) -> None:
        self._file = file
        self.is_trusted = bytearray(file.slot_pages)  # by number of the page
        self._unfounded = 0

    def check(self, key_hash: int) -> None:
        """Raise LostSlotsError, or BrokenChainError, if a look-up of this hash would miss an item."""
        page = self._file.slot_page_of(key_hash % self._file.hash_slots)
        if self.is_trusted[page]:
            return
        slots, last = self._file.slot_page(page), self._file.next_item - 1
        used, newest = len(slots) - slots.count(0), max(slots)
        doubt = self.doubt(len(slots), used, newest, last)
        if doubt is not None and doubt < LEAST_DOUBT:
            self.is_trusted[page] = True
            return
        # The hashes of these keys do not spread evenly.
        if doubt is not None and self._unfounded >= _MOST_UNFOUNDED:
            return
        if not self._leads_to_all(key_hash, last):
            reason = "its page of slots does not lead to all entries"
            raise LostSlotsError(self._file.path, page * SLOT_PAGE_BYTES, reason)
        self._unfounded += doubt is not None

    def doubt(self, slots: int, used: int, newest: int, last: int) -> float | None:
        """Return the negative logarithm of the probability of a page, or None if the file has too few items.

        The page has so many `slots`, `used` of them, the newest leads to item `newest`, and `last` is the file's last.
        """
        header, total = self._file.header(), self._file.hash_slots
        if slots == total:  # all that there are
            is_whole = used >= header.hash_slot_count and newest >= last
            return 0.0 if is_whole or last == 0 else 2 * LEAST_DOUBT
        share = min(max(header.hash_slot_count, 1) / total, 1 - 1 / total)
        # Items per slot. The items of one key share a slot and count as one.
        expected = min(last / total, -log1p(-share)) * slots
        if expected < LEAST_DOUBT:
            return None
        too_old = max(last - newest, 0) / last * expected
        return max(too_old, _too_few(used, slots, share))

    def _leads_to_all(self, key_hash: int, last: int) -> bool:
        """Return whether the newest items with this hash are in their slot's chain."""
        newest = deque(self._file.search(key_hash, last), maxlen=_MOST_COMPARED)
        wanted = {self._file.offset(number) for number in newest}
        if not wanted:
            return True
        least = min(wanted)
        for offset in self._file.offsets(key_hash):
            wanted.discard(offset)
            if not wanted or offset < least:
                break
        return not wanted


def _too_few(used: int, slots: int, share: float) -> float:
    """Return Chernoff's bound for at most `used` of `slots` used slots, if `share` of all are.

    It is -log of a probability.
    """
    part = used / slots
    if part >= share:
        return 0.0
    rest = (1 - part) * log((1 - part) / (1 - share))
    return slots * (rest + (part * log(part / share) if used else 0.0))
