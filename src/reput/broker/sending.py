"""Messages that are sent to a broker, as it stores them.

Mirrors `AbstractSendMessageProcessor.msgCheck`, `SendMessageProcessor` and `TopicValidator` (tag rocketmq-all-4.9.3).
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from reput.broker.groups import GroupConfig, SubscriptionGroups
from reput.broker.limits import CLUSTER, LimitError, Limits, check_name
from reput.broker.topics import PERM_INHERIT, PERM_READ, PERM_WRITE, TopicConfig, TopicTable
from reput.errors import MessageRefusedError, ReputError
from reput.format.commit_log import SYS_FLAG_TRANSACTION_MASK, MessageExt
from reput.format.host import Host
from reput.format.java_string import encode_utf8, hash_map_order
from reput.format.properties import CLUSTER as CLUSTER_PROPERTY
from reput.format.properties import (
    DEAD_LETTER_TOPIC_PREFIX,
    DEFAULT_TOPIC,
    DELAY,
    HALF_TOPIC,
    NOT_ALLOWED_SEND_TOPICS,
    ORIGIN_MESSAGE_ID,
    PREPARED,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RETRY_TOPIC,
    RETRY_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    TRACE_TOPIC_PREFIX,
    WAIT,
    decode_properties,
    encode_properties,
)
from reput.writer.put.message import Message

_BATCHED = struct.Struct(">iiiii")  # TOTALSIZE, MAGIC, BODYCRC, FLAG, body length
_PROPERTIES_LENGTH = struct.Struct(">h")
_DELAYED = re.compile(rb"(?:^|\x02)DELAY\x01[1-9]")
_RECORD_BYTES = 91
"""Of a record with hosts of IPv4 without its body, topic and properties."""
DEAD_LETTER_QUEUES = 1
_FIRST_LEVEL = 3


class SendRefusedError(ReputError):
    """A message that a broker does not take."""


class NoSuchTopicError(SendRefusedError):
    """Its topic does not exist, and cannot be created."""


class NotAllowedError(SendRefusedError):
    """Nobody may send to its topic."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What a client sends: one message, or a batch of one queue.

    Attributes:
        example: topic after whose example its own is created, with at most `example_queues` queues
        queue_id: below 0 for any
        properties: the properties string as it was sent
        most_retries: how often a message of a retry topic may have been retried; None for its group's limit
    """

    topic: str
    body: bytes
    example: str = DEFAULT_TOPIC
    example_queues: int = 4
    queue_id: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    flag: int = 0
    properties: str = ""
    reconsume_times: int = 0
    is_unit: bool = False
    most_retries: int | None = None
    born_host: Host | None = None


class SentMessages:
    """Turns what clients send into messages to put."""

    def __init__(
        self,
        topics: TopicTable,
        groups: SubscriptionGroups,
        most_in_batch: int = Limits().batch_messages,
        cluster: str = CLUSTER,
    ) -> None:
        self._topics, self._groups, self._most_in_batch = topics, groups, most_in_batch
        self._cluster = cluster

    def message(self, sent: Sent) -> tuple[Message, bool]:
        """The message to put, and whether its sender waits until it is durable. Raises SendRefusedError."""
        config = self.topic_of(sent)
        queue_id = _queue(sent, config)
        topic = sent.topic
        if topic.startswith(RETRY_TOPIC_PREFIX):
            topic, queue_id = self._retried(sent, queue_id)
        given = decode_properties(sent.properties)
        waits = _waits(given)
        given.pop(WAIT, None)
        given[CLUSTER_PROPERTY] = self._cluster
        if topic.startswith(DEAD_LETTER_TOPIC_PREFIX) or given.get(DELAY) == "0":
            given.pop(DELAY, None)
        if DELAY in given:  # where it was delivered before is not where it was delivered now
            given.pop(REAL_TOPIC, None)
            given.pop(REAL_QUEUE_ID, None)
        message = _message(sent, topic, queue_id, sent.body, sent.flag, given)
        if given.get(PREPARED, "").lower() == "true":
            message = _prepared(message, given)
        return message, waits

    def batch_queue(self, sent: Sent) -> tuple[int, bool]:
        """The queue of a batch, and whether its sender waits until it is durable. Raises SendRefusedError."""
        queue_id = _queue(sent, self.topic_of(sent))
        return queue_id, _waits(decode_properties(sent.properties))

    def batch(self, sent: Sent, queue_id: int) -> list[Message]:
        """The messages of a batch, in any thread. Raises MessageRefusedError, LimitError."""
        messages: list[Message] = []
        for flag, body, properties in _batched(sent.body):
            if len(messages) == self._most_in_batch:
                raise LimitError(f"a batch has at most {self._most_in_batch} messages")
            given = decode_properties(properties)
            given.pop(WAIT, None)
            given[CLUSTER_PROPERTY] = self._cluster
            messages.append(_message(sent, sent.topic, queue_id, body, flag, given))
        return messages

    def topic_of(self, sent: Sent) -> TopicConfig:
        """The topic of a message, created where the broker creates it. Raises SendRefusedError."""
        topic = sent.topic
        # Timers and deliveries of a broker put what they find in these into whichever topic it names.
        is_internal = topic.startswith(SYSTEM_TOPIC_PREFIX)
        is_traced = topic.startswith(TRACE_TOPIC_PREFIX)
        if topic in NOT_ALLOWED_SEND_TOPICS or (is_internal and not is_traced):
            raise NotAllowedError(f"Sending message to topic[{topic}] is forbidden.")
        config = self._topics.get(topic)
        if config is not None:
            if not config.is_writable:
                raise NotAllowedError(f"the topic[{topic}] sending message is forbidden")
            return config
        check_name(topic, "topic")
        return self._created(sent)

    def _created(self, sent: Sent) -> TopicConfig:
        example = self._topics.get(sent.example)
        if example is not None and example.perm & PERM_INHERIT:
            queues = max(min(sent.example_queues, example.write_queues), 0)
            return self._topics.create(sent.topic, queues, example.perm & ~PERM_INHERIT)
        if sent.topic.startswith(RETRY_TOPIC_PREFIX):
            return self._topics.create(sent.topic, 1, PERM_READ | PERM_WRITE)
        raise NoSuchTopicError(f"topic[{sent.topic}] not exist, apply first please!")

    def _retried(self, sent: Sent, queue_id: int) -> tuple[str, int]:
        """Where a message of a retry topic goes: to the dead letters, once it was retried often enough."""
        group = self._groups.get(sent.topic.removeprefix(RETRY_TOPIC_PREFIX))
        most = group.most_retries if sent.most_retries is None else sent.most_retries
        if sent.reconsume_times < most:
            return sent.topic, queue_id
        return dead_letter_topic(self._topics, group), 0


def dead_letter_topic(topics: TopicTable, group: GroupConfig) -> str:
    """The topic of a group's dead letters, created where there is none."""
    name = f"{DEAD_LETTER_TOPIC_PREFIX}{group.name}"
    return topics.create(name, DEAD_LETTER_QUEUES, PERM_READ | PERM_WRITE).name


