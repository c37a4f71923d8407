"""Messages that a consumer could not process: delivered again later, and finally moved to the dead letters.

Mirrors `SendMessageProcessor.asyncConsumerSendMsgBack` (tag rocketmq-all-4.9.3).
"""

from __future__ import annotations

import random

from reput.broker.sending import dead_letter_topic, encoded
from reput.broker.subscriptions import GroupConfig
from reput.broker.topics import TopicTable
from reput.format.commit_log import MessageExt
from reput.format.properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RETRY_TOPIC,
    RETRY_TOPIC_PREFIX,
    WAIT,
)
from reput.writer.put.message import Message

_FIRST_LEVEL = 3


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
