"""Collect facts about stores, topics and queues, for JSON and for templates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from reput.engine.writer import AnyStore, SharedStore
from reput.errors import MessageNotFoundError, StoreError
from reput.format.properties import DEAD_LETTER_TOPIC_PREFIX, INTERNAL_TOPICS, RETRY_TOPIC_PREFIX
from reput.wings.inspect.api import CoveredRange, covered_log

_SYSTEM_PREFIX = "RMQ_SYS_"


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """A queue with the queue offsets [min_offset, max_offset)."""

    queue_id: int
    min_offset: int
    max_offset: int

    @property
    def messages(self) -> int:
        return max(self.max_offset - self.min_offset, 0)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic and its queues. `messages` is the number of entries that have not expired."""

    topic: str
    queues: tuple[QueueFacts, ...]

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues)

    @property
    def kind(self) -> str:
        return kind_of(self.topic)

    def as_json(self) -> dict[str, Any]:
        queues = [
            {
                "queue_id": queue.queue_id,
                "min_offset": queue.min_offset,
                "max_offset": queue.max_offset,
            }
            for queue in self.queues
        ]
        return {"topic": self.topic, "kind": self.kind, "messages": self.messages, "queues": queues}


def kind_of(topic: str) -> str:
    """Return the kind of a topic: "topic", or an internal kind such as retry, dead letter or system."""
    if topic.startswith(RETRY_TOPIC_PREFIX):
        return "retry"
    if topic.startswith(DEAD_LETTER_TOPIC_PREFIX):
        return "dead letter"
    is_system = topic in INTERNAL_TOPICS or topic.startswith(_SYSTEM_PREFIX)
    return "system" if is_system else "topic"


def topics_of(store: AnyStore, topic: str | None = None) -> list[TopicFacts]:
    """Return all topics, or only one topic, with their queues. Raises StoreAccessError."""
    return list(each_topic(store, topic))


def each_topic(
    store: AnyStore, topic: str | None = None, after: str | None = None
) -> Iterator[TopicFacts]:
    """Yield topics with their queues, sorted by name, beginning after the name `after`."""
    queue_ids: dict[str, list[int]] = {}
    for name, queue_id in store.list_queues(topic):
        if after is None or name > after:
            queue_ids.setdefault(name, []).append(queue_id)
    for name, ids in sorted(queue_ids.items()):
        queues = []
        for queue_id in ids:
            with suppress(MessageNotFoundError):  # The queue was deleted since it was listed.
                low = store.min_queue_offset(name, queue_id, check=False)
                queues.append(QueueFacts(queue_id, low, store.max_queue_offset(name, queue_id)))
        if queues:
            yield TopicFacts(name, tuple(queues))


@dataclass(frozen=True, slots=True)
class StoreSummary:
    """One store.

    Attributes:
        first_ms, last_ms: store times of the first and the newest message of its queues; None without messages, or if
            the first or last message of a queue cannot be read
        ranges: ranges of the log, oldest first, with the way in which a key is found in each
        problems: IndexFiles that are not used, with the reasons, and why a time is unknown
    """

    name: str
    path: str
    begin_offset: int
    end_offset: int
    first_ms: int | None
    last_ms: int | None
    topics: int
    queues: int
    messages: int
    ranges: tuple[CoveredRange, ...]
    problems: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        return self.end_offset - self.begin_offset

    def bytes_of(self, basis: str) -> int:
        return sum(part.end - part.begin for part in self.ranges if part.basis == basis)

    def as_json(self) -> dict[str, Any]:
        return {
            "store": self.name, "path": self.path,
            "begin_offset": self.begin_offset, "end_offset": self.end_offset,
            "first_store_timestamp": self.first_ms, "last_store_timestamp": self.last_ms,
            "topics": self.topics, "queues": self.queues, "messages": self.messages,
            "proven_bytes": self.bytes_of("proven"),
            "spot_checked_bytes": self.bytes_of("spot-checked"),
            "scanned_bytes": self.bytes_of("scanned"),
            "problems": list(self.problems),
        }  # fmt: skip


def facts_of(name: str, store: SharedStore) -> StoreSummary:
    """Summarize a store. Raises StoreError if the store cannot be read."""
    with store.reader() as reader:
        topics = topics_of(reader)
        begin, end = reader.begin_offset(), reader.end_offset()
        planner = reader.key_planner()
        ranges = tuple(covered_log(planner.segments(), end))
        (first, before), (last, after) = _time(reader, topics, min), _time(reader, topics, max)
        problems = *map(str, planner.problems), *dict.fromkeys(before + after)
        return StoreSummary(
            name, reader.path, begin, end, first, last,
            len(topics), sum(len(topic.queues) for topic in topics),
            sum(topic.messages for topic in topics),
            ranges, problems,
        )  # fmt: skip


def _time(
    store: AnyStore, topics: list[TopicFacts], of: Callable[[Iterable[int]], int]
) -> tuple[int | None, list[str]]:
    """Return the store time of the first (`of` is min) or newest (max) message of all queues, and why it is unknown."""
    times, problems = list[int](), list[str]()
    for topic in topics:
        for queue in topic.queues:
            offset = queue.min_offset if of is min else queue.max_offset - 1
            if not queue.messages:
                continue
            try:
                times.append(
                    store.get_by_queue(topic.topic, queue.queue_id, offset).store_timestamp
                )
            except MessageNotFoundError:
                continue  # The message has expired.
            except StoreError as error:
                which = "first" if of is min else "newest"
                problems.append(f"the time of the {which} message is unknown: {error}")
    return (None if problems or not times else of(times)), problems[:1]