def encoded(properties: Mapping[str, str]) -> bytes:
    """The properties string that a broker makes of a map."""
    ordered = {name: properties[name] for name in hash_map_order(tuple(properties))}
    return encode_utf8(encode_properties(ordered))


def counted_topic(message: Message) -> str:
    """Return the topic under which a broker counts a message: that in which it waits, if it is delayed."""
    is_delayed = _DELAYED.search(_properties_of(message)) is not None
    return SCHEDULE_TOPIC if is_delayed else message.topic


def message_bytes(message: Message) -> int:
    """Return how many bytes a message takes in the log, but for properties that the store adds."""
    size = _RECORD_BYTES + len(message.body) + len(message.topic)
    return size + len(_properties_of(message))


def _properties_of(message: Message) -> bytes:
    """Return the properties of a message that was made here."""
    return message.properties if isinstance(message.properties, bytes) else b""


def _waits(properties: Mapping[str, str]) -> bool:
    """Whether the sender waits until its message is durable."""
    return properties.get(WAIT, "true").lower() != "false"


def _queue(sent: Sent, config: TopicConfig) -> int:
    if sent.queue_id >= max(config.write_queues, config.read_queues):
        raise SendRefusedError(f"request queueId[{sent.queue_id}] is illegal, {config}")
    if sent.queue_id < 0:
        return random.randrange(max(config.write_queues, 1))
    return sent.queue_id


