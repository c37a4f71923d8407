"""Define the report of a comparison of two stores."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from reput.base import Finding

MOST_EXAMPLES = 10


class Way(StrEnum):
    """How the messages of two stores were paired."""

    BY_OFFSET = "by_offset"
    """Messages were paired by physical offset, because A and B are copies of one log."""
    BY_QUEUE = "by_queue"
    """Messages were paired by topic, queue and queue offset."""
    BY_ROW = "by_row"
    """Rows of an export were paired with messages by physical offset, and compared column by column."""


class Part(StrEnum):
    """The parts of a store that are compared."""

    MESSAGE = "message"
    QUEUE_ENTRY = "queue_entry"
    INDEX_ENTRY = "index_entry"
    HEADER = "header"


class What(StrEnum):
    """The ways in which two stores can differ."""

    ONLY_IN_A = "only_in_a"
    ONLY_IN_B = "only_in_b"
    DIFFERENT = "different"


class Example(NamedTuple):
    """One difference.

    Attributes:
        place: The topic, queue and queue offset of a message or entry, or the names of files.
        physical_offset_a, physical_offset_b: The message's offset in each log; None if the log lacks the message.
        detail: The difference in words; may be empty.
    """

    part: Part
    what: What
    place: str
    physical_offset_a: int | None = None
    physical_offset_b: int | None = None
    detail: str = ""


class Extent(NamedTuple):
    """A log: physical offsets of its first byte and of its end."""

    begin: int
    end: int


@dataclass(slots=True)
class Difference:
    """The result of comparing two stores, A and B.

    Attributes:
        way: How messages were paired.
        logs: The extents of both logs.
        equal_bytes: Bytes of CommitLog files that are identical in both stores. Their messages are not counted.
        equal_messages: Number of equal messages in the other files.
        counts: Number of differences by part and `What`.
        expired: Number of messages only in A that precede the log of B, and number of messages only in B that precede
            the log of A. If messages are paired by queue, they precede the first message of the same queue in the other
            store. They probably expired there.
        behind: The same numbers for messages after the end of the other log, or after the last message of the same
            queue in the other store. The other store is probably older.
        examples: The first differences of each part and `What`.
        notes: Remarks in words.
        damage: The unreadable parts of A, and the unreadable parts of B. These parts are not compared.
    """

    way: Way
    logs: tuple[Extent, Extent]
    equal_bytes: int = 0
    equal_messages: int = 0
    counts: Counter[tuple[Part, What]] = field(default_factory=Counter)
    expired: list[int] = field(default_factory=lambda: [0, 0])
    behind: list[int] = field(default_factory=lambda: [0, 0])
    examples: list[Example] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    damage: tuple[list[Finding], list[Finding]] = field(default_factory=lambda: ([], []))

    @property
    def is_same(self) -> bool:
        return not self.counts

    @property
    def is_damaged(self) -> bool:
        """Return whether a part of A or B could not be read."""
        return bool(self.damage[0] or self.damage[1])

    def clear_messages(self) -> None:
        """Forget the differences between messages, so that the messages can be compared again."""
        for what in What:
            self.counts.pop((Part.MESSAGE, what), None)
        self.examples = [example for example in self.examples if example.part is not Part.MESSAGE]
        self.equal_messages, self.expired, self.behind = 0, [0, 0], [0, 0]

    def room(self, part: Part, what: What) -> int:
        """Return how many further examples of this difference may be added."""
        examples = sum(example.part is part and example.what is what for example in self.examples)
        return MOST_EXAMPLES - examples

    def add(self, part: Part, what: What, count: int) -> None:
        if count:
            self.counts[part, what] += count
