"""Answers of a store, their coverage, and the answers to questions that name a place in the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from reput.base import Finding, counted, late
from reput.core.log.offset_range import OffsetRange
from reput.core.log.record import LocatedRecord
from reput.core.query.evidence import Coverage, Evidence, Question
from reput.core.queues.queue_index import finding_of
from reput.core.store.store_reader import StoreReader
from reput.errors import CorruptMessageError, MessageNotFoundError
from reput.format.commit_log import MessageExt
from reput.format.message_id import decode_offset_id

# A notebook shows this many messages of an answer.
_MOST_ROWS = 20
# Only notebooks show answers as HTML.
_table_of, _time_of = late("reput.base", "table_of"), late("reput.base", "time_of")
# Few answers are printed.
_answer_lines = late("reput.engine.messages.message_text", "answer_lines")


@dataclass(frozen=True, slots=True, repr=False)
class QueryResult:
    """Messages without duplicates, newest first: by descending physical offset, then by descending queue offset.

    Messages of an inner batch (5.x) have the physical offset of the batch's record. A limit counts all messages of a
    batch as one message.

    Attributes:
        cursor: where to continue (`after=cursor`) if the limit shortened the answer, else None
        coverage: the searched ranges; `is_complete` is True if their evidence covers the question
    """

    messages: tuple[MessageExt, ...]
    cursor: int | None
    coverage: Coverage

    @property
    def is_complete(self) -> bool:
        return self.coverage.is_complete

    @property
    def notes(self) -> tuple[str, ...]:
        """Return remarks on the answer, as in `Coverage`."""
        return self.coverage.notes

    def __iter__(self) -> Iterator[MessageExt]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __bool__(self) -> bool:
        """Return True, even for an answer without messages."""
        return True

    def __repr__(self) -> str:
        complete = "complete" if self.is_complete else "incomplete"
        more = "" if self.cursor is None else f", continues after {self.cursor}"
        return f"<QueryResult: {counted(len(self.messages), 'message')}, {complete}{more}>"

    def __str__(self) -> str:
        """Return the output of `reput query`."""
        return "\n".join(_answer_lines()(self))

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the first messages, and whether there are more."""
        names = ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp", "body")
        rows = [
            [getattr(message, name) for name in names] for message in self.messages[:_MOST_ROWS]
        ]
        for row in rows:
            row[4] = _time_of()(row[4])
        coverage = "all could be read" if self.is_complete else "not all could be read"
        more = "" if self.cursor is None else ", and there are more"
        caption = f"{counted(len(self.messages), 'message')}{more}; {coverage}"
        return str(_table_of()(caption, names, rows))


class RecordProgress(NamedTuple):
    """A QueryProgress with records in place of messages."""

    records: tuple[LocatedRecord, ...]
    searched_to: int

    def decoded(self) -> QueryProgress:
        """Return a QueryProgress with the messages of these records."""
        return QueryProgress(tuple(record.message() for record in self.records), self.searched_to)


class QueryRecords(NamedTuple):
    """A QueryResult with records in place of messages."""

    records: tuple[LocatedRecord, ...]
    cursor: int | None
    coverage: Coverage

    @property
    def is_complete(self) -> bool:
        return self.coverage.is_complete

    def decoded(self) -> QueryResult:
        """Return a QueryResult with the messages of these records."""
        messages = tuple(record.message() for record in self.records)
        return QueryResult(messages, self.cursor, self.coverage)


class QueryProgress(NamedTuple):
    """The result of one step of a query.

    Attributes:
        messages: newest first; all are older than the messages of earlier steps
        searched_to: the log has been searched from this physical offset to its end
    """

    messages: tuple[MessageExt, ...]
    searched_to: int


ANY_OFFSET = (1 << 63) - 1
"""Greater than every physical offset."""


class IndexQuestion(NamedTuple):
    """The arguments of the broker's `queryOffset` and `queryMessage`.

    before  items of messages at this physical offset or later are skipped
    """

    topic: str
    key: str
    max_num: int
    begin: int
    end: int
    before: int = ANY_OFFSET


@dataclass(frozen=True, slots=True)
class QueryOffsetResult:
    """Physical offsets of the messages found, and store time and physical offset of the newest item in the index.

    The messages are in the broker's order: newest index item first.
    """

    physical_offsets: tuple[int, ...]
    index_last_update_timestamp: int = 0
    index_last_update_physical_offset: int = 0


class QueryMessageResult(QueryOffsetResult):
    """A QueryOffsetResult whose messages are in the order of a broker's answer."""

    __slots__ = ()


