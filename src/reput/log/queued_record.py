"""Which places of which queues a record is dispatched to."""

from __future__ import annotations

import struct

from reput.format.commit_log import SYS_FLAG_COMMIT, SYS_FLAG_TRANSACTION_MASK
from reput.format.java_string import decode_utf8, encode_utf8
from reput.format.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    LMQ_PREFIX,
    MULTI_DISPATCH_SEPARATOR,
)
from reput.log.keyed_record import read_properties
from reput.log.reader import LocatedRecord

DISPATCHED_TRANSACTIONS = (0, SYS_FLAG_COMMIT)
"""Transaction bits of messages that go to their queues."""
_QUEUE_PLACE = struct.Struct(">12xi4xq")  # QUEUEID, QUEUEOFFSET
_MULTI_DISPATCH = INNER_MULTI_DISPATCH.encode()


def is_dispatched(sys_flag: int) -> bool:
    """Whether a message goes to its queue: not one of a transaction that is open or was rolled back."""
    return sys_flag & SYS_FLAG_TRANSACTION_MASK in DISPATCHED_TRANSACTIONS


def own_place(record: LocatedRecord) -> tuple[str, int, int] | None:
    """Topic, queue id and queue offset of a record; None for one of a transaction that is open or was rolled back."""
    _, data, layout = record
    if not is_dispatched(layout.sys_flag):
        return None
    queue_id, queue_offset = _QUEUE_PLACE.unpack_from(data, layout.position)
    topic = data[layout.topic_position : layout.topic_position + layout.topic_bytes]
    return decode_utf8(topic), queue_id, queue_offset


def queue_offset_in(record: LocatedRecord, topic: str, queue_id: int) -> int | None:
    """The queue offset that a record has in this queue, be it its own or a further one; None where it is not in it.

    Mirrors `DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue` and `ConsumeQueue.multiDispatchLmqQueue`
    (tag rocketmq-all-4.9.3).
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
    """Whether this is the first that a broker put into a further queue after its start.

    It counts such queues from 0 again, and appends a queue offset of 0 wherever the queue ends.
    """
    layout = record.layout
    own_topic = record.data[layout.topic_position : layout.topic_position + layout.topic_bytes]
    return queue_offset == 0 and own_topic != encode_utf8(topic)


def _further_offset(record: LocatedRecord, topic: str, queue_id: int, own_id: int) -> int | None:
    _, data, layout = record
    start = layout.properties_position
    if data.find(_MULTI_DISPATCH, start, start + layout.properties_bytes) < 0:
        return None
    properties = read_properties(record)
    names = properties.get(INNER_MULTI_DISPATCH, "").split(MULTI_DISPATCH_SEPARATOR)
    offsets = properties.get(INNER_MULTI_QUEUE_OFFSET, "").split(MULTI_DISPATCH_SEPARATOR)
    for name, offset in zip(names, offsets, strict=False):
        # A broker without enableLmq has no queue 0 of its own for these.
        in_queue = queue_id == own_id or (queue_id == 0 and name.startswith(LMQ_PREFIX))
        if name == topic and in_queue and offset.isascii() and offset.isdigit():
            return int(offset)
    return None
