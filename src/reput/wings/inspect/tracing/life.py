"""Define the life of a message: its records in order of time, and their meaning for its delivery."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from reput.base import Finding
from reput.core import Coverage
from reput.engine.messages import coverage_fields, message_fields
from reput.format.commit_log import MessageExt
from reput.format.properties import (
    DEAD_LETTER_TOPIC_PREFIX,
    DELAY,
    DISCARDED_HALF_TOPIC,
    HALF_TOPICS,
    KEYS,
    OP_TOPICS,
    ORIGIN_MESSAGE_ID,
    REAL_TOPIC,
    RETRY_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_OUT_MS,
    TIMER_RECALLED,
    TIMER_TOPIC,
    TRACE_TOPIC,
    TRACE_TOPIC_PREFIX,
)
from reput.format.trace_record import trace_entries
from reput.format.transactions import decided_places, half_place

TRACE_SCHEMA = "reput-trace/1"
"""Version of the JSON form; its number grows with every incompatible change (docs/trace.md)."""


class Role(StrEnum):
    """The role of a record in the life of a message."""

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
    TRACE = "trace"
    """A client's report about the message: it was sent, or consumed."""


_OF_TOPIC = {
    SCHEDULE_TOPIC: Role.SCHEDULED,
    TIMER_TOPIC: Role.TIMER,
    **dict.fromkeys(HALF_TOPICS, Role.HALF),
    **dict.fromkeys(OP_TOPICS, Role.OP),
    DISCARDED_HALF_TOPIC: Role.DISCARDED_HALF,
}
_OF_TRANSACTION = {
    "commit": Role.COMMITTED,
    "prepared": Role.PREPARED,
    "rollback": Role.ROLLED_BACK,
}
WAITING = (Role.SCHEDULED, Role.TIMER)
"""Roles of delayed records. A broker stores a delayed record in an internal topic, and later delivers a copy in the
record's real topic."""
_FOR_CONSUMERS = (Role.MESSAGE, Role.COMMITTED, Role.RETRY)


def role_of(message: MessageExt) -> Role:
    """Return a record's role, by its topic or, in topics of users, by the transaction bits of its sys flag."""
    if message.topic == TIMER_TOPIC and TIMER_RECALLED in message.properties:
        return Role.RECALL
    return role_of_topic(message.topic) or _OF_TRANSACTION.get(message.transaction, Role.MESSAGE)


def role_of_topic(topic: str) -> Role | None:
    """Return the role of records in a topic that brokers use internally; None for other topics."""
    if topic.startswith(RETRY_TOPIC_PREFIX):
        return Role.RETRY
    if topic.startswith(DEAD_LETTER_TOPIC_PREFIX):
        return Role.DEAD_LETTER
    if topic == TRACE_TOPIC or topic.startswith(TRACE_TOPIC_PREFIX):
        return Role.TRACE
    return _OF_TOPIC.get(topic)


def is_for_consumers(role: Role) -> bool:
    """Return whether consumers receive records with this role, from an ordinary topic or a retry topic."""
    return role in _FOR_CONSUMERS


def was_scheduled(message: MessageExt) -> bool:
    """Return whether a record is the delivered copy of a delayed message.

    The copy still has the property DELAY or TIMER_OUT_MS, and its topic equals its property REAL_TOPIC.
    """
    properties = message.properties
    has_waited = DELAY in properties or TIMER_OUT_MS in properties
    return properties.get(REAL_TOPIC) == message.topic and has_waited


class FoundBy(StrEnum):
    """How a record was found."""

    KEY = "key"
    UNIQUE_KEY = "unique_key"
    MESSAGE_ID = "message_id"
    ORIGIN = "origin"
    """Found because another record of the trace names this message as its origin."""
    ORIGIN_MESSAGE_ID = "origin_message_id"
    """Found by reading a queue, because this record names a message of the trace as its origin."""
    OP_QUEUE = "op_queue"


