"""The life of a message: its records in order of time, and what they say about its delivery."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reput.examine.tracing.roles import Role
from reput.findings import Finding
from reput.format.commit_log import MessageExt
from reput.store.answers import Coverage


class FoundBy(StrEnum):
    """How a record was found."""

    KEY = "key"
    UNIQUE_KEY = "unique_key"
    MESSAGE_ID = "message_id"
    ORIGIN = "origin"
    """It is the message that another one names as its origin."""
    ORIGIN_MESSAGE_ID = "origin_message_id"
    """It names another one as its origin; found in its queue."""
    OP_QUEUE = "op_queue"


@dataclass(frozen=True, slots=True)
class Event:
    """One record.

    Attributes:
        store: Path of its store.
        message: The record.
        role: What it is in the life of the message.
        found_by: How it was found.
        life: Number of the message that it belongs to, from 1 on: a key may be that of several messages.
        gap_ms: Milliseconds since the event before; None for the first. Below zero only where clocks went back.
        due_ms: When a scheduled record is to be delivered, as its ConsumeQueue says, or one in the timer as it says
            itself; None for others.
        is_queued: Whether its ConsumeQueue leads to it; None where no consumer reads such a record.
        group: The consumer group of a retry or dead letter; None for others.
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
"""An event and its number among all of a trace, from 0 on."""


class ReasonKind(StrEnum):
    """What a reason is about; docs/trace.md has a line on each."""

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


@dataclass(frozen=True, slots=True)
class Reason:
    """One sentence on why a message was delivered late, twice or never.

    Attributes:
        kind: What it is about.
        text: The sentence.
        events: Numbers, from 0 on, of the events that show it.
    """

    kind: ReasonKind
    text: str
    events: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoreCoverage:
    """What was searched of one store.

    Attributes:
        store: Its path.
        coverage: Of all look-ups by key together.
        problems: Queue entries, or records that they lead to, that could not be read.
        unread: Entries of queues that have no index entry (op, retry, dead letter, schedule) and were not
            read, for there were too many.
        is_shortened: Whether a limit shortened an answer; only the newest messages were followed then.
    """

    store: str
    coverage: Coverage
    problems: tuple[Finding, ...] = ()
    unread: int = 0
    is_shortened: bool = False

    @property
    def is_complete(self) -> bool:
        return not (self.is_damaged or self.unread or self.is_shortened)

    @property
    def is_damaged(self) -> bool:
        """Whether something could not be read."""
        return bool(self.coverage.unreadable or self.problems)


@dataclass(frozen=True, slots=True)
class Life:
    """A trace. Events by store time, then store and physical offset."""

    events: tuple[Event, ...]
    reasons: tuple[Reason, ...]
    searched: tuple[StoreCoverage, ...]

    @property
    def is_complete(self) -> bool:
        return all(one.is_complete for one in self.searched)

    @property
    def is_damaged(self) -> bool:
        """Whether something could not be read."""
        return any(one.is_damaged for one in self.searched)
