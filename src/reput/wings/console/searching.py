"""Search one store step by step: by key or id, by topic and time, or by content."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from reput.base import Finding, Kind, json_text
from reput.core import (
    Coverage,
    Evidence,
    MessageStore,
    OffsetRange,
    PullResult,
    QueryProgress,
    QueryResult,
    joined,
)
from reput.engine.messages import TailFilter, message_fields, messages_of_topic
from reput.engine.stores import Pasted
from reput.engine.writer import SharedStore
from reput.errors import ReputError, UsageError
from reput.format.bodies import sent_body
from reput.format.commit_log import MessageExt, decode
from reput.wings.console.arguments import SearchForm
from reput.wings.console.children import CHILDREN, SearchJob
from reput.wings.console.mounts import Until
from reput.wings.console.users import Permission, may
from reput.wings.serve import HTTP

if TYPE_CHECKING:
    from reput.wings.console.sweep import Sweep


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a search.

    Attributes:
        count: number of messages that were found
        cursor: physical offset at which a search for older messages can continue, or None. The log from this offset on
            was searched
        problems: reasons why messages may be missing; empty if the answer is complete
        coverage: the ranges that were searched; None if only queues were read or the search ended early
        is_late: whether the search was stopped, or ended at its time limit
    """

    count: int
    cursor: int | None
    problems: tuple[Finding, ...]
    coverage: Coverage | None
    is_late: bool = False

    @property
    def is_complete(self) -> bool:
        has_coverage = self.coverage is None or self.coverage.is_complete
        return has_coverage and not self.problems


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a search, which runs from the end of the log towards its beginning.

    Attributes:
        offset: Physical offset down to which the log was searched.
        left_bytes: Bytes of the log before `offset`, which are not searched yet.
    """

    offset: int
    left_bytes: int


Steps = Generator[tuple[MessageExt, ...] | Progress | Outcome, None, None]
_FIRST_PAGE = _MOST_LEFT_OUT = 16
_PATIENCE_S = 2.0
"""Time after its limit after which a search in a child process is ended from outside."""


class Share:
    """The byte budget of one answer, for messages as JSON or for rows on a page."""

    def __init__(self, most_bytes: int = HTTP.answer_bytes) -> None:
        self.most_bytes, self._free_bytes, self._count = most_bytes, most_bytes, 0

    @property
    def is_spent(self) -> bool:
        return self._free_bytes <= 0

    def fields(self, message: MessageExt) -> dict[str, Any]:
        """Return the JSON fields of a message. The body is omitted if it alone exceeds the budget of the answer."""
        if not may(Permission.BODIES):
            return {**message_fields(message, 0), "body_error": "this needs the role bodies"}
        fields = message_fields(message, self.most_bytes)
        # JSON may be longer than the body: a control character takes six bytes.
        is_short = len(json_text(fields)) <= self.most_bytes
        return fields if is_short else message_fields(message, 0)

    def _cost(self, message: MessageExt) -> int:
        """Return the cost of a message in bytes. A body that is omitted counts as well, because it had to be read."""
        fields = self.fields(message)
        least = self.most_bytes // _MOST_LEFT_OUT if fields.get("body_error") else 0
        return max(len(json_text(fields)), least)

    def take(self, messages: Sequence[MessageExt]) -> tuple[MessageExt, ...]:
        """Return the first messages that fit into the budget: at least one, and only whole inner batches."""
        page: list[MessageExt] = []
        for _, group in groupby(messages, key=lambda message: message.physical_offset):
            batch = list(group)
            size = sum(map(self._cost, batch))
            if self._count and size > self._free_bytes:
                self._free_bytes = 0
                break
            self._free_bytes -= size
            self._count += len(batch)
            page += batch
        return tuple(page)

    def page(self, limit: int) -> int:
        """Return how many more messages of average size fit into the rest of the budget: from 1 to `limit`."""
        if not self._count:
            return min(_FIRST_PAGE, limit)
        average = max((self.most_bytes - self._free_bytes) // self._count, 1)
        return min(max(self._free_bytes // average, 1), limit)


def search(store: SharedStore, form: SearchForm, share: Share, until: Until | None = None) -> Steps:
    """Yield messages as they are found, newest first, until the byte budget of `share` is spent.

    Also yield the progress. The last value is the outcome.

    Raises UsageError, StoreError.
    """
    is_by_queue = form.topic is not None and form.content is None
    is_bounded = form.begin is not None or form.end is not None
    if not (form.keys or is_by_queue or is_bounded or form.content):
        raise UsageError(
            "pass key, topic, begin, end or contains", arguments=["key", "topic", "begin", "end"]
        )
    until = Until() if until is None else until
    if form.keys or is_by_queue:
        return _paged(store, form, share, until)
    if form.is_in_child:
        return _in_child(store, form, share, until)
    return swept(store, form, share, until, [])


def pull_share(
    store: SharedStore, place: tuple[str, int, int], limit: int, tags: str | None, share: Share
) -> PullResult:
    """Pull as many messages from a queue offset as fit into the budget. Unreadable messages are skipped.

    Raises the errors of `pull`.
    """
    pulled = store.pull_records(*place, limit, tags, share.most_bytes, on_corrupt="skip")
    messages = tuple(map(decode, pulled.records))
    part = share.take(messages)
    # If not all pulled messages fit into the budget, pull only the fitting messages again. The result of the second
    # pull states the queue offset after these messages, at which the caller continues.
    if len(part) < len(messages):
        pulled = store.pull_records(*place, len(part), tags, share.most_bytes, on_corrupt="skip")
    return PullResult(pulled.status, part, *pulled[2:])


def _paged(store: SharedStore, form: SearchForm, share: Share, until: Until) -> Steps:
    ended: Outcome | None = None
    limit, after, count = form.limit, form.after, 0
    while True:
        page = form._replace(limit=share.page(limit), after=after)
        steps = _by_key(store, page) if page.keys else _by_topic(store, page)
        for step in steps:
            if isinstance(step, Progress):
                yield step
                if until.is_over:
                    steps.close()
                    problems = ended.problems if ended else ()
                    yield Outcome(count, step.offset, problems, None, is_late=True)
                    return
                continue
            if isinstance(step, Outcome):
                ended = _joined(ended, step)
                break
            part = share.take(step)
            count += len(part)
            yield part
            if len(part) < len(step):
                cursor = part[-1].physical_offset if part else after
                problems = ended.problems if ended else ()
                yield Outcome(count, cursor, problems, ended.coverage if ended else None)
                return
            after = part[-1].physical_offset if part else after
        assert ended is not None
        limit -= page.limit
        after = ended.cursor
        if after is None or limit <= 0 or share.is_spent:
            yield replace(ended, count=count)
            return


def _in_child(store: SharedStore, form: SearchForm, share: Share, until: Until) -> Steps:
    """Search by content in a child process, which is killed when the search is stopped or the generator closed."""
    count, problems = 0, tuple[Finding, ...]()
    cursor = store.end_offset() if form.after is None else form.after
    progress = Progress(cursor, max(cursor - store.begin_offset(), 0))
    with closing(CHILDREN.steps(SearchJob.of(store, form, share.most_bytes, until))) as steps:
        for step in steps:
            value = step.value if step else progress
            if step and step.problems is not None:
                problems = step.problems
            if isinstance(value, ReputError):
                raise value
            if isinstance(value, Outcome):
                yield value
                return
            if isinstance(value, Progress):
                progress, cursor = value, min(cursor, value.offset)
            elif value:
                # Messages come newest first, so the log is searched from the last one on.
                count, cursor = count + len(value), value[-1].physical_offset
            yield value
            # At its time limit, a search ends by itself, and reports all that it found.
            if until.is_stopped or until.left_s < -_PATIENCE_S:
                yield Outcome(count, cursor, problems, None, is_late=True)
                return


def swept(
    store: SharedStore, form: SearchForm, share: Share, until: Until, problems: list[Finding]
) -> Steps:
    """Search by content, or by time without a topic. The log is read backwards.

    The list `problems` gets the reasons why messages may be missing, as soon as they are known.
    """
    # Import this late, because it loads Arrow and kernels.
    from reput.wings.console.sweep import Sweep, SweptTo

    filters = TailFilter(form.topic, begin=form.begin, end=form.end)
    with store.reader() as reader, reader.known_ranges.interrupted_by(until.check):
        sweep = Sweep(
            reader, filters, form.content, after=form.after, most_body_bytes=HTTP.answer_bytes
        )
        stop = reader.known_ranges.end() if form.after is None else form.after
        count, last, is_late = 0, stop, False
        cursor: int | None = None
        # A record that is a batch contains several messages. Collect the messages of one record here, so that one page
        # shows all of them.
        waiting = list[MessageExt]()
        for step in chain(sweep.steps(), [None]):
            problems[:] = _problems_of(sweep, store)
            if waiting and (
                not isinstance(step, MessageExt)
                or step.physical_offset != waiting[0].physical_offset
            ):
                batch = share.take(waiting) if count < form.limit else ()
                if not batch:
                    cursor = last
                    break
                yield batch
                count, last = count + len(batch), batch[-1].physical_offset
                waiting = []
            if isinstance(step, SweptTo):
                yield Progress(step.offset, step.left_bytes)
                if until.is_over:
                    cursor, is_late = step.offset, True
                    break
            elif step is not None:
                waiting.append(step)
        begin = reader.begin_offset() if cursor is None else cursor
        searched = OffsetRange(begin, max(stop, begin))
        evidence = Evidence(store.path)
        evidence.damage += _problems_of(sweep, store)
        for part in sweep.searched():
            evidence.scanned(*part)
        coverage = evidence.coverage(searched)
        yield Outcome(count, cursor, coverage.unreadable, None if is_late else coverage, is_late)


def _problems_of(sweep: Sweep, store: SharedStore) -> list[Finding]:
    findings = list(sweep.damage)
    # Bodies that were not searched may match, so the answer is not complete.
    if sweep.unsearched:
        detail = f"{sweep.unsearched:,} bodies were not searched: they are too long, or damaged"
        findings.append(Finding(Kind.BODY_TOO_LARGE, store.path, detail))
    return findings


def _joined(before: Outcome | None, page: Outcome) -> Outcome:
    """Join the outcome of the newer pages (None at the first page) with the outcome of the next, older page."""
    if before is None:
        return page
    problems = tuple(dict.fromkeys((*before.problems, *page.problems)))
    first, second = before.coverage, page.coverage
    if first is None or second is None:
        return replace(page, problems=problems)
    log = OffsetRange(second.log.start, first.log.stop)
    coverage = replace(
        joined((first, second), log),
        inner_messages=_sum(first.inner_messages, second.inner_messages),
    )
    return replace(page, problems=problems, coverage=coverage)


def _sum(first: int | None, second: int | None) -> int | None:
    return second if first is None else first + (second or 0)


def _by_topic(store: SharedStore, form: SearchForm) -> Steps:
    assert form.topic is not None
    bounds = form.begin, form.end, form.limit, form.after, HTTP.answer_bytes
    with store.reader() as reader:
        page = messages_of_topic(reader, form.topic, *bounds)
    yield page.messages
    yield Outcome(len(page.messages), page.cursor, page.problems, None)


def _by_key(store: SharedStore, form: SearchForm) -> Steps:
    """Search by offset message id, which contains a place in the log, or else by key or unique key."""
    with store.reader() as reader:
        begin = reader.begin_offset()
        at_places, unread = Pasted(form.keys, form.offset, form.place).at_places(reader)
        named = [message for message in at_places if _takes(form, message)]
        # The messages of a single key come newest first, so they can be shown as they are found. Those of several keys
        # must be merged first.
        if len(form.keys) == 1 and not named:
            count = 0
            for step in _queried(reader, form, form.keys[0]):
                if isinstance(step, QueryResult):
                    problems = (
                        step.coverage.unreadable if count else (*step.coverage.unreadable, *unread)
                    )
                    yield Outcome(count, step.cursor, problems, step.coverage)
                else:
                    new = tuple(message for message in step.messages if _contains(form, message))
                    count += len(new)
                    yield new
                    yield Progress(step.searched_to, max(step.searched_to - begin, 0))
            return
        ended: Outcome | None = None
        messages = dict.fromkeys(named)
        oldest = [0]  # The physical offsets at which searches for keys ended early.
        for key in form.keys:
            for step in _queried(reader, form, key):
                if isinstance(step, QueryResult):
                    outcome = Outcome(0, step.cursor, step.coverage.unreadable, step.coverage)
                    ended = outcome if ended is None else _beside(ended, outcome)
                    oldest.append(step.cursor or 0)
                else:
                    messages |= dict.fromkeys(step.messages)
        # There was one search per key, from the end of the log towards its beginning. A search may have ended early, at
        # an offset in `oldest`. Only the log after the greatest of these offsets was searched for every key. So show
        # only messages at or after the greatest offset. The next page continues before that offset.
        reached = max(oldest)
        selection = [
            message
            for message in messages
            if message.physical_offset >= reached and _contains(form, message)
        ]
        selection.sort(
            key=lambda message: (message.physical_offset, message.queue_offset), reverse=True
        )
        yield tuple(selection)
        assert ended is not None
        problems = ended.problems if selection else tuple(dict.fromkeys((*ended.problems, *unread)))
        yield replace(ended, count=len(selection), cursor=reached or None, problems=problems)


def _queried(
    reader: MessageStore, form: SearchForm, key: str
) -> Iterator[QueryProgress | QueryResult]:
    most_bytes = HTTP.answer_bytes // len(form.keys)
    bounds = form.begin, form.end, form.limit, form.after, most_bytes
    return reader.query_steps(form.topic, key, *bounds, any_case=True)


def _beside(first: Outcome, second: Outcome) -> Outcome:
    """Combine the outcomes of two searches.

    Return the second outcome, with the problems and the coverage of both searches.
    """
    problems = tuple(dict.fromkeys((*first.problems, *second.problems)))
    if first.coverage is None or second.coverage is None:
        return replace(second, problems=problems)
    coverage = joined((first.coverage, second.coverage), second.coverage.log)
    return replace(second, problems=problems, coverage=coverage)


def _takes(form: SearchForm, message: MessageExt) -> bool:
    time = message.store_timestamp
    return (
        # The queue of a light topic (LMQ) has messages of other topics.
        form.topic in (None, message.topic, form.place and form.place[0])
        and (form.begin is None or form.begin <= time)
        and (form.end is None or time <= form.end)
        and (form.after is None or message.physical_offset < form.after)
    )


def _contains(form: SearchForm, message: MessageExt) -> bool:
    if form.content is None:
        return True
    return form.content.takes(sent_body(message, HTTP.answer_bytes).data, message.properties)
