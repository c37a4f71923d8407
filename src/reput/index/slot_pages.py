"""Whether the slots around the one that is asked for are those that the file's items left there.

A power cut loses whole pages of a file that is written through a map: a page of slots comes back as zeros, or as it
was some time ago, and the items that it led to are hidden without a trace in any chain. Hashes of keys spread over
all slots, so a page that has far fewer used slots than the file's others, or whose newest item is far older than the
file's, is one that a file hardly ever has (once in a thousand million pages). It is in doubt: keys need not spread.
Then the items themselves are searched for the hash, and the slots are not believed if these do not lead to all of them.
"""

from __future__ import annotations

from array import array
from collections import deque
from math import log, log1p

from reput.index.key_index import UntrustedIndexError
from reput.index.reader import IndexFileReader

_LEAST_DOUBT = 21.0  # of a probability, as its negative logarithm: 1e-9
_MOST_COMPARED = 1 << 10
_MOST_UNFOUNDED = 4


class LostSlotsError(UntrustedIndexError):
    """A page of the slot table that does not lead to items of its slots; `offset` is in the IndexFile."""


class SlotPages:
    """The slot table of one IndexFile. Costs one small read a page, and a search of all items where one is in doubt."""

    def __init__(self, file: IndexFileReader) -> None:
        self._file = file
        self._believed: set[int] = set()
        self._unfounded = 0

    def check(self, key_hash: int) -> None:
        """Raises LostSlotsError, or BrokenChainError, where a look-up of this hash would miss an item."""
        slot = key_hash % self._file.hash_slots
        if self._file.slot_page_at(slot) in self._believed:
            return
        page, slots = self._file.slot_page(slot)
        last = self._file.next_item - 1
        doubt = self._doubt(slots, last)
        if doubt is not None and doubt < _LEAST_DOUBT:
            self._believed.add(page)
            return
        if doubt is not None and self._unfounded >= _MOST_UNFOUNDED:  # these keys do not spread
            return
        if not self._leads_to_all(key_hash, last):
            reason = "its page of slots does not lead to all entries"
            raise LostSlotsError(self._file.path, page, reason)
        self._unfounded += doubt is not None

    def _doubt(self, slots: array[int], last: int) -> float | None:
        """The negative logarithm of the probability of such a page; None where the file has too few items to tell."""
        header, total = self._file.header(), self._file.hash_slots
        used, newest = len(slots) - slots.count(0), max(slots)
        if len(slots) == total:  # all that there are
            is_whole = used >= header.hash_slot_count and newest >= last
            return 0.0 if is_whole or last == 0 else 2 * _LEAST_DOUBT
        share = min(max(header.hash_slot_count, 1) / total, 1 - 1 / total)
        # Items a slot. Those of one key share a slot: they count as one.
        expected = min(last / total, -log1p(-share)) * len(slots)
        if expected < _LEAST_DOUBT:
            return None
        too_old = max(last - newest, 0) / last * expected
        return max(too_old, _too_few(used, len(slots), share))

    def _leads_to_all(self, key_hash: int, last: int) -> bool:
        """Whether the newest items with this hash are in their slot's chain."""
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
    """Chernoff's bound for that many used slots or fewer of `slots`, when `share` of all are: -log of a probability."""
    part = used / slots
    if part >= share:
        return 0.0
    rest = (1 - part) * log((1 - part) / (1 - share))
    return slots * (rest + (part * log(part / share) if used else 0.0))
