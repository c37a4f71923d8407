"""Read the messages of one queue in order."""

from __future__ import annotations

from collections.abc import Iterator

from reput.core import MessageStore, PullStatus
from reput.errors import MessageNotFoundError
from reput.format.commit_log import MessageExt

_AT_ONCE = 512


def queue_messages(
    store: MessageStore, topic: str, queue_id: int, start: int = 0
) -> Iterator[MessageExt]:
    """Yield the messages of a queue from a queue offset to its end; nothing for an unknown queue.

    If `start` is after the queue's end, the log may have been replaced. So all messages are read. Raises as
    `MessageStore.pull` does.
    """
    try:
        position = store.min_queue_offset(topic, queue_id)
        if start <= store.max_queue_offset(topic, queue_id):
            position = max(position, start)
    except MessageNotFoundError:
        return
    while True:
        pull = store.pull(topic, queue_id, position, _AT_ONCE)
        yield from pull.messages
        if pull.status is not PullStatus.FOUND or pull.next_begin_offset <= position:
            return
        position = pull.next_begin_offset
