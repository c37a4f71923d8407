"""One search over a store, in steps: by key or id, or by topic and time."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from reput.console.arguments import Search
from reput.errors import UsageError
from reput.findings import Finding
from reput.format.commit_log import MessageExt
from reput.query.by_time import messages_of_topic
from reput.query.shared_store import SharedStore
from reput.store.answers import Coverage, QueryResult


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a search ended.

    Attributes:
        count: how many messages were found
        cursor: where to continue, or None
        problems: why messages may be missing; empty if the answer is complete
        coverage: what was searched; None where queues alone were read
    """

    count: int
    cursor: int | None
    problems: tuple[Finding, ...]
    coverage: Coverage | None

    @property
    def is_complete(self) -> bool:
        return not self.problems


Steps = Generator[tuple[MessageExt, ...] | Outcome, None, None]


def search(store: SharedStore, wanted: Search) -> Steps:
    """Messages as they are found, newest first, and at last the outcome. Raises UsageError, StoreError."""
    if wanted.key is None and wanted.topic is None:
        raise UsageError("pass key, or topic, or both", arguments=["key", "topic"])
    return _by_topic(store, wanted) if wanted.key is None else _by_key(store, wanted, wanted.key)


def _by_topic(store: SharedStore, wanted: Search) -> Steps:
    assert wanted.topic is not None
    bounds = wanted.begin, wanted.end, wanted.limit, wanted.after
    with store.reader() as reader:
        page = messages_of_topic(reader, wanted.topic, *bounds)
    yield page.messages
    yield Outcome(len(page.messages), page.cursor, page.problems, None)


def _by_key(store: SharedStore, wanted: Search, key: str) -> Steps:
    """An offset id names one place of the log; everything else is a key, unique keys among them."""
    with store.reader() as reader:
        named = reader.get_by_offset_id(key) if wanted.after is None else None
        found = 0
        if named is not None and _takes(wanted, named):
            found = 1
            yield (named,)
        bounds = wanted.begin, wanted.end, wanted.limit, wanted.after
        for step in reader.query_steps(wanted.topic, key, *bounds):
            if isinstance(step, QueryResult):
                yield Outcome(found, step.cursor, step.coverage.unreadable, step.coverage)
            else:
                new = tuple(message for message in step.messages if message != named)
                found += len(new)
                yield new


def _takes(wanted: Search, message: MessageExt) -> bool:
    time = message.store_timestamp
    return (
        wanted.topic in (None, message.topic)
        and (wanted.begin is None or wanted.begin <= time)
        and (wanted.end is None or time <= wanted.end)
    )
