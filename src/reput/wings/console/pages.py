"""Define the paths of all pages, and the login."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from reput.wings.console.access import COOKIE, is_own_form, own_path
from reput.wings.console.arguments import Failure
from reput.wings.console.downloads import Downloads
from reput.wings.console.group_pages import GroupPages
from reput.wings.console.live_page import LivePage
from reput.wings.console.message_pages import MessagePages
from reput.wings.console.mounts import Mounts
from reput.wings.console.rendering import Views
from reput.wings.console.search_page import SearchPage
from reput.wings.console.store_pages import StorePages
from reput.wings.console.topic_pages import TopicPages
from reput.wings.console.users import Users, cookie_of
from reput.wings.lakes import BodyDecoder

_MOST_FORM_BYTES = 8_192


class Pages:
    """All pages of the console."""

    def __init__(
        self,
        mounts: Mounts,
        users: Users | None,
        decoders: Mapping[str, BodyDecoder] | None = None,
    ) -> None:
        self._views = Views(mounts, users is not None and users.has_tokens)
        self._users, self._decoders = users, decoders or {}

    def routes(self) -> list[BaseRoute]:
        views = self._views
        search, messages = SearchPage(views), MessagePages(views, self._decoders)
        groups, live = GroupPages(views), LivePage(views)
        topics, stores = TopicPages(views), StorePages(views)
        routes: list[BaseRoute] = [
            Route("/", search.search),
            Route("/start", search.start),
            Route("/download", Downloads(views.mounts).download),
            Route("/searches/{search}/stop", search.stop, methods=["POST"]),
            Route("/messages/{offset:int64}", messages.message),
            Route("/messages/{offset:int64}/body", messages.body),
            Route("/messages/{offset:int64}/record", messages.record),
            Route("/trace", messages.trace),
            Route("/live", live.live),
            Route("/live/rows", live.rows),
            Route("/groups", groups.groups),
            Route("/groups/{group}", groups.group),
            Route("/topics", topics.topics),
            Route("/suggest/topics", topics.suggest),
            Route("/topics/{topic}", topics.topic),
            Route("/topics/{topic}/spark", topics.spark),
            Route("/queues/{topic}/{queue:int64}", topics.queue),
            Route("/stores", stores.stores),
            Route("/stores/{name}", stores.store),
            Route("/stores/{name}/findings", stores.findings),
            Route("/stores/{name}/check", stores.check),
        ]
        if self._users is not None and self._users.has_tokens:
            routes += [
                Route("/login", self._login, methods=["GET", "POST"]),
                Route("/logout", self._logout, methods=["POST"]),
            ]
        return routes

    async def failure(self, request: Request, failure: Failure) -> Response:
        """Return a page that describes an error."""
        return await self._views.failure(request, failure)

    async def _login(self, request: Request) -> Response:
        target = own_path(request.query_params.get("next", "/"))
        if request.method == "GET":
            return await self._views.page(request, "login.html", next=target, is_wrong=False)
        assert self._users is not None
        # Anybody may send this form, so read its body only if Content-Length states a small size.
        size = request.headers.get("content-length", "")
        is_small = size.isdigit() and int(size) <= _MOST_FORM_BYTES
        form = parse_qs((await request.body()).decode("utf-8", "replace")) if is_small else {}
        token = form.get("token", [""])[0]
        # Accept only forms of this server. Otherwise, a page of another site could sign the browser in with the token
        # of another user, or guess tokens.
        if not is_own_form(request) or self._users.with_token(token.strip()) is None:
            return await self._views.page(request, "login.html", 403, next=target, is_wrong=True)
        answer = RedirectResponse(target, status_code=303)
        answer.set_cookie(
            COOKIE, cookie_of(token.strip()),
            httponly=True, samesite="strict", secure=request.url.scheme == "https",
        )  # fmt: skip
        return answer

    async def _logout(self, request: Request) -> Response:
        answer = RedirectResponse("/login", status_code=303)
        if is_own_form(request):
            answer.delete_cookie(COOKIE)
        return answer
