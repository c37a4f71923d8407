"""Show stores: their contents, index coverage and findings."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from reput.base import Finding, Severity
from reput.engine.writer import SharedStore
from reput.errors import ReputError
from reput.wings.console.arguments import Failure, choice
from reput.wings.console.mounts import Mounts
from reput.wings.console.rendering import Views
from reput.wings.console.store_facts import StoreSummary, facts_of


class StorePages:
    """The handlers of `/stores` and `/stores/NAME`."""

    def __init__(self, views: Views) -> None:
        self._views, self._mounts = views, views.mounts

    async def stores(self, request: Request) -> Response:
        summaries = [
            (name, await self._mounts.run(partial(self._facts, name)))
            for name in sorted({*self._mounts.names, *self._mounts.missing})
        ]
        return await self._views.page(request, "stores.html", view="stores", shown=summaries)

    def _facts(self, name: str) -> StoreSummary | Failure:
        try:
            return facts_of(*self._mounts.named(name))
        except ReputError as error:
            return Failure.of(error)

    async def store(self, request: Request) -> Response:
        name, store = self._mounts.named(request.path_params["name"])
        facts = await self._mounts.run(lambda: facts_of(name, store))
        checkpoint = await self._mounts.run(store.checkpoint)
        return await self._views.page(
            request, "store.html", view="stores", store=name, facts=facts, checkpoint=checkpoint
        )

    async def findings(self, request: Request) -> Response:
        """Return the findings of the quick check. The page requests them separately, because the check takes time."""
        return await self._check_page(request, "findings.html", "quick")

    async def check(self, request: Request) -> Response:
        """Return a page that shows findings as they are found."""
        mode = choice(request.query_params, "mode", ("quick", "full"))
        return await self._check_page(request, "check.html", mode)

    async def _check_page(self, request: Request, template: str, mode: str) -> Response:
        name, store = self._mounts.named(request.path_params["name"])
        run = _CheckRun(self._mounts, store, mode == "full")
        return self._views.stream(request, template, view="stores", store=name, run=run, mode=mode)


class _CheckRun:
    """One check. A template iterates over its findings."""

    def __init__(self, mounts: Mounts, store: SharedStore, is_full: bool) -> None:
        self._store, self._is_full = store, is_full
        self._mounts, self._until = mounts, mounts.until()
        self.wrong = 0
        self.is_damaged = False
        self.failure: Failure | None = None

    def findings(self) -> Generator[Finding, None, None]:
        """Yield findings as they are found. After the last one, `wrong`, `is_damaged` and `failure` are set."""
        try:
            for finding in self._mounts.findings(self._store, self._is_full, self._until):
                self.wrong += finding.count if finding.is_wrong else 0
                self.is_damaged |= finding.severity is Severity.DAMAGE
                yield finding
        except ReputError as error:
            self.failure = Failure.of(error)
