"""A record of the log with checked lengths, and what it states: its message, its keys, and its places in queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from reput.format.commit_log import (
    PHYSICAL_OFFSET,
    QUEUE_PLACE,
    STORE_TIMESTAMP,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_TRANSACTION_MASK,
    MessageExt,
    RecordLayout,
    decode_located,
    is_dispatched,
)
from reput.format.index_file import index_key, key_hash, tag_key
from reput.format.java_string import decode_utf8, encode_utf8, parse_int64
from reput.format.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    LMQ_PREFIX,
    MULTI_DISPATCH_SEPARATOR,
    TAGS,
    UNIQ_KEY,
    decode_properties,
    index_keys,
    replaced_ids,
)

_MULTI_DISPATCH = INNER_MULTI_DISPATCH.encode()


class KeyedRecord(NamedTuple):
    """Topic and keys of a record, as a broker would index them.

    physical_offset  place of the record in the log
    stated_offset    the physical offset that the record states
    keys             keys of its index entries: the unique key, then KEYS; empty for a rolled-back message,
                     because a broker does not index it
    tags             the message's tags, which a broker of 5.4 or later indexes; empty for a rolled-back message
    own_ids          values of UNIQ_KEY without an index entry: if a record has several, only the last one is indexed
    """

    physical_offset: int
    stated_offset: int
    size_bytes: int
    topic: str
    keys: tuple[str, ...]
    unique_key: str | None
    store_timestamp: int
    own_ids: tuple[str, ...] = ()
    tags: str = ""

    def has_key_hash(self, wanted: int) -> bool:
        """Return whether an index entry with this hash can refer to this record."""
        # The unique key comes last: it is the longest key, and rarely the wanted one.
        keys = reversed(self.keys)
        return any(
            key_hash(index_key(self.topic, key)) == wanted for key in keys
        ) or self.has_tags_hash(wanted)

    def has_tags_hash(self, wanted: int) -> bool:
        """Return whether this is the hash of the index entry for the record's tags."""
        return bool(self.tags) and key_hash(index_key(self.topic, tag_key(self.tags))) == wanted


