"""Half messages that were never decided: prepared, and neither committed nor rolled back.

Mirrors `TransactionalMessageServiceImpl.fillOpRemoveMap` (tags rocketmq-all-4.9.3 and rocketmq-all-5.3.3): an op
message decides the half messages whose queue offsets its body lists, one in 4.9, several with commas in 5.x, in the
queue with the same id. A broker that asks the producer again puts a half message anew, and decides the old one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reput.errors import MessageNotFoundError
from reput.format.commit_log import MessageExt
from reput.format.properties import HALF_TOPIC, OP_TOPIC, REAL_TOPIC
from reput.store.answers import PullStatus
from reput.store.readable_store import ReadableStore

_AT_ONCE = 512
_SEPARATOR = b","


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A half message without an op message; `message` is as it waits, under the topic of half messages."""

    message: MessageExt

    @property
    def real_topic(self) -> str | None:
        """The topic that it goes to when it is committed."""
        return self.message.properties.get(REAL_TOPIC)


def open_transactions(store: ReadableStore) -> Iterator[OpenTransaction]:
    """Undecided half messages, by queue and queue offset; op messages that have expired cannot decide any.

    Raises as `ReadableStore.pull` does.
    """
    for topic, queue_id in store.list_queues():
        if topic != HALF_TOPIC:
            continue
        decided = {
            offset for message in _messages(store, OP_TOPIC, queue_id) for offset in decided_by(message)
        }  # fmt: skip
        for message in _messages(store, HALF_TOPIC, queue_id):
            if message.queue_offset not in decided:
                yield OpenTransaction(message)


def decided_by(op_message: MessageExt) -> Iterator[int]:
    """Queue offsets of the half messages that an op message decides; what is no number in it is passed over."""
    for part in op_message.body.split(_SEPARATOR):
        text = part.strip()
        if text.isdigit() and len(text) < 20:
            yield int(text)


def _messages(store: ReadableStore, topic: str, queue_id: int) -> Iterator[MessageExt]:
    try:
        position = store.min_queue_offset(topic, queue_id)
    except MessageNotFoundError:
        return
    while True:
        found = store.pull(topic, queue_id, position, _AT_ONCE)
        yield from found.messages
        if found.status is not PullStatus.FOUND or found.next_begin_offset <= position:
            return
        position = found.next_begin_offset