@dataclass(frozen=True, slots=True)
class Event:
    """One record of a traced message.

    Attributes:
        store: The path of the record's store.
        message: The record.
        role: The role of the record in the life of the message.
        found_by: How the record was found.
        life: Which of the traced messages the record belongs to, as a number from 1 on. Several messages may have the
            traced key.
        gap_ms: Milliseconds since the previous event; None for the first event. Negative only if a clock was set back.
        due_ms: Delivery time, ms since 1970, of a scheduled record (from its ConsumeQueue) or of a record in the timer
            (from the record itself); None for other records.
        is_queued: Whether the ConsumeQueue has an entry for the record; None if consumers do not read such records.
        group: The consumer group of a retry or dead letter; None for other records.
    """

    store: str
    message: MessageExt
    role: Role
    found_by: FoundBy
    life: int = 1
    gap_ms: int | None = None
    due_ms: int | None = None
    is_queued: bool | None = None
    group: str | None = None

    @property
    def stored_ms(self) -> int:
        return self.message.store_timestamp


Numbered = tuple[int, Event]
"""The number of an event within its trace, from 0 on, and the event."""


class ReasonKind(StrEnum):
    """The kinds of reasons why a message was delivered late, twice or never. docs/trace.md explains each kind."""

    STORED_LATE = "stored_late"
    NOT_QUEUED = "not_queued"
    DAMAGED_BODY = "damaged_body"
    DELAYED = "delayed"
    DELIVERED_LATE = "delivered_late"
    NOT_DUE_YET = "not_due_yet"
    OVERDUE = "overdue"
    RECALLED = "recalled"
    BLOCKED_LEVEL = "blocked_level"
    RETRIED = "retried"
    RETRY_MISSING = "retry_missing"
    DEAD_LETTER = "dead_letter"
    SENT_TWICE = "sent_twice"
    DELIVERED_TWICE = "delivered_twice"
    SAME_BODY = "same_body"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    UNDECIDED = "undecided"
    CHECKED = "checked"
    DISCARDED = "discarded"
    TRACED = "traced"


@dataclass(frozen=True, slots=True)
class Reason:
    """A sentence that explains why a message was delivered late, twice or never.

    Attributes:
        kind: The kind.
        text: The sentence.
        events: The numbers, from 0 on, of the events that are evidence for the reason.
    """

    kind: ReasonKind
    text: str
    events: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoreCoverage:
    """The parts of one store that were searched.

    Attributes:
        store: The path of the store.
        coverage: Joined coverage of all look-ups by key.
        problems: Queue entries, or their records, that could not be read.
        unread: Number of queue entries (of op, retry, dead letter and schedule topics) that were not read because
            of the limit.
        is_shortened: Whether a limit shortened an answer, so that only the newest messages were followed.
    """

    store: str
    coverage: Coverage
    problems: tuple[Finding, ...] = ()
    unread: int = 0
    is_shortened: bool = False

    @property
    def is_complete(self) -> bool:
        is_covered = self.coverage.is_complete and not self.problems
        return is_covered and not (self.unread or self.is_shortened)

    @property
    def is_damaged(self) -> bool:
        """Return whether something could not be read."""
        return bool(not self.coverage.is_complete or self.problems)


@dataclass(frozen=True, slots=True)
class Life:
    """The result of a trace. Events are sorted by store time, then by store and physical offset."""

    events: tuple[Event, ...]
    reasons: tuple[Reason, ...]
    searched: tuple[StoreCoverage, ...]

    @property
    def is_complete(self) -> bool:
        return all(store.is_complete for store in self.searched)

    @property
    def is_damaged(self) -> bool:
        """Return whether something could not be read."""
        return any(store.is_damaged for store in self.searched)


