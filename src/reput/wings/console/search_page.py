"""Show the start page: the search form, and results as they are found."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from heapq import nsmallest
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from reput.engine.writer import SharedStore
from reput.errors import ReputError, UsageError
from reput.wings.console.access import is_own_form
from reput.wings.console.arguments import optional_integer, search_of, text
from reput.wings.console.downloads import MOST_MESSAGES
from reput.wings.console.mounts import Mounts
from reput.wings.console.rendering import Views
from reput.wings.console.results import Results, Searches
from reput.wings.console.store_facts import TopicFacts, each_topic

_FIELDS = ("key", "topic", "begin", "end", "store", "contains", "how")
_CONDITIONS = ("key", "topic", "begin", "end", "contains")
_MOST_TOPICS = 8
# Messages are counted only if all stores together have at most this many topics, because counting opens the queues of
# each topic.
_COUNT_LIMIT = 4_000
_LISTED_PAUSES, _LEAST_LISTED_S = 10, 5.0


class SearchPage:
    """The handler of `/`: the search form, and below it the results, or the largest topics."""

    def __init__(self, views: Views) -> None:
        self._views, self._mounts = views, views.mounts
        self._topics = _TopicCounts(self._mounts)
        self._searches = Searches()

    async def search(self, request: Request) -> Response:
        query = request.query_params
        q = {name: text(query, name) or "" for name in _FIELDS}
        if not q["store"] and not self._mounts.names and self._mounts.missing:
            self._mounts.named(None)  # This call raises the error that names the missing stores.
        stores = [self._mounts.named(q["store"])] if q["store"] else self._open_stores()
        common: dict[str, Any] = {"view": "search", "q": q, "wrong": ""}
        if not any(q[name] for name in _CONDITIONS):
            return await self._views.page(request, "start.html", **common)
        try:
            form = search_of(query, is_pasted=True)
            cursors = cursors_of(query, [name for name, _ in stores])
        except UsageError as error:
            common["wrong"] = str(error)
            return await self._views.page(request, "start.html", 400, **common)
        missing = {} if q["store"] else self._mounts.missing
        results = self._searches.add(Results(stores, missing, form, cursors, self._mounts.until()))
        return self._views.stream(
            request, "results.html", in_child=form.is_in_child, found=results, wanted=form,
            older=lambda: _link(q, form.limit, results.cursors), is_continued=bool(cursors),
            most_downloaded=MOST_MESSAGES, **common,
        )  # fmt: skip

    async def start(self, request: Request) -> Response:
        """Return the largest topics. The start page requests them separately, because counting takes time."""
        store = text(request.query_params, "store")
        counts = await self._topics.counts(
            [self._mounts.named(store)] if store else self._open_stores()
        )
        top = sorted(
            ((name, topic) for name, pair in counts for topic in pair.largest),
            key=lambda pair: _rank(pair[1]),
        )
        return await self._views.page(
            request, "start_topics.html", view="", top=top[:_MOST_TOPICS], of_stores=len(counts),
            topics=sum(pair.topics for _, pair in counts),
            messages=sum(pair.messages for _, pair in counts),
        )  # fmt: skip

    async def stop(self, request: Request) -> Response:
        """Stop a search. Its page then shows the messages found so far."""
        if is_own_form(request):
            self._searches.stop(request.path_params["search"])
        return Response(status_code=204)

    def _open_stores(self) -> list[tuple[str, SharedStore]]:
        return [self._mounts.named(name) for name in self._mounts.names]


def cursors_of(query: QueryParams, names: Sequence[str]) -> dict[str, int]:
    """Return the cursor of each store from the parameters `after`. The search for older messages continues there.

    The form of a parameter is `after=STORE:OFFSET`, or `after=OFFSET` for a single store.
    """
    cursors = {}
    for value in query.getlist("after"):
        name, _, offset = value.strip().rpartition(":")
        number = optional_integer(QueryParams({"after": offset}), "after")
        if number is not None and (name in names or (not name and len(names) == 1)):
            cursors[name or names[0]] = number
    return cursors


def _link(q: Mapping[str, str], limit: int, cursors: Mapping[str, int]) -> str:
    """Return the address of the page with older messages."""
    pairs = [(name, value) for name, value in {**q, "limit": str(limit)}.items() if value]
    pairs += [("after", f"{name}:{offset}") for name, offset in cursors.items()]
    return "/?" + urlencode(pairs, errors="surrogatepass")


class KnownTopics(NamedTuple):
    """The topics of a store on the start page.

    Attributes:
        until: Time at which to count again, by `time.monotonic`.
        largest: The largest topics. Topics of applications come first. Empty if there are too many topics.
        topics: Number of topics.
        messages: Number of messages in all topics; 0 if there are too many topics.
    """

    until: float
    store: SharedStore
    largest: tuple[TopicFacts, ...]
    topics: int
    messages: int


class _TopicCounts:
    """Counts the topics of stores.

    A cluster may have very many topics, so counting takes long. A count is reused for a multiple of the time that it
    took.
    """

    def __init__(self, mounts: Mounts) -> None:
        self._mounts = mounts
        self._counts: dict[str, KnownTopics] = {}

    async def counts(
        self, stores: Sequence[tuple[str, SharedStore]]
    ) -> list[tuple[str, KnownTopics]]:
        """Return the counts of all readable stores. Unreadable stores are named on each page."""
        for name in self._counts.keys() - {*self._mounts.names}:
            del self._counts[name]
        now = time.monotonic()
        stale = [
            (name, store)
            for name, store in stores
            if (counts := self._counts.get(name)) is None
            or counts.until < now
            or counts.store is not store
        ]
        if stale:
            await self._mounts.run(lambda: self._count(stale))
        return [(name, self._counts[name]) for name, _ in stores if name in self._counts]

    def _count(self, stores: Sequence[tuple[str, SharedStore]]) -> None:
        for name, store in stores:
            begin = time.monotonic()
            with suppress(ReputError):
                names = store.topics()
                facts = each_topic(store) if len(names) <= _COUNT_LIMIT // len(stores) else ()
                messages, largest = 0, list[TopicFacts]()
                for topic in facts:
                    messages += topic.messages
                    # Keep only the largest topics, because a TopicFacts for every topic would take much memory.
                    largest = nsmallest(_MOST_TOPICS, [*largest, topic], key=_rank)
                end = time.monotonic()
                # The messages of a store are counted again only after a pause. The pause grows with the number of
                # stores, so that all counts together take little time.
                until = end + max(_LISTED_PAUSES * len(stores) * (end - begin), _LEAST_LISTED_S)
                self._counts[name] = KnownTopics(until, store, tuple(largest), len(names), messages)


def _rank(topic: TopicFacts) -> tuple[bool, int]:
    return topic.kind != "topic", -topic.messages
