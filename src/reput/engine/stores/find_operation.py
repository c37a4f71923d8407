"""Define `reput.find`, which finds messages by key, by id, or by topic and time, in one store or in many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, NamedTuple, Unpack

from reput.base import (
    Finding,
    Report,
    Time,
    checked,
    counted,
    format_time,
    one_line,
    optional_milliseconds,
    printable,
)
from reput.core import MessageStore, QueryResult, ReaderOptions, answer_of, joined, wanted_tags
from reput.engine.messages import LogTail, TailFilter, coverage_fields, message_fields
from reput.engine.stores.named_stores import NamedStore
from reput.engine.stores.pasted import Pasted, understood
from reput.engine.stores.replicas import answered_by, differs
from reput.engine.stores.stores import (
    StoreAnswer,
    Stores,
    in_threads,
    open_named,
    raise_if_misused,
    stores_in_words,
    stores_of,
)
from reput.errors import UsageError
from reput.format.commit_log import MessageExt

StorePath = str | PathLike[str]
# Number of stores queried at a time. Queries spend most time waiting for a disk or object storage.
_AT_ONCE = 32
_NAME_WIDTH, _KEYS_WIDTH = 40, 60


class FoundMessage(NamedTuple):
    """A message, and the name of its store."""

    store: str
    message: MessageExt


@dataclass(frozen=True, slots=True, repr=False)
class FindReport(Report):
    """The messages of all stores, newest first, and the searched ranges of each store.

    Attributes:
        messages: The messages, by descending store time.
        answers: One answer per store, in the order of the stores. The answer of an unreadable store is an error.
        is_limited: Whether older messages are missing because of the limit.
        differing: Findings about messages that differ between replicas. Both versions are in `messages`.
        is_by_time: Whether the search was by topic and time. Such a search reads queues.
        answered_by: For each store that could not be read completely, by name: the name of the replica that was read
            instead.
    """

    messages: tuple[FoundMessage, ...]
    answers: tuple[StoreAnswer[QueryResult], ...]
    is_limited: bool = False
    differing: tuple[Finding, ...] = ()
    is_by_time: bool = False
    answered_by: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[FoundMessage]:
        return iter(self.messages)

    @property
    def is_complete(self) -> bool:
        """Return whether each store, or a replica of it, was completely readable."""
        return all(
            answer.is_complete or answer.store in self.answered_by for answer in self.answers
        )

    @property
    def headline(self) -> str:
        count, stores = len(self.messages), len({message.store for message in self.messages})
        total = self.total()
        text = counted(count, "message") if count else "No message"
        if len(self.answers) > 1:
            text += f" in {stores:,} of" if count else " in"
            text += f" {stores_in_words(len(self.answers))}"
        text += ", and there are older ones" if self.is_limited else ""
        failed, unreadable = total["failed"], total["unreadable_bytes"]
        text += f"; {stores_in_words(failed)} could not be read" if failed else ""
        return text + (f"; {counted(unreadable, 'byte')} could not be read" if unreadable else "")

    def lines(self) -> Iterator[str]:
        for store, message in self.messages:
            place = (
                f"{one_line(message.topic, _NAME_WIDTH)}/{message.queue_id}/{message.queue_offset}"
            )
            keys = one_line(" ".join(message.keys), _KEYS_WIDTH)
            where = f"  {printable(store)}" if len(self.answers) > 1 else ""
            yield f"{format_time(message.store_timestamp)}{where}  {place}  {keys}".rstrip()
        yield from map(printable, self.summary())
        yield from (printable(f"reput: {problem}") for problem in self.problems())

    def summary(self) -> Iterator[str]:
        """Yield the number of messages, and the searched part of each store. Stores without messages share one line."""
        yield f"{self.headline}."
        empty, counts = [], Counter(message.store for message in self.messages)
        for answer in self.answers:
            if answer.report is not None and answer.report.messages:
                count = len(answer.report.messages)
                text = counted(count, "message")
                if counts[answer.store] < count:
                    text += f", {count - counts[answer.store]:,} not shown (older, or in a replica)"
                yield f"{answer.store}: {text}; {_in_words([answer.report])}."
            elif answer.report is not None:
                empty.append(answer.report)
        if self.is_by_time:
            yield BY_QUEUES
        if empty and len(self.answers) > 1:
            yield f"{stores_in_words(len(empty))} without a message; {_in_words(empty)}."

    def problems(self) -> Iterator[str]:
        """Yield unreadable stores, unreadable parts of logs, and differences between replicas."""
        for answer in self.answers:
            if answer.error is not None:
                yield f"{answer.store}: not searched: {answer.error}"
            if answer.store in self.answered_by:
                yield f"{answer.store}: its replica {self.answered_by[answer.store]} was searched instead"
            coverage = answer.report.coverage if answer.report else None
            for said in (*coverage.notes, *coverage.unreadable) if coverage else ():
                yield f"{answer.store}: {said}"
        yield from map(str, self.differing)

    def coverage(self) -> list[dict[str, Any]]:
        """Return an object per store: how many bytes of its log were searched, and how many were unreadable."""
        return [
            {
                "store": answer.store,
                "path": answer.path,
                "is_complete": answer.is_complete,
                "error": None if answer.error is None else str(answer.error),
                "answered_by": self.answered_by.get(answer.store),
                **_searched(answer.report),
            }
            for answer in self.answers
        ]

    def total(self) -> dict[str, Any]:
        """Return the sums of the numbers in `coverage` over all stores."""
        rows = self.coverage()
        sums = {name: sum(row[name] for row in rows) for name in _SUMMED}
        failed = sum(answer.error is not None for answer in self.answers)
        return {"stores": len(rows), "failed": failed, "is_complete": self.is_complete, **sums}

    def as_dict(self) -> dict[str, Any]:
        return {
            "messages": [
                {"store": store, **message_fields(message)} for store, message in self.messages
            ],
            "is_limited": self.is_limited,
            "total": self.total(),
            "stores": self.coverage(),
            "differing": [difference.as_json() for difference in self.differing],
        }


_SUMMED = ("log_bytes", "indexed_bytes", "scanned_bytes", "unreadable_bytes")


BY_QUEUES = "ConsumeQueues were read, and samples of the log to find deleted queues; reput check finds all of them."
MOST_BY_TIME = 1000
"""Default limit of messages for a search by topic and time."""


@checked
def find(
    stores: Stores,
    key: str | None = None,
    *,
    message_id: str | None = None,
    topic: str | None = None,
    begin: Time | None = None,
    end: Time | None = None,
    tags: str | None = None,
    limit: int | None = None,
    on_answer: Callable[[StoreAnswer[QueryResult]], None] = lambda answer: None,
    **reading: Unpack[ReaderOptions],
) -> FindReport:
    """Find all messages by key, by id, or by topic and time, in one store or in many, newest first.

    Args:
        stores: Paths, URLs, patterns of these, or NamedStores. A store that is given twice is searched once.
        key: A unique key, or one of a message's KEYS.
        message_id: Instead of `key`: an offset message id or a unique key.
        topic: Only messages of this topic.
        begin: Only messages stored at this time or later.
        end: Only messages stored at this time or earlier.
        tags: Only messages with one of these tags, as in "a || b"; not with `key` or `message_id`.
        limit: Maximum number of messages: the newest of all stores. By default there is no limit with `key` or
            `message_id`, otherwise 1,000.
        on_answer: Called with the answer of each store as soon as it is known.
        reading: Settings as for `open_store`; the options of a NamedStore take precedence.

    Raises:
        UsageError: no store or no condition is given, or an argument is wrong. A store that cannot be read raises no
            error: the report names it, and is incomplete.
    """
    arguments = FindRequest.of(key, message_id, topic, begin, end, tags, limit)
    return find_by(
        stores,
        arguments.answer,
        arguments.limit,
        on_answer,
        is_by_time=arguments.is_by_time,
        **reading,
    )


def find_by(
    stores: Stores,
    search: Callable[[MessageStore], QueryResult],
    limit: int | None = None,
    on_answer: Callable[[StoreAnswer[QueryResult]], None] = lambda answer: None,
    *,
    is_by_time: bool = False,
    may_fork: bool = False,
    **reading: Unpack[ReaderOptions],
) -> FindReport:
    """Open and search each store, and join the answers, newest messages first.

    If the same message is found in several replicas, it is returned once.

    With `may_fork`, many stores are divided among forks of this process. Only the command line may pass `may_fork`.
    """
    named = stores_of(stores, reading.get("storage_options"))
    if len(named) > 1 and reading.get("index") is not None:
        raise UsageError(
            f"index: works with one store only, not with {len(named)}", arguments=["index"]
        )

    def ask(store: NamedStore) -> tuple[QueryResult, int]:
        with open_named(store, **reading) as reader:
            return search(reader), sum(file.size for file in reader.own_log.files)

    answers: list[StoreAnswer[QueryResult] | None] = [None] * len(named)
    for place, answer in in_threads(ask, named, _AT_ONCE, may_fork):
        answers[place] = answer
        on_answer(answer)
    all_answers = tuple(answer for answer in answers if answer is not None)
    raise_if_misused(all_answers)
    messages, differing = _each_once(named, all_answers)
    messages.sort(key=lambda found_message: found_message.message.store_timestamp, reverse=True)
    is_cut = any(answer.report and answer.report.cursor is not None for answer in all_answers)
    is_limited = is_cut or (limit is not None and len(messages) > limit)
    logs = [answer.report.coverage.log if answer.report else None for answer in all_answers]
    replaced = answered_by(named, [answer.is_complete for answer in all_answers], logs)
    return FindReport(
        tuple(messages[:limit]), all_answers, is_limited, tuple(differing), is_by_time, replaced
    )


def _each_once(
    stores: Sequence[NamedStore], answers: Sequence[StoreAnswer[QueryResult]]
) -> tuple[list[FoundMessage], list[Finding]]:
    """Return the messages of all stores, each once even if replicas have it, and findings about replicas that differ.

    Messages of stores with the same cluster and broker are the same if they have the same physical offset.
    """
    messages: list[FoundMessage] = []
    of_broker: dict[tuple[object, ...], FoundMessage] = {}
    differing = []
    for store, answer in sorted(zip(stores, answers, strict=True), key=lambda pair: _rank(pair[0])):
        for message in answer.report or ():
            found_message = FoundMessage(store.name, message)
            place = message.physical_offset, message.queue_offset
            first = of_broker.setdefault((*store.log_name, *place), found_message)
            if first is found_message:
                messages.append(found_message)
            elif first.message != message:
                messages.append(found_message)
                differing.append(differs(store.path, message.physical_offset, first.store))
    return messages, differing


def _rank(store: NamedStore) -> int:
    """Return the sort key of replicas, which puts the master first."""
    return store.broker_id or 0


@dataclass(frozen=True, slots=True)
class FindRequest:
    """The checked arguments of `find`. Times are in milliseconds.

    `text` is the text of `reput find`, in place of a key or an id.
    """

    key: str | None
    message_id: str | None
    topic: str | None
    begin: int | None
    end: int | None
    tags: frozenset[str]
    limit: int | None
    text: Pasted | None = None

    @property
    def is_by_time(self) -> bool:
        """Return whether the search is by topic and time. Such a search reads queues."""
        return self.key is None and self.message_id is None and self.text is None

    @classmethod
    def of_text(
        cls, text: str, topic: str | None, begin: int | None, end: int | None, limit: int | None
    ) -> FindRequest:
        """Check the arguments of `reput find`. Raises UsageError."""
        arguments = cls.of(text, None, topic, begin, end, None, limit)
        return replace(arguments, key=None, text=understood(text))

    @classmethod
    def of(
        cls,
        key: str | None,
        message_id: str | None,
        topic: str | None,
        begin: Time | None,
        end: Time | None,
        tags: str | None,
        limit: int | None,
    ) -> FindRequest:
        """Check the arguments of `find`. Raises UsageError."""
        names = ["key", "message_id", "topic", "begin", "end"]
        if key is not None and message_id is not None:
            raise UsageError("pass one of key and message_id", arguments=["key", "message_id"])
        is_by_time = key is None and message_id is None
        if is_by_time and topic is None and begin is None and end is None:
            raise UsageError("pass key, message_id, topic, begin or end", arguments=names)
        if tags is not None and not is_by_time:
            raise UsageError(
                "tags: cannot be combined with key or message_id", arguments=["tags", *names[:2]]
            )
        if message_id is not None and (begin is not None or end is not None):
            raise UsageError("begin, end: cannot be combined with message_id", arguments=names)
        if limit is not None and limit < 1:
            raise UsageError(f"limit must be at least 1, not {limit}", arguments=["limit"])
        most = MOST_BY_TIME if limit is None and is_by_time else limit
        first, last = optional_milliseconds(begin), optional_milliseconds(end, is_end=True)
        return cls(key, message_id, topic, first, last, frozenset(wanted_tags(tags)), most)

    def answer(self, store: MessageStore) -> QueryResult:
        """Search an open store. Raises UsageError, StoreAccessError, StoreChangedError."""
        bounds = self.begin, self.end, self.limit
        if self.text is not None:
            return _by_text(store, self.text, self.topic, *bounds)
        if self.key is not None:
            return store.find_records(self.topic, self.key, *bounds, any_case=True).decoded()
        if self.message_id is not None:
            return store.find_by_id(self.message_id, self.topic)
        return self._by_time(store)

    def _by_time(self, store: MessageStore) -> QueryResult:
        """Read queues backwards from their ends, then the log after the last dispatched message."""
        assert self.limit is not None
        predicate = TailFilter(self.topic, tags=self.tags, begin=self.begin, end=self.end)
        tail = LogTail(store, predicate)
        messages = tail.last(self.limit + 1)[::-1]
        cursor = messages[self.limit - 1].physical_offset if len(messages) > self.limit else None
        coverage = tail.coverage(cursor)
        return QueryResult(tuple(messages[: self.limit]), cursor, coverage)


def _by_text(
    store: MessageStore,
    text: Pasted,
    topic: str | None,
    begin: int | None,
    end: int | None,
    limit: int | None,
) -> QueryResult:
    """Return the messages of all meanings of a text, newest first."""
    named, unread = text.at_places(store)
    answers = [
        answer_of(store, message)
        for message in named
        # The queue of a light topic (LMQ) has messages of other topics.
        if topic in (None, message.topic, text.place and text.place[0])
        and (begin is None or begin <= message.store_timestamp)
        and (end is None or message.store_timestamp <= end)
    ]
    answers += [
        store.find_records(topic, key, begin, end, limit, any_case=True).decoded()
        for key in text.keys
    ]
    messages = sorted(
        dict.fromkeys(message for answer in answers for message in answer),
        key=lambda message: (message.physical_offset, message.queue_offset),
        reverse=True,
    )
    coverage = joined([answer.coverage for answer in answers])
    if unread and not messages:
        coverage = replace(coverage, unreadable=(*coverage.unreadable, *unread), proven=())
    cursors = [answer.cursor for answer in answers if answer.cursor is not None]
    if limit is not None and len(messages) > limit:
        cursors.append(messages[limit - 1].physical_offset)
    return QueryResult(tuple(messages[:limit]), max(cursors, default=None), coverage)


def _in_words(answers: Sequence[QueryResult]) -> str:
    log = sum(answer.coverage.log.size_bytes for answer in answers)
    indexed = sum(answer.coverage.indexed_bytes for answer in answers)
    scanned = sum(answer.coverage.scanned_bytes for answer in answers)
    if not indexed and not scanned:
        return f"{log:,} bytes of log"
    return f"{log:,} bytes of log, {indexed:,} through IndexFiles, {scanned:,} message by message"


def _searched(answer: QueryResult | None) -> Mapping[str, Any]:
    if answer is None:
        return {**dict.fromkeys(_SUMMED, 0), "searched": None}
    coverage = answer.coverage
    return {
        "log_bytes": coverage.log.size_bytes,
        "indexed_bytes": coverage.indexed_bytes,
        "scanned_bytes": coverage.scanned_bytes,
        "unreadable_bytes": coverage.unreadable_bytes,
        "searched": coverage_fields(coverage),
    }
