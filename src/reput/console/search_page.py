"""The page that everything begins with: search, and results while they are found."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from reput.console.access import is_own_form
from reput.console.arguments import optional_integer, search_of, text
from reput.console.downloads import MOST_MESSAGES
from reput.console.mounts import Mounts
from reput.console.rendering import Views
from reput.console.results import Results, Searches
from reput.console.store_facts import TopicFacts, topics_of
from reput.errors import ReputError, UsageError
from reput.query.shared_store import SharedStore

_FIELDS = ("key", "topic", "begin", "end", "store", "contains", "how")
_ASKED = ("key", "topic", "begin", "end", "contains")
_MOST_TOPICS = 8
_LISTED_PAUSES, _LEAST_LISTED_S = 10, 5.0


class SearchPage:
    """`/`: a form; below it what was asked for, or what there is to ask."""

    def __init__(self, views: Views) -> None:
        self._views, self._mounts = views, views.mounts
        self._topics = KnownTopics(self._mounts)
        self._searches = Searches()

    async def search(self, request: Request) -> Response:
        query = request.query_params
        q = {name: text(query, name) or "" for name in _FIELDS}
        if not q["store"] and not self._mounts.names and self._mounts.missing:
            self._mounts.named(None)  # which says what is missing
        chosen = [self._mounts.named(q["store"])] if q["store"] else self._all()
        common: dict[str, Any] = {"view": "search", "q": q, "wrong": ""}
        if not any(q[name] for name in _ASKED):
            topics = await self._topics.known(chosen)
            shown = sorted(topics, key=lambda one: (one[1].kind != "topic", -one[1].messages))
            return await self._views.page(
                request, "start.html", top=shown[:_MOST_TOPICS], topics=len(topics),
                messages=sum(one.messages for _, one in topics), **common,
            )  # fmt: skip
        try:
            wanted = search_of(query, is_pasted=True)
            cursors = _cursors(query, [name for name, _ in chosen])
        except UsageError as error:
            common["wrong"] = str(error)
            return await self._views.page(
                request, "start.html", 400, top=[], topics=0, messages=0, **common
            )
        missing = {} if q["store"] else self._mounts.missing
        found = self._searches.add(Results(chosen, missing, wanted, cursors))
        return self._views.stream(
            request, "results.html", found=found, wanted=wanted,
            older=lambda: _link(q, wanted.limit, found.cursors), is_continued=bool(cursors),
            most_downloaded=MOST_MESSAGES, **common,
        )  # fmt: skip

    async def stop(self, request: Request) -> Response:
        """Stop a search. Its page continues with the messages found so far."""
        if is_own_form(request):
            self._searches.stop(request.path_params["search"])
        return Response(status_code=204)

    def _all(self) -> list[tuple[str, SharedStore]]:
        return [self._mounts.named(name) for name in self._mounts.names]


def _cursors(query: QueryParams, names: Sequence[str]) -> dict[str, int]:
    """Return by store where older messages begin: `after=STORE:OFFSET`, or `after=OFFSET` for one store."""
    found = {}
    for given in query.getlist("after"):
        name, _, offset = given.strip().rpartition(":")
        number = optional_integer(QueryParams({"after": offset}), "after")
        if number is not None and (name in names or (not name and len(names) == 1)):
            found[name or names[0]] = number
    return found


def _link(q: Mapping[str, str], limit: int, cursors: Mapping[str, int]) -> str:
    """Return the address of the page with older messages."""
    pairs = [(name, value) for name, value in {**q, "limit": str(limit)}.items() if value]
    pairs += [("after", f"{name}:{offset}") for name, offset in cursors.items()]
    return "/?" + urlencode(pairs, errors="surrogatepass")


class KnownTopics:
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
