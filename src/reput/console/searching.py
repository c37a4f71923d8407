"""One search over a store, in steps: by key or id, or by topic and time."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

from reput.broker.limits import HTTP
from reput.console.arguments import SearchForm
from reput.errors import UsageError
from reput.findings import Finding
from reput.format.commit_log import MessageExt, decode
from reput.log.offset_range import OffsetRange
from reput.messages.json_codec import message_fields
from reput.messages.json_text import json_text
from reput.query.answers import Coverage, PullResult, QueryResult
from reput.query.by_time import messages_of_topic
from reput.query.shared_store import SharedStore


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a search ended.

    Attributes:
        count: how many messages were found
        cursor: where to continue, or None
        problems: why messages may be missing; empty if the answer is complete
        coverage: what was searched; None where queues alone were read, and of a search that ended early
        is_late: whether the search ended at its time limit; everything from the cursor on was searched
    """

    count: int
    cursor: int | None
    problems: tuple[Finding, ...]
    coverage: Coverage | None
    is_late: bool = False

    @property
    def is_complete(self) -> bool:
        return not self.problems


class _SearchedTo(NamedTuple):
    """Physical offset from which on everything has been searched."""

    offset: int


Steps = Generator[tuple[MessageExt, ...] | Outcome, None, None]
_Steps = Generator[tuple[MessageExt, ...] | Outcome | _SearchedTo, None, None]
_FIRST_PAGE = _MOST_LEFT_OUT = 16


