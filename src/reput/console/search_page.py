"""The page that everything begins with: search, and results while they are found."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from threading import Event
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from reput.broker.limits import HTTP
from reput.console.arguments import Failure, SearchForm, search_of, text
from reput.console.mounts import Mounts
from reput.console.rendering import Views
from reput.console.searching import Outcome, Share, search
from reput.console.store_facts import TopicFacts, topics_of
from reput.errors import ReputError, UsageError
from reput.format.commit_log import MessageExt
from reput.query.answers import coverage_in_words
from reput.query.shared_store import MissingStore, SharedStore

_FIELDS = ("key", "topic", "begin", "end", "store")
_MOST_TOPICS, _MOST_SUGGESTED = 8, 500
_LISTED_PAUSES, _LEAST_LISTED_S = 10, 5.0
_LEAST_SHARE_BYTES = 64 << 10


class SearchPage:
    """`/`: a form; below it what was asked for, or what there is to ask."""

    def __init__(self, views: Views) -> None:
        self._views, self._mounts = views, views.mounts
        self._topics = _KnownTopics(self._mounts)

    async def search(self, request: Request) -> Response:
        query = request.query_params
        q = {name: text(query, name) or "" for name in _FIELDS}
        if not q["store"] and not self._mounts.names and self._mounts.missing:
            self._mounts.named(None)  # which says what is missing
        chosen = [self._mounts.named(q["store"])] if q["store"] else self._all()
        topics = await self._topics.known(chosen)
        common: dict[str, Any] = {
            "view": "search",
            "q": q,
            "topic_names": sorted({one.topic for _, one in topics})[:_MOST_SUGGESTED],
        }
        if not (q["key"] or q["topic"]):
            if q["begin"] or q["end"]:
                common["wrong"] = "Times need a topic, a key or an id beside them."
            shown = sorted(topics, key=lambda one: (one[1].kind != "topic", -one[1].messages))
            return await self._views.page(
                request, "start.html", top=shown[:_MOST_TOPICS], topics=len(topics),
                messages=sum(one.messages for _, one in topics), **{"wrong": "", **common},
            )  # fmt: skip
        try:
            wanted = search_of(query)
        except UsageError as error:
            return await self._views.page(
                request, "start.html", 400, top=[], topics=0, messages=0, wrong=str(error), **common
            )
        if len(chosen) > 1:
            found = _ResultsOfStores(chosen, self._mounts.missing, wanted)
            return self._views.stream(
                request, "results_of_stores.html", found=found, wanted=wanted, **common
            )
        searches = [_StoreResults(name, store, wanted) for name, store in chosen]
        return self._views.stream(
            request, "results.html", searches=searches, wanted=wanted, **common
        )

    def _all(self) -> list[tuple[str, SharedStore]]:
        return [self._mounts.named(name) for name in self._mounts.names]


class _KnownTopics:
    """The topics of stores, listed anew at most for a tenth of the time: clusters have hundreds of thousands."""

    def __init__(self, mounts: Mounts) -> None:
        self._mounts = mounts
        self._known: dict[str, tuple[float, SharedStore, list[TopicFacts]]] = {}

    async def known(
        self, stores: Sequence[tuple[str, SharedStore]]
    ) -> list[tuple[str, TopicFacts]]:
        """Return the topics of all stores that can be read; of the others, what is asked of them says it."""
        for name in self._known.keys() - {*self._mounts.names}:
            del self._known[name]
        now = time.monotonic()
        stale = [
            (name, store)
            for name, store in stores
            if (known := self._known.get(name)) is None or known[0] < now or known[1] is not store
        ]
        if stale:
            await self._mounts.run(lambda: self._list(stale))
        return [
            (name, one) for name, _ in stores if name in self._known for one in self._known[name][2]
        ]

    def _list(self, stores: Sequence[tuple[str, SharedStore]]) -> None:
        for name, store in stores:
            begin = time.monotonic()
            with suppress(ReputError):
                topics = topics_of(store)
                end = time.monotonic()
                until = end + max(_LISTED_PAUSES * len(stores) * (end - begin), _LEAST_LISTED_S)
                self._known[name] = until, store, topics


class _ResultsOfStores:
    """The results of several stores, searched in parallel, as the template goes through them.

    Attributes:
        total: Number of stores.
        count: Messages found so far.
        rows: Names of stores and messages, newest first, at most as many as the limit; known at the end.
        failures: Stores that could not be searched.
        missing: Number of stores that are not there; the page names them above.
        problems: Why messages may be missing.
        older: Whether there are older messages.
    """

    def __init__(
        self,
        stores: Sequence[tuple[str, SharedStore]],
        missing: Mapping[str, MissingStore],
        wanted: SearchForm,
    ) -> None:
        self._stores, self._wanted = stores, wanted
        self.total = len(stores) + len(missing)
        self.count = self.hits = self.without = self.log_bytes = self.scanned_bytes = 0
        self.rows: list[tuple[str, MessageExt]] = []
        self.failures: list[tuple[str, Failure]] = []
        self.missing = len(missing)
        self.problems: list[str] = []
        self.older = False
        self._stopped = Event()

    def progress(self) -> Generator[int, None, None]:
        """Yield how many stores are done, then the rest is known. Closing it stops the search."""
        deadline = time.monotonic() + HTTP.search_s
        pool = ThreadPoolExecutor(HTTP.search_threads)
        try:
            futures = [
                pool.submit(self._ask, name, store, deadline) for name, store in self._stores
            ]
            for done, future in enumerate(as_completed(futures), 1):
                self._take(*future.result())
                yield done
        finally:
            self._stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
        self.rows.sort(key=lambda row: row[1].store_timestamp, reverse=True)
        self.older |= len(self.rows) > self._wanted.limit
        del self.rows[self._wanted.limit :]

    def _ask(
        self, name: str, store: SharedStore, deadline: float
    ) -> tuple[str, list[MessageExt], Outcome | Failure | None]:
        """Search one store, within its part of the bytes of an answer."""
        found: list[MessageExt] = []
        share = Share(max(HTTP.answer_bytes // len(self._stores), _LEAST_SHARE_BYTES))
        try:
            for step in search(store, self._wanted, share, deadline):
                if self._stopped.is_set():
                    break
                if isinstance(step, Outcome):
                    return name, found, step
                found += step
        except ReputError as error:
            return name, found, Failure.of(error)
        return name, found, None

    def _take(self, name: str, found: list[MessageExt], end: Outcome | Failure | None) -> None:
        self.rows += [(name, message) for message in found]
        self.count += len(found)
        self.hits += bool(found)
        if isinstance(end, Failure):
            self.failures.append((name, end))
        if not isinstance(end, Outcome):
            return
        self.without += not found and end.is_complete and not end.is_late
        self.older |= end.cursor is not None
        self.problems += [f"{name}: {problem}" for problem in end.problems]
        if end.is_late:
            self.problems.append(
                f"{name}: the time limit ended the search; older messages were not searched"
            )
        if end.coverage is not None:
            self.log_bytes += end.coverage.log.size_bytes
            self.scanned_bytes += end.coverage.scanned_bytes


class _StoreResults:
    """One store's part of the results, as the template goes through it."""

    def __init__(self, name: str, store: SharedStore, wanted: SearchForm) -> None:
        self.name, self._store, self._wanted = name, store, wanted
        self.outcome: Outcome | None = None
        self.failure: Failure | None = None
        self.count = 0

    def batches(self) -> Generator[Any, None, None]:
        """Messages, some at a time; then `outcome`, or `failure`, is set."""
        try:
            for step in search(self._store, self._wanted, Share()):
                if isinstance(step, Outcome):
                    self.outcome = step
                elif step:
                    self.count += len(step)
                    yield step
        except ReputError as error:
            self.failure = Failure.of(error)

    @property
    def covered(self) -> Iterator[str]:
        """What was searched, in sentences."""
        coverage = self.outcome.coverage if self.outcome else None
        return iter(()) if coverage is None else coverage_in_words(coverage)
