"""Show new messages as they arrive, with filters. The page requests new rows every two seconds.

The request's address contains the offset at which to continue in each store. With many stores the address would be too
long for proxies. Then the offsets are kept in this process, under a random name that the address contains.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from reput.core import wanted_tags
from reput.engine.messages import TailFilter
from reput.engine.writer import SharedStore
from reput.errors import UsageError
from reput.wings.console.arguments import content_of, text
from reput.wings.console.children import CHILDREN, LiveJob
from reput.wings.console.mounts import Until
from reput.wings.console.new_rows import NewRows, new_rows
from reput.wings.console.rendering import Views
from reput.wings.console.search_page import cursors_of
from reput.wings.console.users import CURRENT

if TYPE_CHECKING:
    from reput.wings.console.content import Content

_FIELDS = ("topic", "key", "tags", "contains", "how", "store")
_MOST_IN_ADDRESS, _MOST_CURSORS = 50, 100_000
_FORGOTTEN = (
    "This page was idle for so long that the server has forgotten its position; "
    "it starts again with the newest messages."
)


class _SavedCursors:
    """Keeps the cursors (offsets at which to continue) of pages that show many stores.

    The cursors of a page are kept together, under a random name. If there are too many cursors, the cursors of the page
    that was idle longest are dropped. Not thread-safe.
    """

    def __init__(self, most: int = _MOST_CURSORS) -> None:
        self._most, self._count = most, 0
        self._saved: OrderedDict[str, tuple[dict[str, int], str]] = OrderedDict()

    def get(self, name: str) -> dict[str, int] | None:
        """Return cursors, and drop the cursors of the preceding request, which the page no longer needs."""
        cursors = self._saved.get(name)
        if cursors is None:
            return None
        self._saved.move_to_end(name)
        self._drop(cursors[1])
        return cursors[0]

    def put(self, cursors: dict[str, int], before: str) -> str:
        """Keep cursors, and return their name.

        `before` is the name of the cursors of the preceding request. The browser may repeat the preceding request, so
        its cursors are dropped only when the new cursors are first used.
        """
        name = secrets.token_urlsafe(12)
        self._saved[name] = cursors, before
        self._count += len(cursors)
        # Keep the newest set of cursors even if it alone exceeds the limit. Otherwise, its page could never continue.
        while self._count > self._most and len(self._saved) > 1:
            self._drop(next(iter(self._saved)))
        return name

    def _drop(self, name: str) -> None:
        dropped = self._saved.pop(name, None)
        self._count -= len(dropped[0]) if dropped else 0


class LivePage:
    """The handlers of `/live`, and of `/live/rows`, which the page requests."""

    def __init__(self, views: Views) -> None:
        self._views, self._mounts = views, views.mounts
        self._saved = _SavedCursors()

    async def live(self, request: Request) -> Response:
        return await self._answer(request, "live.html")

    async def rows(self, request: Request) -> Response:
        """Return rows of new messages, newest first, and the cursors for the next request."""
        return await self._answer(request, "live_rows.html")

    async def _answer(self, request: Request, template: str) -> Response:
        query = request.query_params
        q = {name: text(query, name) or "" for name in _FIELDS}
        missing, stores = self._mounts.unread(q["store"]), self._mounts.select(q["store"])
        predicate = TailFilter(
            q["topic"] or None, None, q["key"] or None, frozenset(wanted_tags(q["tags"] or None))
        )
        content = content_of(query)
        cursors = cursors_of(query, [name for name, _ in stores])
        at = text(query, "at") or ""
        saved = self._saved.get(at) if at else None
        tails = await self._arrivals(
            request, stores, predicate, content, {**cursors, **(saved or {})}
        )
        forgotten = [_FORGOTTEN] if at and saved is None else []
        tails.notes[:0] = missing + forgotten
        return await self._views.page(
            request, template, view="live", q=q, tails=tails, link=self._query(tails, q, at)
        )

    async def _arrivals(
        self,
        request: Request,
        stores: Sequence[tuple[str, SharedStore]],
        predicate: TailFilter,
        content: Content | None,
        cursors: dict[str, int],
    ) -> NewRows:
        """Read new messages. With a condition on contents, a child process reads them."""
        if content is None:
            return await self._mounts.search(partial(new_rows, stores, predicate, cursors))
        places = tuple((name, store.path, store.settings) for name, store in stores)
        job = LiveJob(places, predicate, content, cursors, CURRENT.get())
        until = self._mounts.until()
        return await self._mounts.search(
            partial(_in_child, job, until), request, until, in_child=True
        )

    def _query(self, tails: NewRows, q: Mapping[str, str], before: str) -> str:
        """Return the query string with which the page requests later messages."""
        pairs = [(name, value) for name, value in q.items() if value]
        if len(tails.cursors) > _MOST_IN_ADDRESS:
            pairs.append(("at", self._saved.put(tails.cursors, before)))
        else:
            pairs += [("after", f"{name}:{offset}") for name, offset in tails.cursors.items()]
        return "?" + urlencode(pairs, errors="surrogatepass")


def _in_child(job: LiveJob, until: Until) -> NewRows:
    """Read new messages in a child process. Without an answer of it, the next request begins at the same cursors."""
    reason = "the time limit ended the search"
    with closing(CHILDREN.steps(job)) as steps:
        for step in steps:
            if step is not None and isinstance(step.value, NewRows):
                return step.value
            if step is not None:
                # The search conditions are invalid, or the child ended.
                if isinstance(step.value, UsageError):
                    raise step.value
                reason = str(step.value)
                break
            if until.is_over:
                break
    return NewRows(cursors=dict(job.cursors), notes=[reason])
