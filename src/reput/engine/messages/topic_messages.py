"""Read messages through ConsumeQueues: the newest of a topic or of a window of time, and those of a queue in order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

from reput.base import Finding, Time, checked, optional_milliseconds
from reput.core import Coverage, MessageStore, OffsetRange, PullStatus, Question, WindowEvidence
from reput.engine.messages.tail import QueueTail, TailFilter
from reput.engine.writer import AnyStore
from reput.errors import MessageNotFoundError
from reput.format.commit_log import MessageExt

# A page ends after this number of problems. Otherwise, a badly damaged queue would be read entry by entry to its
# beginning.
_MOST_PROBLEMS = 16
# Greater than every physical offset.
_AFTER_ALL = 1 << 63
# Messages of a queue that are read at once.
_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class TopicMessages:
    """Messages of a topic, newest first.

    Attributes:
        cursor: where to continue (`after=cursor`) if the limit, or damage, shortened the answer, else None
        coverage: the evidence that no message is missing, in the log from the cursor on
    """

    messages: tuple[MessageExt, ...]
    cursor: int | None
    coverage: Coverage

    @property
    def is_complete(self) -> bool:
        return self.coverage.is_complete

    @property
    def problems(self) -> tuple[Finding, ...]:
        """Return the reasons why messages may be missing from the answer. It is empty if the answer is complete."""
        return self.coverage.unreadable


@checked
def messages_of_topic(
    store: AnyStore,
    topic: str,
    begin: Time | None = None,
    end: Time | None = None,
    limit: int = 100,
    after: int | None = None,
    max_bytes: int | None = None,
) -> TopicMessages:
    """Return the newest messages of a topic. If a clock was set back, the search takes longer, but misses none.

    Args:
        store: The store.
        topic: The topic. An unknown topic has no messages.
        begin, end: Store times, both inclusive: ms since 1970, or datetimes with a timezone.
        limit: Maximum number of messages.
        after: A cursor; only older messages are returned.
        max_bytes: Maximum bytes of records. At least one message is returned.

    Raises:
        StoreAccessError, StoreChangedError: a file cannot be read, or became shorter.
    """
    times = optional_milliseconds(begin), optional_milliseconds(end, is_end=True)
    window = TailFilter(begin=times[0], end=times[1])
    messages, cursor = list[MessageExt](), None
    rest_bytes = math.inf if max_bytes is None else max_bytes
    with nullcontext(store) if isinstance(store, MessageStore) else store.reader() as reader:
        reader.check_open()
        log = reader.commit_log
        log.refresh()
        queues = QueueTail(reader, lambda *_: True, *times, topic=topic, before=after)
        # Look for one message beyond the limits. If there is one, the answer is incomplete and needs a cursor.
        stop = _AFTER_ALL if after is None else after
        for record in queues.records(stop, (), _MOST_PROBLEMS):
            if not window.takes_time(record.store_timestamp()):
                continue
            size = record.layout.total_bytes
            if len(messages) == limit or (messages and size > rest_bytes):
                cursor = messages[-1].physical_offset if messages else record.physical_offset + 1
                queues.check_next()
                break
            rest_bytes -= size
            messages.append(record.message())
        else:
            if len(queues.damage) > _MOST_PROBLEMS:
                cursor = queues.position
        searched = OffsetRange(
            log.min_offset if cursor is None else cursor, log.files_end if after is None else after
        )
        evidence = WindowEvidence(reader, lambda name, _: name == topic, *times, topic=topic)
        question = Question((), frozenset({topic}), *times)
        coverage = evidence.coverage(searched, question, queues.damage)
    return TopicMessages(tuple(messages), cursor, coverage)


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
