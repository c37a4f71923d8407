"""Which part of the log an IndexFile really speaks for.

A broker never takes an entry out of the index. When damage made it cut its log short, the index
still points to what was cut off, and the messages written over it since are not indexed until the
log has grown past the old end (`IndexService.buildIndex` skips what lies before `endPhyOffset`).
So an entry is believed when the record it points to is there and has a key with its hash. A file's
first and last entries are checked, and a number between them; from one that holds to one that does
not, the edge is found by bisection. A stretch shorter than the distance between two checked
entries can escape.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from reput.errors import StoreError
from reput.query.result import OffsetRange
from reput.store.commit_log import CommitLog
from reput.store.index_file_reader import IndexFileReader
from reput.store.keyed_record import read_keyed_record

_CHECKED_ENTRIES = 16
_CHECKED_ENTRIES_IF_IN_DOUBT = 512
_CHAINS_PER_LOST_ONE = 50


def covered_ranges(file: IndexFileReader, log: CommitLog, last: int) -> list[OffsetRange]:
    """Ranges of the log whose messages are all in items 1 to `last` of this file, oldest first.

    Each goes from the end of one entry's message to the beginning of another's, for the keys of one
    message may fall into two files; only where the head of the log has expired does one begin with
    the log. Raises StoreAccessError.
    """

    def holds(item: int) -> bool:
        return file.is_in_order(item, last) and entry_holds(file, log, item)

    first = bisect_left(
        range(last + 1), log.min_offset, lo=1, key=lambda n: file.item(n).physical_offset
    )
    ranges = []
    for begin, end in _runs(first, last, holds):
        expired = begin > 1 and 0 <= file.item(begin - 1).physical_offset < log.min_offset
        start = log.min_offset if expired else _end_of_message(log, file, begin)
        stop = file.item(end).physical_offset
        if start < stop:
            ranges.append(OffsetRange(start, stop))
    return ranges


def chains_hold(file: IndexFileReader, last: int) -> bool:
    """Whether the slots lead to the entries, as far as the checked ones show.

    A single broken chain is left to whoever follows it; here it is about lost pages.
    """
    if all(map(file.reaches, _spread(last, _CHECKED_ENTRIES))):
        return True
    more = _spread(last, _CHECKED_ENTRIES_IF_IN_DOUBT)
    lost = sum(not file.reaches(number) for number in more)
    return lost <= len(more) // _CHAINS_PER_LOST_ONE


def _spread(last: int, count: int) -> range:
    """About so many items of 1 to `last`, at equal distances."""
    return range(last, 0, -max(last // count, 1))


def entry_holds(file: IndexFileReader, log: CommitLog, number: int) -> bool:
    """Whether the record that an item points to is there, and has a key with the item's hash."""
    item = file.item(number)
    try:
        record = read_keyed_record(log.locate(item.physical_offset))
    except StoreError:
        return False
    return record.stated_offset == item.physical_offset and record.has_key_hash(item.key_hash)


def _end_of_message(log: CommitLog, file: IndexFileReader, number: int) -> int:
    offset = file.item(number).physical_offset
    return offset + log.locate(offset).layout.total_bytes


def _runs(first: int, last: int, holds: Callable[[int], bool]) -> Iterator[tuple[int, int]]:
    """Runs (begin, end) of items from first to last that hold, as far as the checked ones show."""
    step = max((last - first) // _CHECKED_ENTRIES, 1)
    checked = [*range(first, last, step), last] if first <= last else []
    begin: int | None = None
    before: int | None = None
    for number in checked:
        if holds(number):
            if begin is None:
                begin = number if before is None else _edge(before, number, holds)
        elif begin is not None and before is not None:
            yield begin, _edge(number, before, holds)
            begin = None
        before = number
    if begin is not None:
        yield begin, last


def _edge(bad: int, good: int, holds: Callable[[int], bool]) -> int:
    """The item that holds and has a neighbour, towards `bad`, that does not."""
    while abs(good - bad) > 1:
        middle = (good + bad) // 2
        if holds(middle):
            good = middle
        else:
            bad = middle
    return good
