"""Convert messages that clients send to the form in which a broker stores them.

Mirrors `AbstractSendMessageProcessor.msgCheck`, `SendMessageProcessor` and `TopicValidator` (tag rocketmq-all-4.9.3).
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from reput.base import StoreConfig, now_ms
from reput.engine.writer import Message, RecordForm, process_prefix
from reput.errors import MessageRefusedError, ReputError
from reput.format import commit_log
from reput.format.commit_log import MAX_PROPERTIES_BYTES
from reput.format.host import Host
from reput.format.java_string import encode_utf8, parse_int32, parse_int64
from reput.format.message_id import UniqueKeys
from reput.format.properties import CLUSTER as CLUSTER_PROPERTY
from reput.format.properties import (
    DEAD_LETTER_TOPIC_PREFIX,
    DEFAULT_TOPIC,
    DELAY,
    HALF_TOPIC,
    INNER_MULTI_DISPATCH,
    LITE_TOPIC,
    NAME_SEPARATOR,
    NOT_ALLOWED_SEND_TOPICS,
    ORIGIN_MESSAGE_ID,
    PREPARED,
    PRIORITY,
    PROPERTY_SEPARATOR,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RETRY_TOPIC,
    RETRY_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    SHARDING_KEY,
    SYSTEM_TOPIC_PREFIX,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TIMER_RECALLED,
    TIMER_TOPIC,
    TRACE_TOPIC_PREFIX,
    TRANSACTION_ID,
    UNIQ_KEY,
    WAIT,
    decode_properties,
    encode_properties,
    lite_queue_name,
    stored_order,
)
from reput.wings.serve.broker.groups import GroupConfig, SubscriptionGroups
from reput.wings.serve.broker.limits import CLUSTER, LimitError, Limits, check_name
from reput.wings.serve.broker.topics import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    TopicConfig,
    TopicTable,
)

_new = tuple.__new__
_SEPARATOR = PROPERTY_SEPARATOR.encode()
_TRACED = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
_TIMES = (TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC)
_MOVING = frozenset({DELAY, PREPARED, INNER_MULTI_DISPATCH, *_TIMES})
"""Properties that move a message to another queue than the one it names, or to several queues."""
_OTHER_KINDS = frozenset({DELAY, *_TIMES, SHARDING_KEY})
_MOVING_SINCE_5_4 = _MOVING | {PRIORITY, LITE_TOPIC}
_WAIT_IS = WAIT + NAME_SEPARATOR
_MOST_SHAPES, _MOST_SHAPE_CHARACTERS = 1024, 512
_TIMER_STEP_MS = 1000  # The default of a broker's timerPrecisionMs.
MOST_TIMER_MS = 3 * 24 * 3600 * 1000
"""The longest delay of a timer message (timerMaxDelaySec)."""
_RECORD_BYTES = 91
"""Size of a record with IPv4 hosts, without its body, topic and properties."""
_ADDED_BYTES = 256
"""Room for the fields that a delivery adds to a record: IPv6 hosts, times and counters of timers, a CRC."""
DEAD_LETTER_QUEUES = 1
_FIRST_LEVEL = 3


class SendRefusedError(ReputError):
    """A broker refuses this message."""


class NoSuchTopicError(SendRefusedError):
    """The message's topic does not exist, and cannot be created."""


class NotAllowedError(SendRefusedError):
    """No client may send to the message's topic."""


