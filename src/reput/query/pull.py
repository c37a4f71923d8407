"""Messages of a queue, one after the other, filtered by tags (`DefaultMessageStore.getMessage`, 4.9.3)."""

from __future__ import annotations

from typing import NamedTuple

from reput.errors import CorruptMessageError, MessageNotFoundError, UsageError
from reput.format.commit_log import MessageExt
from reput.format.consume_queue import PRE_BLANK
from reput.format.java_string import hash_code
from reput.format.properties import SCHEDULE_TOPIC, TAGS
from reput.store.store_reader import StoreReader

_TAG_SEPARATOR = "||"
_ALL = "*"


class PullResult(NamedTuple):
    """Messages of a queue, and where to go on.

    messages        in order of their queue offsets
    next_offset     queue offset to pull from next: behind the last message looked at, whether its tags matched or not
    min_offset, max_offset  of the queue: its first message that is there, and what its next one gets
    """

    messages: tuple[MessageExt, ...]
    next_offset: int
    min_offset: int
    max_offset: int


def pull(
    store: StoreReader,
    topic: str,
    queue_id: int,
    queue_offset: int,
    max_messages: int,
    tags: str | None,
) -> PullResult:
    """See MessageStore.pull."""
    if max_messages < 1:
        raise UsageError(f"max_messages {max_messages} must be at least 1")
    wanted = _wanted_tags(tags)
    hashes = {hash_code(tag) for tag in wanted}
    by_hash = bool(wanted) and topic != SCHEDULE_TOPIC  # whose tags codes are times
    queue = store.queues.queue(topic, queue_id)
    least, most = queue.min_queue_offset(store.commit_log.min_offset), queue.max_queue_offset()
    position = max(queue_offset, least)
    messages: list[MessageExt] = []
    for entry in queue.entries(position, most):
        if len(messages) == max_messages:
            break
        position += 1
        if entry == PRE_BLANK or (by_hash and entry.tags_code not in hashes):
            continue
        try:
            message = store.commit_log.get(entry.physical_offset)
        except (MessageNotFoundError, CorruptMessageError):
            if store.commit_log.file_at(entry.physical_offset) is None:
                continue  # expired meanwhile
            raise
        if not wanted or message.properties.get(TAGS) in wanted:
            messages.append(message)
    return PullResult(tuple(messages), position, least, most)


def offset_by_time(store: StoreReader, topic: str, queue_id: int, timestamp: int) -> int:
    """See MessageStore.offset_by_time."""
    queue = store.queues.queue(topic, queue_id)
    low, high = queue.min_queue_offset(store.commit_log.min_offset), queue.max_queue_offset()
    while low < high:
        middle = (low + high) // 2
        entry = queue.entry(middle)
        if store.commit_log.get(entry.physical_offset).store_timestamp < timestamp:
            low = middle + 1
        else:
            high = middle
    return low


def _wanted_tags(tags: str | None) -> set[str]:
    """The tags of an expression `a || b`; none for all."""
    if tags is None or tags.strip() in ("", _ALL):
        return set()
    return {tag for part in tags.split(_TAG_SEPARATOR) if (tag := part.strip())}
