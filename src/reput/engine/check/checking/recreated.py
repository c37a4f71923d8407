"""Tell messages of a deleted topic from messages that lost their queue entries.

A topic that is deleted loses its queues, but its messages stay in the log until they expire. If the topic is created
again, the queue offsets of its new messages begin at 0. So the messages before the one to which the queue's first entry
leads belong to the old topic if they do not fit before this entry. Recovery and rebuild follow the same rule
(`QueueMatching` in `reput.engine.writer.recovery`).
"""

from __future__ import annotations

from contextlib import closing, suppress
from typing import NamedTuple

from reput.core import CommitLogReader, ConsumeQueueReader, Queue, StoreLog
from reput.core.log.queued_record import own_place
from reput.errors import MessageNotFoundError, StoreError


class QueueBegin(NamedTuple):
    """The first entry of a queue that leads to a message: its number, and the physical offset of the message."""

    number: int
    physical_offset: int


def begin_of(store: str, queue: Queue, folder: str) -> QueueBegin | None:
    """Return the first entry of a queue that leads to a message with this queue offset; None if there is none."""
    with suppress(StoreError), closing(ConsumeQueueReader(folder)) as reader:
        for least in (0, 1):  # A pre-blank entry leads to physical offset 0.
            number = reader.min_queue_offset(least)
            try:
                at = reader.entry(number).physical_offset
            except MessageNotFoundError:
                continue
            with closing(CommitLogReader(StoreLog(store))) as log:
                is_own = own_place(log.locate(at)) == (*queue, number)
            return QueueBegin(number, at) if is_own else None
    return None