class Sent(NamedTuple):
    """One message from a client, or a batch for one queue.

    Attributes:
        example: Topic whose settings are copied if the message's topic must be created.
        example_queues: Maximum number of queues of the created topic.
        queue_id: The queue, or a number below 0 for any queue.
        properties: The properties string as it was sent.
        most_retries: Maximum number of retries for a message of a retry topic; None means the limit of its group.
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

    def another(
        self, body: bytes, born_timestamp: int, properties: str, born_host: Host | None
    ) -> Sent:
        """Return a copy with these fields changed, in less time than `_replace` takes."""
        topic, _, example, queues, queue_id, sys_flag, _, flag, _, retries, is_unit, most, _ = self
        return _new(
            Sent,
            (
                topic, body, example, queues, queue_id, sys_flag, born_timestamp, flag, properties,
                retries, is_unit, most, born_host,
            ),
        )  # fmt: skip


class _StoredShape(NamedTuple):
    """How to store messages that have the same property names. A part is one property in a properties string.

    Attributes:
        order: Numbers of the parts of the sent properties string, in the stored order.
        additions: Parts that the broker adds, numbered after the parts that were sent.
        wait: Number of the part WAIT, or -1.
    """

    order: tuple[int, ...]
    additions: tuple[str, ...]
    wait: int


class SentMessages:
    """Converts clients' requests to messages to put, with the properties that a broker stores.

    A 4.9 broker adds the property WAIT only to delayed messages and half messages, because it encodes their properties
    again when it moves them to another topic. A 5.3 broker always stores WAIT, MSG_REGION (the broker's region) and
    TRACE_ON (whether clients trace messages).

    Attributes:
        takes_timers: Whether timer messages are accepted.
    """

    def __init__(
        self,
        topics: TopicTable,
        groups: SubscriptionGroups,
        most_in_batch: int = Limits().batch_messages,
        cluster: str = CLUSTER,
        config: StoreConfig | None = None,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        config = config or StoreConfig()
        self._topics, self._groups, self._most_in_batch = topics, groups, most_in_batch
        self._cluster, self._is_five, self._clock_ms = cluster, config.is_five, clock_ms
        self._is_since_5_4 = config.is_since_5_4
        self._moving = _MOVING_SINCE_5_4 if config.is_since_5_4 else _MOVING
        self._levels, self._config = len(config.delay_table_ms()), config
        self._unique_keys = UniqueKeys(process_prefix())
        self._shapes: dict[tuple[str, ...], _StoredShape | None] = {}
        self.takes_timers = True

    def message(self, sent: Sent) -> tuple[Message, bool]:
        """Return the message to put, and whether its sender waits until it is durable. Raises SendRefusedError."""
        config = self.topic_of(sent)
        queue_id = _queue(sent, config)
        topic = sent.topic
        if not topic.startswith(RETRY_TOPIC_PREFIX) and (plain := self._plain(sent.properties)):
            properties, waits = plain
            message = _message(
                sent, topic, queue_id, sent.body, sent.flag, sent.sys_flag, properties
            )
            return message, waits
        sent_properties = self.decoded(sent.properties)
        if topic.startswith(RETRY_TOPIC_PREFIX):
            topic, queue_id = self._retried(sent, queue_id)
            if topic != sent.topic and self._is_five:
                sent_properties[DELAY] = "-1"
        if self._is_since_5_4:
            queue_id = _by_kind(sent.topic, sent_properties, queue_id, config.write_queues)
        if self._is_five and UNIQ_KEY not in sent_properties:
            sent_properties[UNIQ_KEY] = self._unique_keys.next(self._clock_ms())
        sent_properties[CLUSTER_PROPERTY] = self._cluster
        if not self._is_five and WAIT in sent_properties:
            # A 4.9 broker removes WAIT from the map and puts it back, so it comes last in its bucket.
            sent_properties[WAIT] = sent_properties.pop(WAIT)
        waits = _waits(sent_properties)
        is_prepared = sent_properties.get(PREPARED, "").lower() == "true"
        flags = sent.sys_flag
        # Change half messages as `TransactionalMessageBridge.parseHalfMessageInner` does.
        if is_prepared:
            if self._is_five and UNIQ_KEY in sent_properties:
                sent_properties[TRANSACTION_ID] = sent_properties[UNIQ_KEY]
            # A half message waits for its producer's decision, not for a time. So a broker removes delay properties.
            for name in (DELAY, *_TIMES):
                sent_properties.pop(name, None)
            sent_properties |= {REAL_TOPIC: topic, REAL_QUEUE_ID: str(queue_id)}
            topic, queue_id, flags = HALF_TOPIC, 0, flags & ~commit_log.SYS_FLAG_TRANSACTION_MASK
        is_redirected = is_prepared
        if not flags & commit_log.SYS_FLAG_PREPARED:
            before = topic
            topic, queue_id = self._delayed(topic, queue_id, sent_properties)
            is_redirected |= topic != before
        # The log adds a property to messages of several queues, and removes WAIT after that, not before.
        is_extended = (
            self._config.enable_multi_dispatch
            and sent_properties.get(INNER_MULTI_DISPATCH, "").strip()
        )
        without = "" if self._is_five or is_redirected or is_extended else WAIT
        properties = encoded(sent_properties, self._is_five, without)
        if is_redirected:
            check_fits(self._config, sent_properties[REAL_TOPIC], len(sent.body), len(properties))
        return _message(sent, topic, queue_id, sent.body, sent.flag, flags, properties), waits

    def _plain(self, text: str) -> tuple[bytes, bool] | None:
        """Return the stored properties of a message, and whether its sender waits until the message is durable.

        This shortcut only reorders the parts of the properties string, without decoding it to a map. It returns None
        for messages that need the map, for example because a property moves them to another topic.
        """
        parts = text.split(PROPERTY_SEPARATOR)
        if not parts[-1]:
            parts.pop()
        names = []
        for part in parts:
            name, _, value = part.partition(NAME_SEPARATOR)
            if not value:
                return None
            names.append(name)
        key = tuple(names)
        try:
            shape = self._shapes[key]
        except KeyError:
            shape = self._shape(key)
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            if sum(map(len, key)) <= _MOST_SHAPE_CHARACTERS:
                self._shapes[key] = shape
        if shape is None:
            return None
        waits = shape.wait < 0 or parts[shape.wait][len(_WAIT_IS) :].lower() != "false"
        parts += shape.additions
        stored_text = PROPERTY_SEPARATOR.join([parts[number] for number in shape.order])
        return encode_utf8(
            stored_text + PROPERTY_SEPARATOR if self._is_five else stored_text
        ), waits

    def _shape(self, names: tuple[str, ...]) -> _StoredShape | None:
        is_named_once = "" not in names and len({*names}) == len(names)
        if not is_named_once or not self._moving.isdisjoint(names):
            return None
        if self._is_five and UNIQ_KEY not in names:
            return None
        numbers = {name: number for number, name in enumerate(names)}
        additions = {CLUSTER_PROPERTY: self._cluster}
        if self._is_five:
            additions = _TRACED | additions
        for name in additions:
            numbers[name] = len(names) + list(additions).index(name)
        order = stored_order(tuple(numbers), self._is_five, () if self._is_five else (WAIT,))
        return _StoredShape(
            tuple(numbers[name] for name in order),
            tuple(f"{name}{NAME_SEPARATOR}{value}" for name, value in additions.items()),
            names.index(WAIT) if WAIT in names else -1,
        )

    def decoded(self, text: str) -> dict[str, str]:
        """Return the properties that a client sent, and those that a 5.x broker adds to each request."""
        decoded = decode_properties(text)
        return decoded | _TRACED if self._is_five else decoded

    def _delayed(self, topic: str, queue_id: int, properties: dict[str, str]) -> tuple[str, int]:
        """Return topic and queue in which the message is stored. For a delayed message, also change its properties."""
        level = self._level(properties)
        timed = TIMER_TOPIC, 0
        if level > 0:
            # As in a broker, a level above the last one means the last one.
            place = SCHEDULE_TOPIC, min(level, self._levels) - 1
            properties[DELAY] = str(min(level, self._levels))
            if self._is_five:
                for name in _TIMES:
                    properties.pop(name, None)
        elif self._is_five and (due := timer_due(properties, self._clock_ms())) is not None:
            if not self.takes_timers:
                raise MessageRefusedError(
                    "timer messages are refused: the store has a broker's timer log (timerlog/), "
                    "so only a broker may accept them"
                )
            place, properties[TIMER_OUT_MS] = timed, str(due)
        else:
            return topic, queue_id
        properties |= {REAL_TOPIC: topic, REAL_QUEUE_ID: str(queue_id)}
        return place

    def _level(self, properties: Mapping[str, str]) -> int:
        delay = properties.get(DELAY)
        try:
            return 0 if delay is None else parse_int32(delay)
        except ValueError:
            raise MessageRefusedError(f"DELAY must be a whole number, not {delay!r}") from None

    def reply(self, sent: Sent) -> tuple[Message, bool]:
        """Return the reply to put, and whether its sender waits until it is durable. Raises SendRefusedError.

        A 4.9 broker stores the properties string as it was sent (`ReplyMessageProcessor`).
        """
        sent_properties = self.decoded(sent.properties)
        if not self._moving.isdisjoint(sent_properties):
            return self.message(sent)
        queue_id = _queue(sent, self.topic_of(sent))
        properties = (
            encoded(sent_properties, True) if self._is_five else encode_utf8(sent.properties)
        )
        message = _message(
            sent, sent.topic, queue_id, sent.body, sent.flag, sent.sys_flag, properties
        )
        return message, _waits(sent_properties)

    def batch_queue(self, sent: Sent) -> tuple[int, bool]:
        """Return the queue of a batch, and whether the sender waits until the batch is durable.

        Raises SendRefusedError.
        """
        queue_id = _queue(sent, self.topic_of(sent))
        return queue_id, _waits(decode_properties(sent.properties))

    def batch(self, sent: Sent, queue_id: int) -> list[Message]:
        """Return the messages of a batch. Any thread may call this. Raises MessageRefusedError, LimitError.

        As in a broker before 5.4, the properties of the batch are appended to the unchanged properties of each message
        (`MessageExtEncoder.encode`).
        """
        messages: list[Message] = []
        ending = b""
        if not self._is_since_5_4:
            whole = {**self.decoded(sent.properties), CLUSTER_PROPERTY: self._cluster}
            ending = encoded(whole, self._is_five)
        for flag, body, own_properties in _batched(sent.body):
            if len(messages) == self._most_in_batch:
                raise LimitError(f"a batch has at most {self._most_in_batch} messages")
            is_open = ending and own_properties and not own_properties.endswith(_SEPARATOR)
            properties = own_properties + (_SEPARATOR if is_open else b"") + ending
            messages.append(
                _message(sent, sent.topic, queue_id, body, flag, sent.sys_flag, properties)
            )
        return messages

    def topic_of(self, sent: Sent) -> TopicConfig:
        """Return the topic of a message. Create it if a broker would. Raises SendRefusedError."""
        topic = sent.topic
        # A message in an internal topic names another topic, and the broker delivers it there. So a client with access
        # to an internal topic could send messages to topics for which it has no permission.
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
            # PERM_INHERIT is removed, because other new topics must not copy this one.
            return self._topics.create(sent.topic, queues, example.perm & ~PERM_INHERIT)
        if sent.topic.startswith(RETRY_TOPIC_PREFIX):
            return self._topics.create(sent.topic, 1, PERM_READ | PERM_WRITE)
        raise NoSuchTopicError(f"topic[{sent.topic}] not exist, apply first please!")

    def _retried(self, sent: Sent, queue_id: int) -> tuple[str, int]:
        """Return topic and queue for a message sent to a retry topic.

        The message goes to the retry topic, or to the dead letter topic if the message has no retries left.
        """
        group = self._groups.get(sent.topic.removeprefix(RETRY_TOPIC_PREFIX))
        most = group.most_retries if sent.most_retries is None else sent.most_retries
        if sent.reconsume_times < most:
            return sent.topic, queue_id
        return dead_letter_topic(self._topics, group), 0


def check_fits(config: StoreConfig, topic: str, body_bytes: int, properties_bytes: int) -> None:
    """Check that a waiting message will fit at its destination, because nobody would notice a failed delivery.

    Raises MessageRefusedError for a topic that a record cannot hold, and for a record or properties that would exceed
    their limit at delivery.
    """
    topic_bytes = len(RecordForm.of(config).encode_topic(topic))
    size = _RECORD_BYTES + topic_bytes + body_bytes + properties_bytes + _ADDED_BYTES
    # Each file of the log needs room for a record and for the blank at the end of the file.
    most = min(config.max_message_bytes, config.commit_log_file_bytes - commit_log.BLANK_BYTES)
    if size > most or properties_bytes + _ADDED_BYTES > MAX_PROPERTIES_BYTES:
        raise MessageRefusedError(
            f"message of {size} bytes, {properties_bytes} of them properties, is too large for its destination: "
            f"the limits are {most} and {MAX_PROPERTIES_BYTES - _ADDED_BYTES}"
        )


def dead_letter_topic(topics: TopicTable, group: GroupConfig) -> str:
    """Return the topic of a group's dead letters. Create it if it is missing."""
    name = f"{DEAD_LETTER_TOPIC_PREFIX}{group.name}"
    return topics.create(name, DEAD_LETTER_QUEUES, PERM_READ | PERM_WRITE).name


def encoded(properties: Mapping[str, str], is_five: bool = False, without: str = "") -> bytes:
    """Return the properties string that a broker encodes from a map, without one of the properties.

    A 5.x broker uses a larger hash table, which changes the order, and ends each property with a separator.
    """
    text = encode_properties(properties, stored_order(tuple(properties), is_five, (without,)))
    return encode_utf8(text + PROPERTY_SEPARATOR if is_five and text else text)


def copied(original: commit_log.MessageExt, is_five: bool) -> Message:
    """Return a message that repeats a stored message, with the properties in the order in which a broker encodes them.

    The stored order can differ, for example if a broker of another version has stored the message.
    """
    return replace(Message.of(original), properties=encoded(original.properties, is_five))


def timer_due(properties: Mapping[str, str], now: int) -> int | None:
    """Return when a timer message is due (ms); None for other messages, or if this time has passed.

    Raises MessageRefusedError for a time that a broker refuses (`HookUtils.transformTimerMessage`).
    """
    if TIMER_OUT_MS in properties or not any(name in properties for name in _TIMES):
        return None
    try:
        if TIMER_DELAY_SEC in properties:
            due = now + parse_int64(properties[TIMER_DELAY_SEC]) * 1000
        elif TIMER_DELAY_MS in properties:
            due = now + parse_int64(properties[TIMER_DELAY_MS])
        else:
            due = parse_int64(properties[TIMER_DELIVER_MS])
    except ValueError:
        raise MessageRefusedError("the time of a timer message must be a whole number") from None
    if due <= now:
        if TIMER_RECALLED in properties:
            raise MessageRefusedError("the message to recall is already due")
        return None
    if due - now > MOST_TIMER_MS:
        raise MessageRefusedError(
            f"timer message illegal, the delay time should not be bigger than the max delay {MOST_TIMER_MS}ms"
        )
    # Like a broker, reduce the time to the next lower multiple of the step, even if the time already is a multiple.
    return due - _TIMER_STEP_MS if due % _TIMER_STEP_MS == 0 else due - due % _TIMER_STEP_MS


def message_bytes(message: Message) -> int:
    """Return the size of a message in the log, without properties that the store adds."""
    size = _RECORD_BYTES + len(message.body) + len(message.topic)
    return size + len(properties_of(message))


def properties_of(message: Message) -> bytes:
    """Return the properties of a message that this module has created."""
    return message.properties if isinstance(message.properties, bytes) else b""


def _waits(properties: Mapping[str, str]) -> bool:
    """Return whether the sender waits until its message is durable."""
    return properties.get(WAIT, "true").lower() != "false"


def _queue(sent: Sent, config: TopicConfig) -> int:
    if sent.queue_id >= max(config.write_queues, config.read_queues):
        raise SendRefusedError(f"request queueId[{sent.queue_id}] is illegal, {config}")
    if sent.queue_id < 0:
        # As in a broker, a negative id means any queue.
        return random.randrange(max(config.write_queues, 1))
    return sent.queue_id


def _message(
    sent: Sent,
    topic: str,
    queue_id: int,
    body: bytes,
    flag: int,
    sys_flag: int,
    properties: bytes,
) -> Message:
    return Message(
        topic, body, None, None, queue_id, properties, flag, sys_flag,
        sent.born_timestamp, sent.born_host, sent.reconsume_times,
    )  # fmt: skip


def _by_kind(topic: str, properties: dict[str, str], queue_id: int, write_queues: int) -> int:
    """Return the queue id of a message that may have a priority or a Lite topic. Change its properties.

    Mirrors `SendMessageProcessor.sendMessage` and `TopicMessageType.parseFromMessageProperty` (5.4). If properties make
    a message one of several kinds, only the first counts: transaction, delay, order, priority.
    """
    if lite_topic := properties.get(LITE_TOPIC):
        properties[INNER_MULTI_DISPATCH] = lite_queue_name(topic, lite_topic)
    try:
        priority = parse_int32(properties.get(PRIORITY, ""))
    except ValueError:
        return queue_id
    if priority < 0:
        return queue_id
    is_prepared = properties.get(PREPARED, "").lower() == "true"
    if is_prepared or not _OTHER_KINDS.isdisjoint(properties):
        del properties[PRIORITY]
        return queue_id
    return min(priority, write_queues - 1)


def _batched(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield flag, body and properties of each message of a batch (`MessageDecoder.decodeMessages`).

    Raises MessageRefusedError.
    """
    position = 0
    while position < len(data):
        try:
            total, _, _, flag, body_bytes = commit_log.INNER_HEAD.struct.unpack_from(data, position)
            body_at = position + commit_log.INNER_HEAD.size
            # The length may be negative here. It is checked below.
            length = commit_log.PROPERTIES.unpack_from(data, body_at + max(body_bytes, 0))[0]
            properties_at = body_at + body_bytes + commit_log.PROPERTIES.size
            stop = properties_at + length
            if min(body_bytes, length) < 0 or stop != position + total or stop > len(data):
                raise MessageRefusedError(
                    f"malformed batch: the message at byte {position} is cut off"
                )
            properties = data[properties_at:stop]
            properties.decode()
        except (struct.error, UnicodeDecodeError):
            raise MessageRefusedError(
                f"malformed batch: the message at byte {position} is cut off"
            ) from None
        yield flag, data[body_at : body_at + body_bytes], properties
        position = stop


def sent_back(
    topics: TopicTable,
    group: GroupConfig,
    original: commit_log.MessageExt,
    delay_level: int,
    most: int | None,
    config: StoreConfig,
) -> Message | None:
    """Return the message to put when a group sends a message back; None if the group has no retries.

    Args:
        topics: Topics of the store.
        group: Settings of the group.
        original: The message as it is stored.
        delay_level: Delay level of the next attempt. 0 means a delay that grows with the attempts; a negative number
            means no further attempt.
        most: Attempts after which the message becomes a dead letter; None for the group's setting.
        config: Settings of the store.
    """
    if group.retry_queues <= 0:
        return None
    limit = group.most_retries if most is None else most
    properties = dict(original.properties)
    properties.setdefault(RETRY_TOPIC, original.topic)
    # In the order of the broker's puts, which decides the order within a bucket of its map.
    properties[WAIT] = "false"
    if original.reconsume_times >= limit or delay_level < 0:
        # A dead letter is not delayed. Like a broker, keep REAL_TOPIC and REAL_QID, which were set when the message was
        # last delayed.
        properties[DELAY] = "0"
        topic, queue_id = dead_letter_topic(topics, group), 0
    else:
        retry = f"{RETRY_TOPIC_PREFIX}{group.name}"
        check_fits(config, retry, len(original.body), 0)
        topics.create(retry, group.retry_queues)
        # Like a broker, let each retry wait longer, unless the client has chosen a delay.
        level = delay_level or _FIRST_LEVEL + original.reconsume_times
        level = min(level, len(config.delay_table_ms()))
        properties[DELAY] = str(level)
        properties[REAL_TOPIC] = retry
        properties[REAL_QUEUE_ID] = str(random.randrange(group.retry_queues))
        topic, queue_id = SCHEDULE_TOPIC, level - 1
    if not properties.get(ORIGIN_MESSAGE_ID, "").strip():
        properties[ORIGIN_MESSAGE_ID] = original.message_id
    text = encoded(properties, config.is_five)
    if topic == SCHEDULE_TOPIC:
        check_fits(config, properties[REAL_TOPIC], len(original.body), len(text))
    return Message(
        topic, original.body, None, None, queue_id, text, original.flag, original.sys_flag,
        original.born_timestamp, original.born_host, original.reconsume_times + 1,
    )  # fmt: skip
