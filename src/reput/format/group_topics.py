"""The consumer group of a retry or dead letter topic.

Mirrors `MixAll.getRetryTopic` and `KeyBuilder.buildPopRetryTopic` (tag rocketmq-all-5.3.3). A group that sends messages
back has the topic `%RETRY%group`. A group that pops messages has one retry topic for each topic: `%RETRY%group_topic`,
or `%RETRY%group+topic` with enableRetryTopicV2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from reput.format.properties import DEAD_LETTER_TOPIC_PREFIX, FIRST_POP_TIME, RETRY_TOPIC_PREFIX

# The separators with and without enableRetryTopicV2.
_NEW, _OLD = "+", "_"


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
