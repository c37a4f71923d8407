"""Decide whether a record belongs to the entry that leads to it.

The rule is that of recovery (`reput.engine.compare.placement`): an existing entry of a message keeps its queue offset,
whatever the record states, because no checksum covers the queue offset in a record. A broker serves by its entries
alone. But an entry that was overwritten with another message's entry hides a message. So a record that states another
queue offset than its entry belongs to the entry only if no other entry leads to it, and if the log does not have more
messages of the queue before it than the queue has entries.
"""

from __future__ import annotations

from typing import NamedTuple

from reput.core.log.queued_record import is_restarted, own_place, queue_offset_in
from reput.core.log.reader import LocatedRecord
from reput.core.log.walk import LogWalk
from reput.core.queues.queue_index import LostEntriesError, QueueReader
from reput.core.store.store_reader import StoreReader
from reput.errors import CorruptMessageError, MessageNotFoundError, StoreError
from reput.format.commit_log import HEAD
from reput.format.consume_queue import PRE_BLANK, ConsumeQueueEntry

# Number of entries in which the previous message is searched.
_ENTRIES_BACK = 64
# At most this many bytes of the log are searched for messages that are missing between two entries of a queue.
_MOST_WALKED_BYTES = 4 << 20


class QueuePlace(NamedTuple):
    """A queue, and a queue offset in it."""

    topic: str
    queue_id: int
    queue_offset: int


def is_in_place(
    store: StoreReader, queue: QueueReader, place: QueuePlace, record: LocatedRecord
) -> bool:
    """Return whether the entry at `place` may lead to `record`.

    Brokers write records that state other queue offsets than their entries: after messages were lost (the queue has no
    positions for them), after a queue offset was given twice (a replica that became the master), and in further queues
    (INNER_MULTI_DISPATCH) after a restart.
    """
    topic, queue_id, queue_offset = place
    stated = queue_offset_in(record, topic, queue_id)
    if stated is None or stated == queue_offset:
        return stated is not None
    # With two wrong offsets, nothing shows that the record was written for this place.
    if HEAD.unpack_from(record.data, record.layout.position)[6] != record.physical_offset:
        return False
    if is_restarted(record, topic, stated):
        return True
    least = queue.min_queue_offset(store.commit_log.min_offset)
    if least <= stated and _leads_to(queue, stated, record):
        return False
    number, previous = _previous(store, queue, place, record.physical_offset)
    if previous is None:
        # There is no previous message to compare this one with: all earlier entries have expired, or are lost.
        return True
    try:
        before = store.commit_log.locate(previous.physical_offset, previous.size)
    except (CorruptMessageError, MessageNotFoundError):
        begin = previous.physical_offset + 1
    else:
        begin = before.physical_offset + before.layout.total_bytes
        if (number, queue_offset_in(before, topic, queue_id)) == (queue_offset - 1, stated - 1):
            return True
    stop = min(record.physical_offset, begin + _MOST_WALKED_BYTES)
    between = sum(
        queue_offset_in(other, topic, queue_id) is not None
        for other in LogWalk(store.commit_log, begin, stop)
    )
    return between < queue_offset - number


def _leads_to(queue: QueueReader, queue_offset: int, record: LocatedRecord) -> bool:
    try:
        return queue.entry(queue_offset).physical_offset == record.physical_offset
    except StoreError:
        return False


def _previous(
    store: StoreReader, queue: QueueReader, place: QueuePlace, stop: int
) -> tuple[int, ConsumeQueueEntry | None]:
    """Return the last entry of a message that begins before `stop`, and its queue offset.

    Only the entries shortly before `place` are examined. Without such an entry, the second value is None.
    """
    log = store.commit_log
    position = max(queue.min_queue_offset(log.min_offset), place.queue_offset - _ENTRIES_BACK)
    number = position - 1
    previous: ConsumeQueueEntry | None = None
    while position < place.queue_offset:
        try:
            for found, entry in queue.numbered(position, place.queue_offset):
                begin = -1 if previous is None else previous.physical_offset
                if entry != PRE_BLANK and begin < entry.physical_offset < stop:
                    number, previous = found, entry
            break
        except LostEntriesError as error:
            position = max(error.resume_offset, position + 1)
    return number, previous


def not_its_own(record: LocatedRecord, topic: str, queue_id: int, queue_offset: int) -> str:
    """Return a description such as `the entry of T/0, queue offset 5, leads to a message of U/1, queue offset 3`."""
    own = own_place(record)
    whose = "of no queue" if own is None else f"of {own[0]}/{own[1]}, queue offset {own[2]}"
    return (
        f"the entry of {topic}/{queue_id}, queue offset {queue_offset}, leads to a message {whose}"
    )
