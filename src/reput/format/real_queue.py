"""The destination topic and queue of a message that waits in another topic.

A broker stores a delayed, timed or half message in a topic of its own, and records its destination in REAL_TOPIC and
REAL_QID. If a consumer sends a message back for a retry, RETRY_TOPIC states the original topic. Dead letters keep this
property.
"""

from __future__ import annotations

from collections.abc import Mapping

from reput.format.group_topics import popped_topics
from reput.format.java_integer import decimal_number
from reput.format.properties import (
    DEAD_LETTER_TOPIC_PREFIX,
    DISCARDED_HALF_TOPIC,
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
