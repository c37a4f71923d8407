"""Find the range of the log that can contain messages of a time window, by the seconds of an IndexFile's items.

An item holds the whole seconds from the first message of its file to its own message, within 31 bits
(`IndexFile.putKey`, tag rocketmq-all-4.9.3). The seconds of item 1 count from the end timestamp of the previous file,
so item 1 is ignored here. If a proof has shown that the seconds of the other items never decrease, two binary searches
find the first and the last item of the window. If the window includes the time of the file's first message, the result
begins at the start of the log range that the file covers.

If the clock was set back, messages may have store times before the file's first message. They count as stored at the
time of the first message. If a bound of the window is before this time, this time is used instead.

The range is extended by one item on either side, and the items at its edges are compared with their messages. If an
item states another time than its message, other items may be wrong as well, so the range is not limited.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from reput.core.index.key_index import TimeWindow
from reput.core.index.reader import IndexFileReader
from reput.core.log.keyed_record import store_timestamp
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.errors import CorruptMessageError, MessageNotFoundError
from reput.format.index_file import item_seconds

_SECOND = 2
"""Number of the first item whose seconds count from the header's begin timestamp.

The seconds of item 1 count from the end timestamp of the previous file.
"""


def at_times(
    file: IndexFileReader, log: CommitLogReader, last: int, window: TimeWindow, within: OffsetRange
) -> OffsetRange:
    """Return a part of `within`. The rest of `within` has no messages that were stored in the time window.

    Args:
        file: The IndexFile. The seconds of its items 2 to `last` must never decrease; item 1 is not used.
        log: The log that it indexes.
        last: Number of the last item that a `Proof` of the IndexFile compared with the log.
        window: Requested times.
        within: Range of the log that items 1 to `last` cover.

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
    """Return whether an item's seconds, which count from `begin_ms`, agree with its message's store timestamp."""
    item = file.item(number)
    try:
        record = log.locate(item.physical_offset)
    except (MessageNotFoundError, CorruptMessageError):
        return False
    return item_seconds(store_timestamp(record), begin_ms) == item.time_diff_s
