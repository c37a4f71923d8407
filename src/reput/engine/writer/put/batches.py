"""Check batches, and inner batches (5.x).

A batch is stored as consecutive records of one file. An inner batch is one record, which takes as many queue offsets
as it has messages. Mirrors the checks of `MessageBatch.generateFromList` and `CommitLog.asyncPutMessages`
(tag rocketmq-all-4.9.3), `DefaultMessageStore.asyncPutMessage` and `BatchConsumeQueue.assignQueueOffset`
(tag rocketmq-all-5.3.3).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from reput.engine.writer.put.message import Message
from reput.engine.writer.put.record_form import RecordForm
from reput.engine.writer.put.routing import delayed, further_queues, property_of, with_properties
from reput.errors import MessageRefusedError
from reput.format.commit_log import (
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_PREPARED,
    SYS_FLAG_TRANSACTION_MASK,
)
from reput.format.consume_queue import MAX_BATCH_SIZE, stated_batch_size
from reput.format.properties import INNER_BASE, INNER_NUM


def check_batch(messages: Sequence[Message], delay_levels: int, has_further_queues: bool) -> None:
    """Raise MessageRefusedError for messages that cannot be one batch."""
    if not messages:
        raise MessageRefusedError("a batch must have at least one message")
    if len({(message.topic, message.queue_id) for message in messages}) > 1:
        raise MessageRefusedError("all messages of a batch must have one topic and one queue_id")
    for number, message in enumerate(messages):
        if message.sys_flag & SYS_FLAG_TRANSACTION_MASK:
            raise MessageRefusedError(
                f"message {number}: a batch cannot contain messages of transactions"
            )
        if delayed(message, delay_levels) is not message:
            raise MessageRefusedError(f"message {number}: a batch cannot contain delayed messages")
        if has_further_queues and further_queues(message, lmq=True):
            raise MessageRefusedError(
                f"message {number}: messages of a batch cannot have INNER_MULTI_DISPATCH"
            )


def batch_size(message: Message, batch_topics: Collection[str]) -> int:
    """Return the number of queue offsets that a message takes.

    Raises MessageRefusedError for an invalid inner batch.
    """
    is_batch = message.sys_flag & SYS_FLAG_INNER_BATCH
    inner_num = property_of(message, INNER_NUM) if is_batch or message.properties else None
    if not is_batch:
        if inner_num is not None:
            raise MessageRefusedError(
                f"{INNER_NUM}: only inner batches (sys_flag 128) can have this property"
            )
        return 1
    if message.topic not in batch_topics:
        raise MessageRefusedError(
            f"inner batch: the queues of topic {message.topic!r} are not batch queues "
            "(queue.type in config/topics.json)"
        )
    if message.sys_flag & SYS_FLAG_PREPARED:
        raise MessageRefusedError("an inner batch cannot be part of an uncommitted transaction")
    count = stated_batch_size(inner_num) or 0
    if not count:
        raise MessageRefusedError(
            f"inner batch: {INNER_NUM} must be a number from 1 to {MAX_BATCH_SIZE}, not {inner_num!r}"
        )
    return count


def may_be_batch(message: Message) -> bool:
    """Return whether `batch_size` may return more than 1 or raise an error."""
    properties = message.properties
    name = INNER_NUM.encode() if isinstance(properties, bytes) else INNER_NUM
    return bool(message.sys_flag & SYS_FLAG_INNER_BATCH) or name in properties


def with_base(message: Message, queue_offset: int, form: RecordForm) -> Message:
    """Return an inner batch as it is stored, with a property for the queue offset of its first message."""
    return with_properties(message, {INNER_BASE: str(queue_offset)}, form)
