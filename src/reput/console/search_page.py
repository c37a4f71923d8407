"""The page that everything begins with: search, and results while they are found."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from reput.console.arguments import Failure, SearchForm, search_of, text
from reput.console.rendering import Views
from reput.console.searching import Outcome, Share, search
from reput.console.store_facts import TopicFacts, topics_of
from reput.console.topic_pages import MOST_TOPICS
from reput.errors import ReputError, UsageError
from reput.query.answers import coverage_in_words
from reput.query.shared_store import SharedStore

_FIELDS = ("key", "topic", "begin", "end", "store")
_MOST_TOPICS = 8


class SearchPage:
    """`/`: a form; below it what was asked for, or what there is to ask."""

    def __init__(self, views: Views) -> None:
        self._views, self._mounts = views, views.mounts

    async def search(self, request: Request) -> Response:
        query = request.query_params
        q = {name: text(query, name) or "" for name in _FIELDS}
        if not q["store"] and not self._mounts.names and self._mounts.missing:
            self._mounts.named(None)  # which says what is missing
        chosen = [self._mounts.named(q["store"])] if q["store"] else self._all()
        topics = await self._mounts.run(lambda: _topics(chosen))
        common: dict[str, Any] = {
            "view": "search",
            "q": q,
            "topic_names": sorted({one.topic for _, one in topics})[:MOST_TOPICS],
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
        searches = [_StoreResults(name, store, wanted) for name, store in chosen]
        return self._views.stream(
            request, "results.html", searches=searches, wanted=wanted, **common
        )

    def _all(self) -> list[tuple[str, SharedStore]]:
        return [self._mounts.named(name) for name in self._mounts.names]


def _topics(stores: list[tuple[str, SharedStore]]) -> list[tuple[str, TopicFacts]]:
    """Topics of all stores that can be read; of the others, what is asked of them says it."""
    found = []
    for name, store in stores:
        with suppress(ReputError):
            found += [(name, topic) for topic in topics_of(store)]
    return found


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
