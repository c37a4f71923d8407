"""The destination topic and queue of a message that waits in another topic.

A broker stores a delayed, timed or half message in a topic of its own, and records its destination in REAL_TOPIC and
REAL_QID. If a consumer sends a message back for a retry, RETRY_TOPIC states the original topic. Dead letters keep this
property.

A group that sends messages back has the topic `%RETRY%group`. A group that pops messages has one retry topic for each
topic: `%RETRY%group_topic`, or `%RETRY%group+topic` with enableRetryTopicV2. Mirrors `MixAll.getRetryTopic` and
`KeyBuilder.buildPopRetryTopic` (tag rocketmq-all-5.3.3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from reput.format.java_string import decimal_number
from reput.format.properties import (
    DEAD_LETTER_TOPIC_PREFIX,
    DISCARDED_HALF_TOPIC,
    FIRST_POP_TIME,
    HALF_TOPICS,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RETRY_TOPIC,
    RETRY_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)

_RETRIED = (RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX)
_HOLDING = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, *HALF_TOPICS, DISCARDED_HALF_TOPIC})
# The separators in the names of pop retry topics, with and without enableRetryTopicV2.
_NEW, _OLD = "+", "_"
_MOST_QUEUE_ID, _MOST_DIGITS = (1 << 31) - 1, 20


def held_queue(properties: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the topic and queue in REAL_TOPIC and REAL_QID; None if they are missing or malformed."""
    topic = properties.get(REAL_TOPIC)
    queue_id = decimal_number(properties.get(REAL_QUEUE_ID, ""), _MOST_DIGITS)
    if not topic or queue_id is None or queue_id > _MOST_QUEUE_ID:
        return None
    return topic, queue_id


def is_meant_for_another(topic: str) -> bool:
    """Return whether the messages of a topic have other topics as their destination."""
    return topic in _HOLDING or topic.startswith(_RETRIED)


def real_queue(topic: str, properties: Mapping[str, str]) -> tuple[str | None, int | None]:
    """Return the topic and queue for which a message is destined. `topic` is the topic that stores the message now.

    `is_meant_for_another(topic)` must be true. A topic or queue that is unknown is None. The queue of a retried message
    is not recorded anywhere.
    """
    queue_id = None
    if topic in _HOLDING:
        held = held_queue(properties)
        topic = properties.get(REAL_TOPIC, "")
        queue_id = None if held is None else held[1]
    if not topic.startswith(_RETRIED):
        return topic or None, queue_id
    popped = popped_topics(topic, properties)
    # If the name of a pop retry topic can be split into group and topic in several ways, the topic is unknown.
    only = popped[0] if len(popped) == 1 else None
    return properties.get(RETRY_TOPIC, only), None


def pop_retry_topics(group: str, topic: str) -> tuple[str, ...]:
    """Return the retry topics that may contain messages which this group has popped from this topic."""
    if topic.startswith(RETRY_TOPIC_PREFIX):
        return (topic,)
    return tuple(f"{RETRY_TOPIC_PREFIX}{group}{separator}{topic}" for separator in (_OLD, _NEW))


def is_pop_retry(topic: str, properties: Mapping[str, str]) -> bool:
    """Return whether a message is in a retry topic because a consumer popped it and did not acknowledge it."""
    return topic.startswith(RETRY_TOPIC_PREFIX) and (_NEW in topic or FIRST_POP_TIME in properties)


def popped_topics(topic: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the topics from which a message of a retry topic may have been popped; empty if it was not popped.

    In the old form of a retry topic's name, GROUP_TOPIC, any "_" may be the separator between group and topic.
    """
    if not is_pop_retry(topic, properties):
        return ()
    name = topic.removeprefix(RETRY_TOPIC_PREFIX)
    if _NEW in name:
        return (name.partition(_NEW)[2],)
    return tuple(name[at + 1 :] for at in range(1, len(name)) if name[at] == _OLD)


def consumer_group(topic: str, properties: Mapping[str, str], topics: Collection[str]) -> str:
    """Return the group of a retry or dead letter topic.

    The topic of a popping group is GROUP+TOPIC, in the old form GROUP_TOPIC. No name of a group contains "+", but names
    of groups and topics can contain "_". A name in the old form is therefore divided only if exactly one division gives
    a topic of the store. Otherwise everything after the prefix is returned.

    Args:
        topic: The retry or dead letter topic.
        properties: Properties of one of its messages, which show whether the group pops (1ST_POP_TIME).
        topics: The store's topics.
    """
    if not is_pop_retry(topic, properties):
        return topic.removeprefix(RETRY_TOPIC_PREFIX).removeprefix(DEAD_LETTER_TOPIC_PREFIX)
    name = topic.removeprefix(RETRY_TOPIC_PREFIX)
    if _NEW in name:
        return name.partition(_NEW)[0]
    places = [at for at in range(1, len(name)) if name[at] == _OLD and name[at + 1 :] in topics]
    return name[: places[0]] if len(places) == 1 else name
