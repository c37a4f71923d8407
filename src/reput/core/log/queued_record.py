"""Find the queues and queue offsets to which a record is dispatched."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from reput.core.log.keyed_record import read_properties
from reput.core.log.reader import LocatedRecord
from reput.format.commit_log import SYS_FLAG_COMMIT, SYS_FLAG_TRANSACTION_MASK
from reput.format.java_integer import parse_int64
from reput.format.java_string import decode_utf8, encode_utf8
from reput.format.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    LMQ_PREFIX,
    MULTI_DISPATCH_SEPARATOR,
)

DISPATCHED_TRANSACTIONS = (0, SYS_FLAG_COMMIT)
"""Transaction bits of messages that are dispatched to their queues."""
# The fields QUEUEID and QUEUEOFFSET.
_QUEUE_PLACE = struct.Struct(">12xi4xq")
_MULTI_DISPATCH = INNER_MULTI_DISPATCH.encode()


def is_dispatched(sys_flag: int) -> bool:
    """Return whether a message is dispatched to its queue: it belongs to no transaction, or to a committed one."""
    return sys_flag & SYS_FLAG_TRANSACTION_MASK in DISPATCHED_TRANSACTIONS


def own_place(record: LocatedRecord) -> tuple[str, int, int] | None:
    """Return topic, queue id and queue offset of a record; None if its transaction is open or was rolled back."""
    _, data, layout = record
    if not is_dispatched(layout.sys_flag):
        return None
    queue_id, queue_offset = _QUEUE_PLACE.unpack_from(data, layout.position)
    topic = data[layout.topic_position : layout.topic_position + layout.topic_bytes]
    return decode_utf8(topic), queue_id, queue_offset


def queue_offset_in(record: LocatedRecord, topic: str, queue_id: int) -> int | None:
    """Return a record's queue offset in a queue; None if the record is not in this queue.

    The queue is the record's own queue, or one that its property INNER_MULTI_DISPATCH names.

    Mirrors `DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue` and `ConsumeQueue.multiDispatchLmqQueue` (tag
    rocketmq-all-4.9.3).
    """
    _, data, layout = record
    if not is_dispatched(layout.sys_flag):
        return None
    own_id, queue_offset = _QUEUE_PLACE.unpack_from(data, layout.position)
    own_topic = data[layout.topic_position : layout.topic_position + layout.topic_bytes]
    if own_id == queue_id and own_topic == encode_utf8(topic):
        return int(queue_offset)
    return _further_offset(record, topic, queue_id, own_id)


def is_restarted(record: LocatedRecord, topic: str, queue_offset: int) -> bool:
    """Return whether this is the first message that a restarted broker put into a queue of INNER_MULTI_DISPATCH.

    A restarted broker counts queue offsets in such queues from 0 again, and appends the message with queue offset 0 at
    the queue's end.
    """
    layout = record.layout
    own_topic = record.data[layout.topic_position : layout.topic_position + layout.topic_bytes]
    return queue_offset == 0 and own_topic != encode_utf8(topic)


def names_further_queues(record: LocatedRecord) -> bool:
    """Return whether a record has the property INNER_MULTI_DISPATCH, which names further queues of the message."""
    start = record.layout.properties_position
    stop = start + record.layout.properties_bytes
    return record.data.find(_MULTI_DISPATCH, start, stop) >= 0


def further_places(record: LocatedRecord) -> Iterator[tuple[str, int, int]]:
    """Yield topic, queue id and queue offset of each queue that INNER_MULTI_DISPATCH names.

    This function does not check whether the message is dispatched (`is_dispatched`).
    """
    if not names_further_queues(record):
        return
    own_id, _ = _QUEUE_PLACE.unpack_from(record.data, record.layout.position)
    yield from further_queues(read_properties(record), own_id)


def further_queues(properties: Mapping[str, str], own_id: int) -> Iterator[tuple[str, int, int]]:
    """Yield topic, queue id and queue offset of each queue that INNER_MULTI_DISPATCH in `properties` names.

    `own_id` is the queue id of the message in its own topic. A named queue gets this id too, unless it is a light queue
    (%LMQ%), whose id is 0.

    As in `DefaultMessageStore.multiDispatchLmqQueue`, nothing is yielded if the numbers of names and offsets differ,
    and the list ends at the first offset that is not a number.
    """
    names, offsets = (
        # Java's split drops empty strings at the end.
        properties.get(name, "").rstrip(MULTI_DISPATCH_SEPARATOR).split(MULTI_DISPATCH_SEPARATOR)
        for name in (INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET)
    )
    if len(names) != len(offsets):
        return
    for name, offset in zip(names, offsets, strict=True):
        try:
            number = parse_int64(offset)
        except ValueError:
            return
        if number >= 0:
            yield name, 0 if name.startswith(LMQ_PREFIX) else own_id, number


def may_skew(before: int, after: int, taken: int) -> bool:
    """Return whether a broker can have written two successive entries with the lags `before` and `after`.

    The entries belong to a light queue (%LMQ%). The lag of an entry is its message's queue offset minus the entry's
    index in the queue. A 5.x broker also gives queue offsets of light queues to messages of open and rolled-back
    transactions. These messages get no entry, and the next entry is appended at the queue's end. A restarted broker
    counts from this end (`LmqDispatch.updateLmqOffsets`, `ConsumeQueue.putMessagePositionInfo`,
    `AbstractConsumeQueueStore.setTopicQueueTable`, tag rocketmq-all-5.3.3).

    Args:
        before: Lag of the first entry.
        after: Lag of the second entry.
        taken: Number of messages between the two that got a queue offset, but no entry.
    """
    return 0 <= after - before <= taken or 0 <= after <= taken


def _further_offset(record: LocatedRecord, topic: str, queue_id: int, own_id: int) -> int | None:
    for name, further_id, offset in further_places(record):
        # The id of a light queue (%LMQ%) is 0. But a broker without enableLmq uses `own_id`, the id of the queue in the
        # message's own topic.
        if name == topic and queue_id in (further_id, own_id):
            return offset
    return None