def real_queue(properties: Mapping[str, str]) -> tuple[str, int] | None:
    """Topic and queue of a message that waits in another one; None where nothing says where it belongs."""
    topic, queue_id = properties.get(REAL_TOPIC), properties.get(REAL_QUEUE_ID, "")
    if not topic or not (queue_id.isascii() and queue_id.isdigit()):
        return None
    return topic, int(queue_id)


def _message(
    sent: Sent, topic: str, queue_id: int, body: bytes, flag: int, properties: Mapping[str, str]
) -> Message:
    return Message(
        topic, body, None, None, queue_id, encoded(properties), flag, sent.sys_flag,
        sent.born_timestamp, sent.born_host, sent.reconsume_times,
    )  # fmt: skip


def _prepared(message: Message, given: dict[str, str]) -> Message:
    """A message of a transaction waits in a topic of its own (`parseHalfMessageInner`)."""
    given = {**given, REAL_TOPIC: message.topic, REAL_QUEUE_ID: str(message.queue_id)}
    given.pop(DELAY, None)
    flags = message.sys_flag & ~SYS_FLAG_TRANSACTION_MASK
    return replace(message, topic=HALF_TOPIC, queue_id=0, sys_flag=flags, properties=encoded(given))


def _batched(data: bytes) -> Iterator[tuple[int, bytes, str]]:
    """Flag, body and properties of each message of a batch (`MessageDecoder.decodeMessages`).

    Raises MessageRefusedError.
    """
    position = 0
    while position < len(data):
        try:
            total, _, _, flag, body_bytes = _BATCHED.unpack_from(data, position)
            body_at = position + _BATCHED.size
            length = _PROPERTIES_LENGTH.unpack_from(data, body_at + max(body_bytes, 0))[0]
            properties_at = body_at + body_bytes + _PROPERTIES_LENGTH.size
            stop = properties_at + length
            if min(body_bytes, length) < 0 or stop != position + total or stop > len(data):
                raise MessageRefusedError(f"a batch whose message at byte {position} is cut off")
            text = data[properties_at:stop].decode()
        except (struct.error, UnicodeDecodeError):
            raise MessageRefusedError(
                f"a batch whose message at byte {position} is cut off"
            ) from None
        yield flag, data[body_at : body_at + body_bytes], text
        position = stop


def sent_back(
    topics: TopicTable, group: GroupConfig, stored: MessageExt, delay_level: int, most: int | None
) -> Message | None:
    """The message to put for one that a group sends back; None where the group has no retries.

    Args:
        delay_level: of the next attempt; 0 for one that grows with the attempts, below 0 for no further attempt
        most: attempts after which it is a dead letter; None for the group's
    """
    if group.retry_queues <= 0:
        return None
    limit = group.most_retries if most is None else most
    properties = dict(stored.properties)
    properties.setdefault(RETRY_TOPIC, stored.topic)
    if not properties.get(ORIGIN_MESSAGE_ID, "").strip():
        properties[ORIGIN_MESSAGE_ID] = stored.unique_key or stored.message_id
    # Where it was delayed before must not be taken for where it is delayed now.
    for name in (DELAY, REAL_TOPIC, REAL_QUEUE_ID, WAIT):
        properties.pop(name, None)
    if stored.reconsume_times >= limit or delay_level < 0:
        topic, queue_id = dead_letter_topic(topics, group), 0
    else:
        topic = topics.create(f"{RETRY_TOPIC_PREFIX}{group.name}", group.retry_queues).name
        queue_id = random.randrange(group.retry_queues)
        properties[DELAY] = str(delay_level or _FIRST_LEVEL + stored.reconsume_times)
    return Message(
        topic, stored.body, None, None, queue_id, encoded(properties), stored.flag, stored.sys_flag,
        stored.born_timestamp, stored.born_host, stored.reconsume_times + 1,
    )  # fmt: skip
