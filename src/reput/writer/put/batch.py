"""A batch: messages of one queue, stored one after the other in one file, all or none of them.

Mirrors the checks of `MessageBatch.generateFromList` and `CommitLog.asyncPutMessages` (tag rocketmq-all-4.9.3).
"""

from __future__ import annotations

from collections.abc import Sequence

from reput.errors import MessageRefusedError
from reput.format.commit_log import SYS_FLAG_TRANSACTION_MASK
from reput.writer.put.message import Message
from reput.writer.put.routing import delayed, further_queues


def check_batch(messages: Sequence[Message], delay_levels: int, has_further_queues: bool) -> None:
    """Raises MessageRefusedError for messages that are not a batch."""
    if not messages:
        raise MessageRefusedError("a batch has at least one message")
    if len({(message.topic, message.queue_id) for message in messages}) > 1:
        raise MessageRefusedError("a batch is of one topic and one queue_id")
    for number, message in enumerate(messages):
        if message.sys_flag & SYS_FLAG_TRANSACTION_MASK:
            raise MessageRefusedError(
                f"message {number}: a batch cannot contain a message of a transaction"
            )
        if delayed(message, delay_levels) is not message:
            raise MessageRefusedError(f"message {number}: a batch cannot contain a delayed message")
        if has_further_queues and further_queues(message, lmq=True):
            raise MessageRefusedError(f"message {number}: a batch goes to no further queues")
