"""Which stretch of the log can hold the messages of a window of time, by the seconds of an IndexFile's items.

An item says how many whole seconds after the first message of its file its own message was stored, within 31 bits
(`IndexFile.putKey`, tag rocketmq-all-4.9.3). Item 1 of a file that follows another counts from that one's end, so it
says nothing here; of a window that the first message lies in, nothing is cut off. Where the seconds of all others never
fall, which a proof finds out, two binary searches lead to the first and the last that can be of the window. A message
stored before the file's first, when the clock was put back, counts as stored with it, like whatever is asked before.

One item more is taken on either side, and the items at the edges are compared with the messages that they lead to:
where one is wrong, so may be the others, and nothing is cut off.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from reput.errors import CorruptMessageError, MessageNotFoundError
from reput.format.index_file import item_seconds
from reput.index.reader import IndexFileReader
from reput.log.keyed_record import store_timestamp
from reput.log.offset_range import OffsetRange
from reput.log.reader import CommitLogReader

_SECOND = 2
"""The first item whose seconds count from the header's begin."""


class TimeWindow(NamedTuple):
    """Store timestamps in milliseconds, both inclusive."""

    begin: int
    end: int


def at_times(
    file: IndexFileReader, log: CommitLogReader, last: int, window: TimeWindow, within: OffsetRange
) -> OffsetRange:
    """The part of a range that the messages of a window lie in.

    Args:
        file: The seconds of its items 2 to `last` never fall.
        log: Its log.
        last: Of the items, which are proved.
        window: What is asked for.
        within: Covered by these items.

    Raises StoreAccessError, StoreChangedError.
    """
    begin_ms = file.header().begin_timestamp
    if begin_ms <= 0 or last < _SECOND:
        return within
    least, most = (item_seconds(time, begin_ms) for time in window)
    numbers = range(_SECOND, last + 1)
    first = _SECOND + bisect_left(numbers, least, key=file.seconds)
    after = _SECOND + bisect_right(numbers, most, key=file.seconds)
    edges = {number for number in (first - 1, first, after - 1, after) if number in numbers}
    if not all(says_when(file, log, number, begin_ms) for number in edges):
        return within
    start = file.offset(first - 1) if first > _SECOND else within.start
    stop = file.offset(after) + 1 if after <= last else within.stop
    return OffsetRange(max(start, within.start), min(stop, within.stop))


def says_when(file: IndexFileReader, log: CommitLogReader, number: int, begin_ms: int) -> bool:
    """Whether an item's seconds are those of the message that it leads to."""
    item = file.item(number)
    try:
        record = log.locate(item.physical_offset)
    except (MessageNotFoundError, CorruptMessageError):
        return False
    return item_seconds(store_timestamp(record), begin_ms) == item.time_diff_s
