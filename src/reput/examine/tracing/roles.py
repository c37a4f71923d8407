"""What a record is in the life of a message, as its topic and flags say.

The topics and properties are those of `TopicValidator`, `MixAll` and `MessageConst`; who writes them: a retry and a
dead letter `SendMessageProcessor.asyncConsumerSendMsgBack`, a half message `TransactionalMessageBridge.putHalfMessage`,
its op message `.putOpMessage`, what becomes of it `EndTransactionProcessor`, a delayed one `CommitLog.asyncPutMessage`
and `ScheduleMessageService` (tag rocketmq-all-4.9.3); one with a time of its own `HookUtils.transformTimerMessage` and
`TimerMessageStore`, one that takes it back `RecallMessageProcessor` (tag rocketmq-all-5.3.3).
"""

from __future__ import annotations

from enum import StrEnum

from reput.format.commit_log import MessageExt
from reput.format.properties import (
    DEAD_LETTER_TOPIC_PREFIX,
    DELAY,
    DISCARDED_HALF_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    REAL_TOPIC,
    RETRY_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_OUT_MS,
    TIMER_RECALLED,
    TIMER_TOPIC,
)


class Role(StrEnum):
    """What a record is in the life of a message."""

    MESSAGE = "message"
    SCHEDULED = "scheduled"
    TIMER = "timer"
    RECALL = "recall"
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    HALF = "half"
    OP = "op"
    COMMITTED = "committed"
    DISCARDED_HALF = "discarded_half"
    PREPARED = "prepared"
    ROLLED_BACK = "rolled_back"


_OF_TOPIC = {
    SCHEDULE_TOPIC: Role.SCHEDULED,
    TIMER_TOPIC: Role.TIMER,
    HALF_TOPIC: Role.HALF,
    OP_TOPIC: Role.OP,
    DISCARDED_HALF_TOPIC: Role.DISCARDED_HALF,
}
_OF_TRANSACTION = {
    "commit": Role.COMMITTED,
    "prepared": Role.PREPARED,
    "rollback": Role.ROLLED_BACK,
}
WAITING = (Role.SCHEDULED, Role.TIMER)
"""What a broker delivers later, as a copy in the topic that it is for."""
_FOR_CONSUMERS = (Role.MESSAGE, Role.COMMITTED, Role.RETRY)


def role_of(message: MessageExt) -> Role:
    """Return the role that its topic gives it, then the transaction bits of its sys flag."""
    topic = message.topic
    if topic == TIMER_TOPIC and TIMER_RECALLED in message.properties:
        return Role.RECALL
    if topic in _OF_TOPIC:
        return _OF_TOPIC[topic]
    if topic.startswith(RETRY_TOPIC_PREFIX):
        return Role.RETRY
    if topic.startswith(DEAD_LETTER_TOPIC_PREFIX):
        return Role.DEAD_LETTER
    return _OF_TRANSACTION.get(message.transaction, Role.MESSAGE)


def is_for_consumers(role: Role) -> bool:
    """Whether consumers get such a record: through its topic, or through the group's retry topic."""
    return role in _FOR_CONSUMERS


def was_scheduled(message: MessageExt) -> bool:
    """Whether a record has the properties of a delivered delayed message, which a broker leaves in it."""
    properties = message.properties
    has_waited = DELAY in properties or TIMER_OUT_MS in properties
    return properties.get(REAL_TOPIC) == message.topic and has_waited
