"""Spot checks of an unproved IndexFile: examine places at which missing items are most likely to show.

In a file with few items, every link is followed. In any file, the widest gaps are examined. A gap is the range of the
log between the messages of two adjacent items: if the log grew while indexing was off, a wide gap remains. The search
for wide gaps starts with the ranges between evenly spaced items. The search splits the widest range at its middle item,
and continues in the part that spans more bytes of the log. The first messages in each gap are read. If one of these
messages has keys, items are missing. A look-up in the file also checks the pages of its slot table (`SlotPages`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import log, log1p

from reput.core.index.key_index import UntrustedIndexError
from reput.core.index.reader import SLOT_PAGE_BYTES, IndexFileReader
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.core.log.walk import LogWalk
from reput.errors import StoreError

# In a file with at most this many items, every link is followed.
FEW_ITEMS = 1 << 11
# A gap is the range of the log between the messages of two consecutive items of an IndexFile. The search for wide gaps
# starts with this many items, at even distances in the file.
_SAMPLED_ITEMS = 128
# At most _GAPS gaps of the log (see above) are examined for each file. If one of these gaps contains a message that has
# keys but no item, up to _GAPS_IF_IN_DOUBT gaps are examined.
_GAPS, _GAPS_IF_IN_DOUBT = 8, 64
# If more files than this are checked together, fewer gaps of the log (see above) are examined for each file.
_FULL_SHARE = 100
# In the gap between the messages of two consecutive items, at most _READ_RECORDS records of the log are read. If they
# have more than _READ_BYTES bytes, fewer records are read.
_READ_RECORDS = 8
_READ_BYTES = 16 << 10
# Consecutive items often belong to one message. To find the item of the next message, at most this many items are
# read. Few messages have more keys.
_SAME_MESSAGE = 64

# A page of slots is in doubt if it has too few used slots, or leads only to old items. The limits are such that an
# intact page is in doubt with a probability below 1e-9. LEAST_DOUBT is the negative logarithm of 1e-9 (`SlotPages`).
LEAST_DOUBT = 21.0
# If the slot of a hash is in a page that may have lost slots, all items are searched for the hash. The slot is trusted
# if its chain contains the newest items with this hash. At most this many items are compared with the chain.
_MOST_COMPARED = 1 << 10
# After this many such searches of a file, all slots of the file are compared with its items, once. In a file whose keys
# do not spread evenly over the slots, such as consecutive numbers, most pages may be in doubt.
_MOST_SEARCHES = 4


def lost_items(file: IndexFileReader, last: int) -> list[int]:
    """Find the items that no look-up reaches. Suitable for files with few items.

    Only items 1 to `last` are examined. The numbers of the found items are returned in descending order.
    """
    leads_to = file.few_newest(last)
    lost = []
    links, slots = file.links(last), file.hash_slots
    for number in range(last, 0, -1):
        hashed, offset, previous = links[number - 1]
        slot = hashed % slots
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
    """Return the items, from `first` to `last` - 1, after which other items are missing.

    Between the message of such an item and the next item's message, the log has messages with keys but without items.

    files  number of files checked together; if there are very many, each file is checked less closely

    Raises StoreAccessError, StoreChangedError.
    """
    if first >= last:
        return []
    share = max(files / _FULL_SHARE, 1.0)
    widest = _widest_gaps(file, first, last, max(int(_SAMPLED_ITEMS / share), 2))
    most, gaps = max(int(_GAPS / share), 1), []
    for looked_at, number in enumerate(widest):
        if looked_at >= most:
            break
        if _misses_message(file, log, number, last):
            gaps.append(number)
            # Items are missing in this gap (the range of the log between the messages of two consecutive items). So
            # items are probably missing in other gaps as well: examine more gaps.
            most = _GAPS_IF_IN_DOUBT
    return gaps


def _widest_gaps(file: IndexFileReader, first: int, last: int, samples: int) -> Iterator[int]:
    """Yield the items that are followed by a gap in the log, approximately the widest gaps first.

    A gap is the distance between the messages of two consecutive items.
    """
    known: dict[int, int] = {}

    def offset(number: int) -> int:
        value = known.get(number)
        if value is None:
            value = known[number] = file.offset(number)
        return value

    step = max((last - first) // samples, 1)
    numbers = [*range(first, last, step), last]
    file.announce(numbers)
    offsets = [*map(offset, numbers)]
    # Widths are negated, because a heap yields the smallest value first.
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
    """Return whether unreadable bytes, or messages with keys, lie between the messages of two consecutive items.

    Only the first few messages between them are read. Raises StoreAccessError, StoreChangedError.
    """
    begin = file.offset(number)
    following = range(number + 1, min(number + _SAME_MESSAGE, last) + 1)
    ends = (end for n in following if (end := file.offset(n)) != begin)
    end = next(ends, begin)
    try:
        gap = OffsetRange(begin + log.locate(begin).layout.total_bytes, end)
    except StoreError:
        # The message of item `number` is unreadable, so it is unknown whether the next message has an item.
        return True
    if gap.start >= gap.stop:
        # No item is missing if the next item leads to the same message as item `number`, or to the message directly
        # after it.
        return end not in (begin, gap.start)
    keyed, is_damaged = first_keyed(log, gap)
    return keyed is not None or is_damaged


def first_keyed(log: CommitLogReader, gap: OffsetRange) -> tuple[int | None, bool]:
    """Return the physical offset of a message with keys, and whether bytes are unreadable, at the start of a range.

    Only the first few messages of the range are read. The offset is None if none of them has keys.

    Raises StoreAccessError, StoreChangedError.
    """
    walk = LogWalk(log, gap.start, min(gap.stop, gap.start + _READ_BYTES))
    records = (record.keyed() for _, record in zip(range(_READ_RECORDS), walk, strict=False))
    keyed = next((record.physical_offset for record in records if record.keys), None)
    return keyed, bool(walk.damage)


class LostSlotsError(UntrustedIndexError):
    """The slots in a page of the slot table do not lead to all of their items.

    `offset` is the position of the page in the IndexFile.
    """


class SlotPages:
    """Checks the slot table of one IndexFile: whether the slots near a requested slot match the items.

    After a power cut, whole pages of a memory-mapped file may be zeros, or in an earlier state. If such a page contains
    slots, look-ups miss items, although all chains seem valid. But the hashes of keys spread over all slots. So a page
    is in doubt if it has far fewer used slots than the file's other pages, or if its newest item is far older than the
    file's newest item. If hashes spread evenly, the probability that a valid page is in doubt is 1e-9. If the page of a
    requested slot is in doubt, all items are searched for the requested hash. The slot is trusted only if its chain
    contains the newest items with this hash.

    A check costs one small read per page. A doubt costs a search of all items. The fifth doubt costs one comparison of
    all slots with all items, and settles the doubts about all intact pages of the file.
    """

    def __init__(self, file: IndexFileReader) -> None:
        self._file = file
        # One flag per page.
        self.is_trusted = bytearray(file.slot_pages)
        self._searches = 0

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
        if self._searches == _MOST_SEARCHES:
            # Imported here, because it loads NumPy, which a query with few doubts does not need.
            from reput.core.index.entries import intact_slot_pages

            for intact in intact_slot_pages(self._file):
                self.is_trusted[intact] = True
        self._searches += 1
        if self.is_trusted[page]:
            return
        if not self._leads_to_all(key_hash, last):
            reason = "its page of slots does not lead to all entries"
            raise LostSlotsError(self._file.path, page * SLOT_PAGE_BYTES, reason)

    def doubt(self, slots: int, used: int, newest: int, last: int) -> float | None:
        """Return how improbable these slots are for an intact page: the negative logarithm of the probability.

        Return None if the file has too few items to estimate it.

        slots   number of slots in the page
        used    number of its slots that are not zero
        newest  highest item number in its slots
        last    number of the file's last item
        """
        header, total = self._file.header(), self._file.hash_slots
        if slots == total:
            # This page has all slots of the file. It is intact if as many slots are used as the header states, and one
            # of them leads to the file's newest item.
            is_whole = used >= header.hash_slot_count and newest >= last
            return 0.0 if is_whole or last == 0 else 2 * LEAST_DOUBT
        share = min(max(header.hash_slot_count, 1) / total, 1 - 1 / total)
        # `expected` is the estimated number of different keys whose slots are in this page. Several items of the same
        # key count once, because all of them share one slot.
        expected = min(last / total, -log1p(-share)) * slots
        if expected < LEAST_DOUBT:
            return None
        too_old = max(last - newest, 0) / last * expected
        return max(too_old, _too_few(used, slots, share))

    def _leads_to_all(self, key_hash: int, last: int) -> bool:
        """Return whether the newest items with this hash are in their slot's chain."""
        newest = deque(self._file.search(key_hash, last), maxlen=_MOST_COMPARED)
        offsets = {self._file.offset(number) for number in newest}
        if not offsets:
            return True
        least = min(offsets)
        for offset in self._file.offsets(key_hash):
            offsets.discard(offset)
            if not offsets or offset < least:
                break
        return not offsets


def _too_few(used: int, slots: int, share: float) -> float:
    """Return how improbable it is that at most `used` of `slots` slots are used.

    The result is the negative logarithm of Chernoff's upper bound of the probability.

    share  share of used slots in the whole file
    """
    part = used / slots
    if part >= share:
        return 0.0
    rest = (1 - part) * log((1 - part) / (1 - share))
    return slots * (rest + (part * log(part / share) if used else 0.0))
