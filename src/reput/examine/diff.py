"""Two stores compared: messages, ConsumeQueue entries, index entries, headers.

Where both are copies of one log, a master's and a replica's for instance, records are paired by physical offset and
files with the same bytes are not looked into. Else they are paired by topic, queue and queue offset, and their content
is the record without its physical offset. All of it over arrays; memory is bounded (`logs.MOST_ROWS`,
`index.MOST_ITEMS`), at the price of several passes over large stores.
"""

from __future__ import annotations

from reput.examine.comparing.difference import Difference, Extent
from reput.examine.comparing.index import compare_index
from reput.examine.comparing.logs import LogComparison, find_way
from reput.examine.comparing.queues import compare_queues
from reput.query.message_store import MessageStore


def diff(a: MessageStore, b: MessageStore) -> Difference:
    """What differs between two open stores. Nothing is written.

    Raises:
        StoreAccessError, StoreChangedError: a file cannot be read, or became shorter.
        StoreNotFoundError: files expired meanwhile.
    """
    stores = a, b
    extents = [Extent(store.begin_offset(), store.end_offset()) for store in stores]
    found = Difference(find_way(stores), (extents[0], extents[1]))
    LogComparison(stores, found).run()
    compare_queues(stores, found)
    compare_index(stores, found)
    if a.checkpoint() != b.checkpoint():
        found.notes.append(f"checkpoints differ: {a.checkpoint()}, but {b.checkpoint()}")
    return found