class PullStatus(StrEnum):
    """The outcome of a pull (`GetMessageStatus`, and the client's PullStatus)."""

    FOUND = "found"
    NO_NEW_MESSAGE = "no_new_message"
    NO_MATCHED_MESSAGE = "no_matched_message"
    OFFSET_TOO_SMALL = "offset_too_small"
    OFFSET_TOO_LARGE = "offset_too_large"

    @property
    def is_offset_illegal(self) -> bool:
        return self in (PullStatus.OFFSET_TOO_SMALL, PullStatus.OFFSET_TOO_LARGE)


class UnreadableMessages(NamedTuple):
    """Queue offsets [begin, end) of a queue whose messages cannot be read, and the reason.

    The range is empty if messages are missing before the queue's first entry, or after its last entry.
    """

    topic: str
    queue_id: int
    begin: int
    end: int
    finding: Finding

    def __str__(self) -> str:
        messages = f"queue offsets {self.begin} to {self.end - 1}"
        if self.end <= self.begin + 1:
            messages = f"queue offset {self.begin}"
        return f"{self.topic}/{self.queue_id}: {messages} cannot be read: {self.finding}"

    def as_json(self) -> dict[str, Any]:
        """Return the range as fields of JSON."""
        place = {"topic": self.topic, "queue": self.queue_id}
        return {**place, "begin": self.begin, "end": self.end, "finding": self.finding.as_json()}


class PullResult(NamedTuple):
    """Messages of a queue, and the offset at which to continue.

    Attributes:
        status: found; no_new_message at the end of the queue; no_matched_message if no examined message
            had a matching tag; offset_too_small for an offset before the first existing message;
            offset_too_large for an offset after the end
        messages: in order of their queue offsets; empty unless the status is found
        next_begin_offset: queue offset for the next pull, after the last examined message. If the offset was too small,
            this is the first message's offset. If the offset was too large, this is 0 in a queue that begins at 0 (as
            in the broker), and the queue's end in other queues
        min_offset: queue offset of the queue's first remaining entry. Use
            `min_queue_offset` to find out whether earlier entries are lost or expired
        max_offset: queue offset that the queue's next message will get
        unreadable: messages that were skipped because they cannot be read; empty with `on_corrupt="fail"`

    In RocketMQ: GetMessageResult, nextOffsetCorrection.
    """

    status: PullStatus
    messages: tuple[MessageExt, ...]
    next_begin_offset: int
    min_offset: int
    max_offset: int
    unreadable: tuple[UnreadableMessages, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Return whether all messages before `next_begin_offset` could be read."""
        return not self.unreadable


class PulledBody(NamedTuple):
    """Records of a queue in one answer, concatenated.

    messages           number of records
    next_begin_offset  queue offset after the last record
    min_offset         queue offset of the queue's first message
    max_offset         queue offset that the queue's next message gets
    """

    body: bytes | memoryview
    messages: int
    next_begin_offset: int
    min_offset: int
    max_offset: int


class PulledRecords(NamedTuple):
    """A PullResult with records, as stored bytes, in place of messages."""

    status: PullStatus
    records: tuple[bytes, ...]
    next_begin_offset: int
    min_offset: int
    max_offset: int
    unreadable: tuple[UnreadableMessages, ...] = ()


def answer_of(store: StoreReader, message: MessageExt) -> QueryResult:
    """Return the answer to a question that names the place of a message, which was read there."""
    place = OffsetRange(message.physical_offset, message.physical_offset + message.size_bytes)
    evidence = Evidence(store.commit_log.source.name)
    evidence.scanned(*place)
    question = Question(topics=frozenset({message.topic}))
    return QueryResult((message,), None, evidence.coverage(place, question=question))


def answer_at(store: StoreReader, physical_offset: int) -> QueryResult:
    """Return the message that begins at a physical offset, or an empty answer if no message begins there.

    Raises CorruptMessageError, StoreAccessError, StoreChangedError.
    """
    try:
        return answer_of(store, store.get(physical_offset))
    except MessageNotFoundError:
        log = store.commit_log
        start = min(max(physical_offset, log.min_offset), log.files_end)
        place = OffsetRange(start, min(max(physical_offset + 1, start), log.files_end))
        evidence = Evidence(log.source.name)
        evidence.scanned(*place)
        return QueryResult((), None, evidence.coverage(place))


def coverage_of_id(store: StoreReader, message_id: str) -> Coverage | None:
    """Return the coverage of the place that an offset id without a message names; None if it names no place in the log.

    Raises StoreAccessError, StoreChangedError.
    """
    log = store.commit_log
    try:
        offset = decode_offset_id(message_id).physical_offset
        if not log.min_offset <= offset < log.files_end:
            return None
        return answer_at(store, offset).coverage
    except CorruptMessageError as error:
        evidence = Evidence(log.source.name)
        evidence.damage.append(finding_of(error))
        return evidence.coverage(OffsetRange(error.physical_offset, error.physical_offset + 1))
    except ValueError:
        return None
