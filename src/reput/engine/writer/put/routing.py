"""Find the queues of a message that goes to other queues than the one it names: delayed messages, multi-dispatch.

Mirrors the delays of `CommitLog.asyncPutMessage`, and `MultiDispatch.wrapMultiDispatch` (tag rocketmq-all-4.9.3), and
for 5.x `HookUtils.transformDelayLevelMessage` and `LmqDispatch` (tag rocketmq-all-5.3.3). The functions refuse messages
that a broker would lose, or that would make a broker fail when it reads its log.

Further queues are the queues that INNER_MULTI_DISPATCH names. Light queues (%LMQ%) are special further queues.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from reput.base import StoreConfig
from reput.engine.writer.put.message import Message, check_queue_id
from reput.engine.writer.put.record_form import FORM_OF_FIVE, FORM_OF_FOUR, RecordForm
from reput.errors import MessageRefusedError
from reput.format.commit_log import SYS_FLAG_PREPARED
from reput.format.java_string import decode_utf8, parse_int32
from reput.format.properties import (
    DELAY,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    LMQ_PREFIX,
    MULTI_DISPATCH_SEPARATOR,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RETRY_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    WAIT,
    decode_properties,
    encode_properties,
    stored_order,
)

DEFAULT_DELAY_LEVEL_COUNT = len(StoreConfig().delay_table_ms())


def delayed(message: Message, levels: int, form: RecordForm = FORM_OF_FOUR) -> Message:
    """Return the message as it is stored. A message with a DELAY goes to its level's queue of SCHEDULE_TOPIC_XXXX.

    A level above the highest is replaced by the highest. A message is delayed only once: it is
    returned unchanged if it already waits (its topic is SCHEDULE_TOPIC_XXXX), or if it was delivered: its topic and
    queue equal its REAL_TOPIC and REAL_QID, and it still has its DELAY. Raises MessageRefusedError.
    """
    delay = property_of(message, DELAY)
    waits = message.topic == SCHEDULE_TOPIC
    # A prepared message (transaction) is delayed only after its commit.
    if delay is None or (message.sys_flag & SYS_FLAG_PREPARED and not waits):
        return message
    try:
        level = parse_int32(delay)
    except ValueError:
        raise MessageRefusedError(
            f"DELAY must be a whole number, not {delay!r}: dispatch would stop at this message"
        ) from None
    if level <= 0 or waits or _was_delivered(message):
        return message
    check_queue_id(message.queue_id)
    # Check the topic now. The returned message has the topic SCHEDULE_TOPIC_XXXX, so a later check would not see the
    # original topic.
    form.encode_topic(message.topic)
    changes = {REAL_TOPIC: message.topic, REAL_QUEUE_ID: str(message.queue_id)}
    if level > levels:
        level, changes[DELAY] = levels, str(levels)
    message = with_properties(message, changes, form)
    return replace(message, topic=SCHEDULE_TOPIC, queue_id=level - 1)


def _was_delivered(message: Message) -> bool:
    topic = property_of(message, REAL_TOPIC)
    queue_id = property_of(message, REAL_QUEUE_ID)
    return (topic, queue_id) == (message.topic, str(message.queue_id))


def further_queues(message: Message, lmq: bool) -> list[tuple[str, int]]:
    """Return the queues of INNER_MULTI_DISPATCH. With `lmq`, light queues have queue id 0.

    Raises MessageRefusedError.
    """
    value = property_of(message, INNER_MULTI_DISPATCH)
    if value is None or not value.strip():
        return []
    names = _dispatch_names(value)
    for name in names:
        FORM_OF_FOUR.encode_topic(name)
    queues = [
        (name, 0 if lmq and name.startswith(LMQ_PREFIX) else message.queue_id) for name in names
    ]
    if len({*queues, (message.topic, message.queue_id)}) <= len(queues):
        raise MessageRefusedError(
            f"INNER_MULTI_DISPATCH {value!r}: name each queue once, and not the message's own queue, which always "
            f"receives it"
        )
    return queues


def light_queues(message: Message) -> list[tuple[str, int]] | None:
    """Return the light queues of a message for a 5.x broker with enableLmq, or None without INNER_MULTI_DISPATCH.

    Raises MessageRefusedError, for example if only some names are light queues. A broker would either not dispatch such
    a message, or fail again and again.
    """
    value = property_of(message, INNER_MULTI_DISPATCH)
    topic = message.topic
    is_system = topic.startswith((RETRY_TOPIC_PREFIX, SYSTEM_TOPIC_PREFIX))
    if value is None or not value.strip() or is_system or topic == SCHEDULE_TOPIC:
        return None
    names = _dispatch_names(value)
    light = [name for name in names if name.startswith(LMQ_PREFIX)]
    if light and len({*light}) < len(names):
        raise MessageRefusedError(
            f"INNER_MULTI_DISPATCH {value!r}: if it names a light queue ({LMQ_PREFIX}...), all its names must be "
            "different light queues"
        )
    for name in light:
        FORM_OF_FIVE.encode_topic(name)
    return [(name, 0) for name in light]


def _dispatch_names(value: str) -> list[str]:
    # Like Java's `String.split`, ignore empty names at the end.
    return value.rstrip(MULTI_DISPATCH_SEPARATOR).split(MULTI_DISPATCH_SEPARATOR)


def with_offsets(message: Message, offsets: list[int], form: RecordForm = FORM_OF_FOUR) -> Message:
    """Return the message as it is stored, with its offsets in the queues of INNER_MULTI_DISPATCH as a property."""
    text = MULTI_DISPATCH_SEPARATOR.join(map(str, offsets))
    if not offsets:
        # If no name is a light queue, a broker writes an empty text for each name, instead of a queue offset.
        names = _dispatch_names(property_of(message, INNER_MULTI_DISPATCH) or "")
        text = MULTI_DISPATCH_SEPARATOR * (len(names) - 1)
    # A broker removes the property WAIT from a message with INNER_MULTI_DISPATCH, and puts it back into the map. Only a
    # 5.x broker encodes the properties again afterwards, so that WAIT comes last in its bucket.
    changes = {INNER_MULTI_QUEUE_OFFSET: text}
    if form.is_five and (wait := property_of(message, WAIT)) is not None:
        message, changes[WAIT] = with_properties(message, {}, form, (WAIT,)), wait
    return with_properties(message, changes, form, () if form.is_five else (WAIT,))


def may_be_delayed(names: Collection[str] | None) -> bool:
    """Return whether messages with these property names may be delayed.

    `names` is None if the properties are given as a string, whose names are unknown.
    """
    return names is None or DELAY in names


def may_have_further_queues(names: Collection[str] | None) -> bool:
    """Return whether messages with these property names may have INNER_MULTI_DISPATCH. See `may_be_delayed`."""
    return names is None or INNER_MULTI_DISPATCH in names


def property_of(message: Message, name: str) -> str | None:
    properties = message.properties
    if isinstance(properties, bytes):
        properties = decode_utf8(properties)
    if isinstance(properties, str):
        # Decode only if the name occurs at all, because decoding is slow.
        properties = decode_properties(properties) if name in properties else {}
    return properties.get(name)


def with_properties(
    message: Message, changes: Mapping[str, str], form: RecordForm, without: Collection[str] = ()
) -> Message:
    """Change properties as a broker does: decode the properties string, and encode it in the order of a HashMap."""
    properties = message.properties
    if isinstance(properties, bytes):
        properties = decode_utf8(properties)
    values = decode_properties(properties) if isinstance(properties, str) else properties
    changed = {**values, **changes}
    if isinstance(properties, str):
        order = stored_order(tuple(changed), form.is_five, without)
        return replace(message, properties=encode_properties(changed, order) + form.ending)
    rest = {name: value for name, value in changed.items() if name not in without}
    return replace(message, properties=rest)
