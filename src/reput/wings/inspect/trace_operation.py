"""Define `reput.trace`, which follows one message through topics and stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

from reput.base import Finding, Report, checked, counted, printable
from reput.core import MessageStore, ReaderOptions
from reput.engine.stores import StoreAnswer, Stores, find_replicas, open_named, stores_of
from reput.errors import ReputError, StoreError, UsageError
from reput.wings.inspect.trace import trace_life
from reput.wings.inspect.trace_text import life_lines, problems_of
from reput.wings.inspect.tracing.life import TRACE_SCHEMA, Life, life_fields


@dataclass(frozen=True, slots=True, repr=False)
class TraceReport(Report):
    """The records of a message in order of time, and the reasons why it was delivered late, twice or never.

    Attributes:
        stores: The names of the searched stores.
        asked: The key, message id and topic in the request.
        life: The events and reasons, and the searched ranges of each store.
        failed: Stores that could not be read.
        replica_of: For each replica, by name, the name of its master. Replicas were not searched.
        differing: Findings about stores with the same cluster and broker name whose logs differ.
    """

    stores: tuple[str, ...]
    asked: dict[str, str | None]
    life: Life
    failed: tuple[StoreAnswer[Any], ...] = ()
    replica_of: Mapping[str, str] = field(default_factory=dict)
    differing: tuple[Finding, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Return whether all searched parts of all stores were readable."""
        return self.life.is_complete and not self.failed

    @property
    def headline(self) -> str:
        return f"{counted(len(self.life.events), 'record')} in {counted(len(self.stores), 'store')}"

    def __len__(self) -> int:
        return len(self.life.events)

    def lines(self) -> Iterator[str]:
        yield from life_lines(self.life)
        yield from (f"reput: {problem}" for problem in self.problems())

    def problems(self) -> Iterator[str]:
        """Yield unreadable stores, unreadable parts of stores, and differences between replicas."""
        yield from map(printable, self._unsearched())
        yield from (printable(str(finding)) for finding in self.differing)
        yield from problems_of(self.life)

    def _unsearched(self) -> list[str]:
        return [f"{answer.store}: not searched: {answer.error}" for answer in self.failed]

    def header(self) -> dict[str, Any]:
        """Return the first object of the JSON lines, which describes the request and the stores."""
        return {"schema": TRACE_SCHEMA, "stores": list(self.stores), **self.asked}

    def fields(self) -> Iterator[dict[str, Any]]:
        """Yield the objects of the JSON lines after the first: events, reasons and the end."""
        *parts, end = life_fields(self.life)
        yield from parts
        end["complete"] = self.is_complete
        if self.failed:
            end["failed"] = self._unsearched()
        if self.differing:
            end["differing"] = [finding.as_json() for finding in self.differing]
        yield end

    def as_dict(self) -> dict[str, Any]:
        *parts, end = self.fields()
        return {
            **self.header(),
            "events": [part for part in parts if "event" in part],
            "reasons": [part for part in parts if "reason" in part],
            "end": end,
            "failed": [
                {"store": answer.store, "error": str(answer.error)} for answer in self.failed
            ],
            "replica_of": dict(self.replica_of),
            "differing": [finding.as_json() for finding in self.differing],
        }


@checked
def trace(
    stores: Stores,
    *,
    key: str | None = None,
    message_id: str | None = None,
    topic: str | None = None,
    most_messages: int = 100,
    most_entries: int = 20_000,
    **reading: Unpack[ReaderOptions],
) -> TraceReport:
    """Find all records of a message in stores, and explain its delivery.

    Args:
        stores: Paths, URLs, patterns of these, or NamedStores. Of several replicas only the master is searched.
        key: One of the message's KEYS, or its unique key.
        message_id: Instead of `key`: the message's offset message id or unique key.
        topic: The topic in which to search for the key; None for all topics.
        most_messages: Maximum number of messages per look-up, newest first.
        most_entries: Maximum number of messages read per store from retry, dead letter, schedule and op queues.
        reading: Settings as for `open_store`.

    Raises:
        UsageError, StoreNotFoundError, StoreAccessError, StoreChangedError: no store can be read. If only some stores
            are unreadable, the report names them.
    """
    if (key is None) == (message_id is None):
        raise UsageError("pass one of key and message_id", arguments=["key", "message_id"])
    named = stores_of(stores, reading.get("storage_options"))
    if reading.get("index") is not None and len(named) > 1:
        raise UsageError(
            f"index: works with one store only, not with {len(named)}", arguments=["index"]
        )
    replicas = find_replicas(named)
    with ExitStack() as stack:
        readers: dict[str, MessageStore] = {}
        failed: list[StoreAnswer[Any]] = []
        searched: dict[str, str] = {}
        """Names of the opened stores, by name of the first store with their log."""
        # Open masters before their replicas, because only the first readable store of each log is searched.
        for store in sorted(named, key=lambda named_store: named_store.name in replicas.first):
            log = replicas.first.get(store.name, store.name)
            try:
                if log not in searched:
                    readers[store.name] = stack.enter_context(open_named(store, **reading))
                    searched[log] = store.name
            except ReputError as error:
                failed.append(StoreAnswer(store.name, store.path, None, error))
        if not readers:
            raise failed[0].error or UsageError("no store can be read")
        life = _traced(
            readers, failed, key=key, message_id=message_id, topic=topic, most_messages=most_messages,
            most_entries=most_entries,
        )  # fmt: skip
        life = _with_names(life, {store.path: name for name, store in readers.items()})
    request = {"key": key, "message": message_id, "topic": topic}
    replica_of = {
        name: searched[log]
        for name, log in replicas.first.items()
        if searched.get(log, name) != name
    }
    return TraceReport(tuple(readers), request, life, tuple(failed), replica_of, replicas.differing)


def _traced(
    readers: dict[str, MessageStore], failed: list[StoreAnswer[Any]], **request: Any
) -> Life:
    """Trace a message through open stores. If a store turns out to be unreadable, move it from `readers` to `failed`.

    Raises StoreError if no store is left.
    """
    count = len(readers)
    try:
        return trace_life(list(readers.values()), **request)
    except StoreError:
        # The trace goes from store to store. To find the store that failed, trace in each store alone.
        for name, store in list(readers.items() if count > 1 else ()):
            try:
                trace_life([store], **request)
            except StoreError as store_error:
                failed.append(StoreAnswer(name, store.path, None, store_error))
                del readers[name]
            # This store has no queues that show which topics exist. Together with other stores it can be traced: their
            # queues show the topics. So do not report it as unreadable.
            except UsageError:
                continue
        if len(readers) in (0, count):
            raise
    return trace_life(list(readers.values()), **request)


def _with_names(life: Life, names: Mapping[str, str]) -> Life:
    """Replace the paths of stores in a trace by their names."""
    return replace(
        life,
        events=tuple(replace(event, store=names[event.store]) for event in life.events),
        searched=tuple(
            replace(coverage, store=names[coverage.store]) for coverage in life.searched
        ),
    )
