"""Messages of a queue, one after the other, filtered by tags (`DefaultMessageStore.getMessage`, 4.9.3).

A store that another process writes is read without a lock. The newest entry of a queue may be half written: it is
believed once its message is there and has the entry's size, and its tags are taken from the message.
"""

from __future__ import annotations

import time
from enum import StrEnum
from typing import NamedTuple

from reput.errors import CorruptMessageError, MessageNotFoundError, UsageError
from reput.format.commit_log import MessageExt
from reput.format.consume_queue import PRE_BLANK, ConsumeQueueEntry
from reput.format.java_string import hash_code
from reput.format.properties import SCHEDULE_TOPIC, TAGS
from reput.store.consume_queue_reader import ConsumeQueueReader
from reput.store.store_reader import StoreReader

_TAG_SEPARATOR = "||"
_ALL = "*"
_MOST_ENTRIES = 1 << 14  # looked at by one pull, whether they match or not
_PATIENCE_S = 0.001


class PullStatus(StrEnum):
    """How a pull ended (`GetMessageStatus`, and the client's PullStatus)."""

    FOUND = "found"
    NO_NEW_MESSAGE = "no_new_message"
    NO_MATCHED_MESSAGE = "no_matched_message"
    OFFSET_TOO_SMALL = "offset_too_small"
    OFFSET_TOO_LARGE = "offset_too_large"

    @property
    def is_offset_illegal(self) -> bool:
        return self in (PullStatus.OFFSET_TOO_SMALL, PullStatus.OFFSET_TOO_LARGE)


class PullResult(NamedTuple):
    """Messages of a queue, and where to go on.

    status             found; no_new_message at the end of the queue; no_matched_message where the tags of what was
                       looked at did not match; offset_too_small for an offset before the first message that is there,
                       offset_too_large for one beyond the end
    messages           in order of their queue offsets, none unless the status is found
    next_begin_offset  queue offset to pull from next: behind the last message looked at, whether its tags matched or
                       not; for an offset that is too small the first message's, for one that is too large the end,
                       or 0 where the queue begins there
    min_offset, max_offset  of the queue: its first message that is there, and what its next one gets
    """

    status: PullStatus
    messages: tuple[MessageExt, ...]
    next_begin_offset: int
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
    """See MessageStore.pull. Raises MessageNotFoundError, too, where the queue's files expire meanwhile."""
    if max_messages < 1:
        raise UsageError(f"max_messages {max_messages} must be at least 1")
    wanted = wanted_tags(tags)
    queue = store.queues.queue(topic, queue_id)
    least, most = queue.min_queue_offset(store.commit_log.min_offset), queue.max_queue_offset()
    if queue_offset < least:
        return PullResult(PullStatus.OFFSET_TOO_SMALL, (), least, least, most)
    if queue_offset > most:
        end = most if least else 0
        return PullResult(PullStatus.OFFSET_TOO_LARGE, (), end, least, most)
    hashes = {hash_code(tag) for tag in wanted} if topic != SCHEDULE_TOPIC else set()
    position = queue_offset
    messages: list[MessageExt] = []
    for entry in queue.entries(position, min(most, position + _MOST_ENTRIES)):
        is_newest = position == most - 1
        if entry != PRE_BLANK and (is_newest or not hashes or entry.tags_code in hashes):
            try:
                message = _read(store, queue, position, entry, is_newest)
            except MessageNotFoundError:  # expired meanwhile
                if not messages:
                    raise
                break
            if message is None:
                if is_newest:
                    break
            elif not wanted or message.properties.get(TAGS) in wanted:
                messages.append(message)
        position += 1
        if len(messages) == max_messages:
            break
    status = PullStatus.NO_MATCHED_MESSAGE if position > queue_offset else PullStatus.NO_NEW_MESSAGE
    return PullResult(
        PullStatus.FOUND if messages else status, tuple(messages), position, least, most
    )


def _read(
    store: StoreReader,
    queue: ConsumeQueueReader,
    queue_offset: int,
    entry: ConsumeQueueEntry,
    is_newest: bool,
) -> MessageExt | None:
    """The message of an entry; None for one in a file that is lost, or whose entry is half written.

    Raises MessageNotFoundError where it has expired, CorruptMessageError.
    """
    log, offset = store.commit_log, entry.physical_offset
    try:
        message = log.get(offset)
        if message.size_bytes == entry.size:
            return message
        reason = f"a message of {message.size_bytes} bytes, but its entry says {entry.size}"
    except CorruptMessageError as error:
        reason = error.reason
    except MessageNotFoundError as error:
        if offset < log.min_offset:
            raise
        if log.file_at(offset) is None and not is_newest:
            return None
        reason = str(error)
    if is_newest:
        time.sleep(_PATIENCE_S)
        if queue.entry(queue_offset) != entry:
            return None
    file = log.file_at(offset)
    raise CorruptMessageError(file.path if file else log.folder, offset, reason)


def offset_by_time(store: StoreReader, topic: str, queue_id: int, timestamp: int) -> int:
    """See MessageStore.offset_by_time. Raises MessageNotFoundError, too, where the log's files expire meanwhile."""
    queue, log = store.queues.queue(topic, queue_id), store.commit_log
    low, high = queue.min_queue_offset(log.min_offset), queue.max_queue_offset()
    while low < high:
        middle = (low + high) // 2
        offset = queue.entry(middle).physical_offset
        try:
            is_before = log.get(offset).store_timestamp < timestamp
        except MessageNotFoundError:
            if offset < log.min_offset or log.file_at(offset) is not None:
                raise
            is_before = True  # in a file that is lost
        if is_before:
            low = middle + 1
        else:
            high = middle
    return low


def wanted_tags(tags: str | None) -> set[str]:
    """The tags of an expression `a || b`; none for all. Raises UsageError for one that names no tag."""
    if tags is None or tags.strip() in ("", _ALL):
        return set()
    wanted = {tag for part in tags.split(_TAG_SEPARATOR) if (tag := part.strip())}
    if not wanted:
        raise UsageError(f"tags {tags!r} name no tag: write 'a || b', or '*' for all")
    return wanted