class LocatedRecord(NamedTuple):
    """A record with checked lengths: its place in the log, and bytes of the log that contain it.

    In RocketMQ: SelectMappedBufferResult.
    """

    physical_offset: int
    data: bytes
    layout: RecordLayout

    def record(self) -> bytes:
        """Return the record's own bytes as stored."""
        position, total_bytes = self.layout.position, self.layout.total_bytes
        return self.data[position : position + total_bytes]

    def alone(self) -> LocatedRecord:
        """Return a copy without adjacent bytes, so that keeping a record does not keep a whole window in memory."""
        return LocatedRecord(self.physical_offset, self.record(), self.layout.at_zero())

    def stated_offset(self) -> int:
        """Return the physical offset that the record states."""
        return int(PHYSICAL_OFFSET.unpack_from(self.data, self.layout.position)[0])

    def store_timestamp(self) -> int:
        """Return the record's store time, in milliseconds since 1970."""
        return int(STORE_TIMESTAMP.unpack_from(self.data, self.layout.store_timestamp_position)[0])

    def topic(self) -> str:
        """Return the record's topic."""
        return decode_utf8(self._topic_bytes())

    def _topic_bytes(self) -> bytes:
        start = self.layout.topic_position
        return self.data[start : start + self.layout.topic_bytes]

    def properties_text(self) -> str:
        """Return the record's properties as one string."""
        start = self.layout.properties_position
        return decode_utf8(self.data[start : start + self.layout.properties_bytes])

    def properties(self) -> dict[str, str]:
        """Return the record's properties as the broker's parser reads them."""
        return decode_properties(self.properties_text())

    def keyed(self) -> KeyedRecord:
        """Return the parts of the record that a query by key needs, without its body and hosts."""
        # Each candidate of a query runs this, so it calls few methods and names no fields.
        offset, data, layout = self
        start, topic = layout.properties_position, layout.topic_position
        text = decode_utf8(data[start : start + layout.properties_bytes])
        stated = PHYSICAL_OFFSET.unpack_from(data, layout.position)[0]
        stored = STORE_TIMESTAMP.unpack_from(data, layout.store_timestamp_position)[0]
        name = decode_utf8(data[topic : topic + layout.topic_bytes])
        if layout.sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_ROLLBACK:
            return KeyedRecord(offset, stated, layout.total_bytes, name, (), None, stored)
        properties = decode_properties(text)
        return KeyedRecord(
            offset, stated, layout.total_bytes, name, tuple(index_keys(properties)),
            properties.get(UNIQ_KEY), stored, tuple(replaced_ids(text)), properties.get(TAGS, ""),
        )  # fmt: skip

    def own_place(self) -> tuple[str, int, int] | None:
        """Return topic, queue id and queue offset of a record; None if its transaction is open or was rolled back."""
        _, data, layout = self
        if not is_dispatched(layout.sys_flag):
            return None
        queue_id, queue_offset = QUEUE_PLACE.unpack_from(data, layout.position)
        return self.topic(), queue_id, queue_offset

    def queue_offset_in(self, topic: str, queue_id: int) -> int | None:
        """Return a record's queue offset in a queue; None if the record is not in this queue.

        The queue is the record's own queue, or one that its property INNER_MULTI_DISPATCH names.

        Mirrors `DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue` and `ConsumeQueue.multiDispatchLmqQueue` (tag
        rocketmq-all-4.9.3).
        """
        _, data, layout = self
        if not is_dispatched(layout.sys_flag):
            return None
        own_id, queue_offset = QUEUE_PLACE.unpack_from(data, layout.position)
        if own_id == queue_id and self._topic_bytes() == encode_utf8(topic):
            return int(queue_offset)
        for name, further_id, offset in self.further_places():
            # The id of a light queue (%LMQ%) is 0. But a broker without enableLmq uses `own_id`, the id of the queue in
            # the message's own topic.
            if name == topic and queue_id in (further_id, own_id):
                return offset
        return None

    def is_restarted(self, topic: str, queue_offset: int) -> bool:
        """Return whether this is the first message that a restarted broker put into a queue of INNER_MULTI_DISPATCH.

        A restarted broker counts queue offsets in such queues from 0 again, and appends the message with queue offset 0
        at the queue's end.
        """
        return queue_offset == 0 and self._topic_bytes() != encode_utf8(topic)

    def names_further_queues(self) -> bool:
        """Return whether a record has the property INNER_MULTI_DISPATCH, which names further queues of the message."""
        start = self.layout.properties_position
        stop = start + self.layout.properties_bytes
        return self.data.find(_MULTI_DISPATCH, start, stop) >= 0

    def further_places(self) -> Iterator[tuple[str, int, int]]:
        """Yield topic, queue id and queue offset of each queue that INNER_MULTI_DISPATCH names.

        This function does not check whether the message is dispatched (`is_dispatched`).
        """
        if not self.names_further_queues():
            return
        own_id, _ = QUEUE_PLACE.unpack_from(self.data, self.layout.position)
        yield from further_queues(self.properties(), own_id)

    def is_in_place(self) -> bool:
        """Return whether the record states the physical offset at which it was found.

        If not, the record belongs to another file. The message that was stored here is lost.
        """
        # This runs for each message that is read, so it calls no other method.
        stated = PHYSICAL_OFFSET.unpack_from(self.data, self.layout.position)[0]
        return bool(stated == self.physical_offset)

    def message(self) -> MessageExt:
        """Return the message. Its physical offset is where the record was found, even if the record states another."""
        message = decode_located(self.data, self.layout)
        if message.physical_offset == self.physical_offset:
            return message
        return replace(message, physical_offset=self.physical_offset)


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