def number_lives(events: Sequence[Event]) -> list[Event]:
    """Return the events with `life` set to the number of their message. Messages are numbered from 1 on.

    The events must be in order of time.
    """
    names = _Names(events)
    numbers: dict[str, int] = {}
    return [
        replace(event, life=numbers.setdefault(names.of(event), len(numbers) + 1))
        for event in events
    ]


def decided_by(op: Event, half: Event) -> bool:
    """Return whether an op message decides this half message."""
    same_queue = op.store == half.store and op.message.queue_id == half.message.queue_id
    return same_queue and half_place(half.message) in decided_places(op.message)


class _Names:
    """Finds the name of each event's message: a unique key, or else an offset message id.

    If a 5.x client sends several messages in one call, as a list, each has two unique keys: first its own, then the
    list's.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self._halves = [event for event in events if event.role is Role.HALF]
        self._by_id: dict[str, Event] = {}
        self._by_keys: dict[str, list[Event]] = {}
        self._unique_keys: set[str] = set()
        for event in events:
            self._by_id.setdefault(event.message.message_id, event)
            if event.role in (Role.RETRY, Role.DEAD_LETTER, Role.OP, Role.TRACE):
                continue
            if event.message.unique_key:
                self._unique_keys.add(event.message.unique_key)
            if keys := event.message.properties.get(KEYS):
                self._by_keys.setdefault(keys, []).append(event)

    def of(self, event: Event, may_follow: bool = True) -> str:
        message, properties = event.message, event.message.properties
        first_name = next(iter(message.unique_keys), message.message_id)
        if event.role is Role.OP:
            half = next((half for half in self._halves if decided_by(event, half)), None)
            return self.of(half) if half is not None else first_name
        if event.role is Role.TRACE:
            traced = [entry.message_id for entry in trace_entries(message.body)]
            # Without a record of the message itself, the trace is about the first message that it names.
            named = (name for name in traced if name in self._unique_keys)
            return next(named, [*traced, first_name][0])
        origin = properties.get(ORIGIN_MESSAGE_ID)
        if origin:
            first = self._by_id.get(origin)
            if first is None or not may_follow or first is event:
                return origin
            # Do not follow the origin of the origin: if two damaged records named each other, the search would never
            # end.
            return self.of(first, may_follow=False)
        if event.role in (Role.RETRY, Role.DEAD_LETTER) and first_name not in self._unique_keys:
            # The retry names no origin, and no original message has the retry's unique key. Take the latest earlier
            # message with the same KEYS.
            earlier = [
                record
                for record in self._by_keys.get(properties.get(KEYS, ""), [])
                if record.stored_ms <= event.stored_ms
            ]
            if earlier:
                return self.of(earlier[-1])
        return first_name


def life_fields(life: Life, most_body_bytes: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a trace as dicts: first one per event, then one per reason, then an end object.

    `message_fields` describes how `most_body_bytes` shortens bodies.
    """
    for event in life.events:
        yield _event_fields(event, most_body_bytes)
    for reason in life.reasons:
        yield {"reason": reason.kind, "text": reason.text, "events": reason.events}
    yield {
        "complete": life.is_complete,
        "events": len(life.events),
        "searched": [_searched_fields(coverage) for coverage in life.searched],
    }


def _event_fields(event: Event, most_body_bytes: int | None) -> dict[str, Any]:
    return {
        "event": event.role,
        "store": event.store,
        "life": event.life,
        "gap_ms": event.gap_ms,
        "found_by": event.found_by,
        "due_ms": event.due_ms,
        "queued": event.is_queued,
        "group": event.group,
        "message": message_fields(event.message, most_body_bytes),
    }


def _searched_fields(searched: StoreCoverage) -> dict[str, Any]:
    return {
        "store": searched.store,
        "complete": searched.is_complete,
        "shortened": searched.is_shortened,
        "unread": searched.unread,
        **coverage_fields(searched.coverage),
        "unreadable": [
            finding.as_json() for finding in (*searched.coverage.unreadable, *searched.problems)
        ],
    }