class Share:
    """The bytes that one answer may hold: of its messages as JSON, or of what a page shows of them."""

    def __init__(self, most_bytes: int = HTTP.answer_bytes) -> None:
        self.most_bytes, self._left, self._count = most_bytes, most_bytes, 0

    @property
    def is_spent(self) -> bool:
        return self._left <= 0

    def fields(self, message: MessageExt) -> dict[str, Any]:
        """A message as JSON has it, without its body where that alone is more than an answer."""
        fields = message_fields(message, self.most_bytes)
        is_short = len(json_text(fields)) <= self.most_bytes  # a control character takes six
        return fields if is_short else message_fields(message, 0)

    def _cost(self, message: MessageExt) -> int:
        """Its bytes; of a body that is left out what it took to find that out, too."""
        fields = self.fields(message)
        least = self.most_bytes // _MOST_LEFT_OUT if fields.get("body_error") else 0
        return max(len(json_text(fields)), least)

    def take(self, messages: Sequence[MessageExt]) -> tuple[MessageExt, ...]:
        """Those of these messages that fit, from the first on: one at least, and of an inner batch all or none."""
        taken: list[MessageExt] = []
        for _, group in groupby(messages, key=lambda one: one.physical_offset):
            batch = list(group)
            size = sum(map(self._cost, batch))
            if self._count and size > self._left:
                self._left = 0
                break
            self._left -= size
            self._count += len(batch)
            taken += batch
        return tuple(taken)

    def page(self, limit: int) -> int:
        """How many messages to look for next, so that not many more are read than fit."""
        if not self._count:
            return min(_FIRST_PAGE, limit)
        average = max((self.most_bytes - self._left) // self._count, 1)
        return min(max(self._left // average, 1), limit)


def search(
    store: SharedStore, wanted: SearchForm, share: Share, deadline: float | None = None
) -> Steps:
    """Messages as they are found, newest first, as many as fit, and at last the outcome.

    It ends at the deadline, a time of `time.monotonic`; None is after the usual time.

    Raises UsageError, StoreError.
    """
    if wanted.key is None and wanted.topic is None:
        raise UsageError("pass key, or topic, or both", arguments=["key", "topic"])
    ends = time.monotonic() + HTTP.search_s if deadline is None else deadline
    return _paged(store, wanted, share, ends)


def pull_share(
    store: SharedStore, place: tuple[str, int, int], limit: int, tags: str | None, share: Share
) -> PullResult:
    """What `pull` returns from a topic, queue and queue offset on, as many messages as fit. Raises as that does."""
    pulled = store.pull_records(*place, limit, tags, share.most_bytes)
    messages = tuple(map(decode, pulled.records))
    taken = share.take(messages)
    if len(taken) < len(messages):  # the offset after these is asked for, not counted
        pulled = store.pull_records(*place, len(taken), tags, share.most_bytes)
    return PullResult(
        pulled.status, taken, pulled.next_begin_offset, pulled.min_offset, pulled.max_offset
    )


def _paged(store: SharedStore, wanted: SearchForm, share: Share, deadline: float) -> Steps:
    ended: Outcome | None = None
    left, after, count = wanted.limit, wanted.after, 0
    while True:
        page = wanted._replace(limit=share.page(left), after=after)
        steps = _by_topic(store, page) if page.key is None else _by_key(store, page, page.key)
        for step in steps:
            if isinstance(step, _SearchedTo):
                if time.monotonic() > deadline:
                    steps.close()
                    problems = ended.problems if ended else ()
                    yield Outcome(count, step.offset, problems, None, is_late=True)
                    return
                continue
            if isinstance(step, Outcome):
                ended = _joined(ended, step)
                break
            taken = share.take(step)
            count += len(taken)
            yield taken
            if len(taken) < len(step):
                cursor = taken[-1].physical_offset if taken else after
                problems = ended.problems if ended else ()
                yield Outcome(count, cursor, problems, ended.coverage if ended else None)
                return
            after = taken[-1].physical_offset if taken else after
        assert ended is not None
        left -= page.limit
        after = ended.cursor
        if after is None or left <= 0 or share.is_spent:
            yield replace(ended, count=count)
            return


def _joined(before: Outcome | None, page: Outcome) -> Outcome:
    """The outcome of a search up to the end of a page."""
    if before is None:
        return page
    problems = tuple(dict.fromkeys((*before.problems, *page.problems)))
    first, second = before.coverage, page.coverage
    if first is None or second is None:
        return replace(page, problems=problems)
    coverage = replace(
        second,
        log=OffsetRange(second.log.start, first.log.stop),
        inner_messages=_sum(first.inner_messages, second.inner_messages),
        indexed=(*first.indexed, *second.indexed),
        scanned=(*first.scanned, *second.scanned),
        unreadable=tuple(dict.fromkeys((*first.unreadable, *second.unreadable))),
        problems=tuple(dict.fromkeys((*first.problems, *second.problems))),
    )
    return replace(page, problems=problems, coverage=coverage)


def _sum(first: int | None, second: int | None) -> int | None:
    return second if first is None else first + (second or 0)


def _by_topic(store: SharedStore, wanted: SearchForm) -> _Steps:
    assert wanted.topic is not None
    bounds = wanted.begin, wanted.end, wanted.limit, wanted.after, HTTP.answer_bytes
    with store.reader() as reader:
        page = messages_of_topic(reader, wanted.topic, *bounds)
    yield page.messages
    yield Outcome(len(page.messages), page.cursor, page.problems, None)


def _by_key(store: SharedStore, wanted: SearchForm, key: str) -> _Steps:
    """An offset id names one place of the log; everything else is a key, unique keys among them."""
    with store.reader() as reader:
        named = reader.get_by_offset_id(key) if wanted.after is None else None
        found = 0
        if named is not None and _takes(wanted, named):
            found = 1
            yield (named,)
        bounds = wanted.begin, wanted.end, wanted.limit, wanted.after, HTTP.answer_bytes
        for step in reader.query_steps(wanted.topic, key, *bounds):
            if isinstance(step, QueryResult):
                yield Outcome(found, step.cursor, step.coverage.unreadable, step.coverage)
            else:
                new = tuple(message for message in step.messages if message != named)
                found += len(new)
                yield new
                yield _SearchedTo(step.searched_to)


def _takes(wanted: SearchForm, message: MessageExt) -> bool:
    time = message.store_timestamp
    return (
        wanted.topic in (None, message.topic)
        and (wanted.begin is None or wanted.begin <= time)
        and (wanted.end is None or time <= wanted.end)
    )
