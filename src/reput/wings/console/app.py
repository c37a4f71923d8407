"""Build the ASGI app of the console."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from reput.engine.writer import MissingStore, SharedStore
from reput.errors import ReputError
from reput.wings.console.access import Access
from reput.wings.console.arguments import Failure
from reput.wings.console.audit import Audit
from reput.wings.console.json_api import JSON, Api
from reput.wings.console.metrics import Metrics
from reput.wings.console.mounts import Mounts
from reput.wings.console.openapi import document, endpoints
from reput.wings.console.pages import Pages
from reput.wings.console.users import Users
from reput.wings.lakes import BodyDecoder
from reput.wings.serve import HTTP, Traffic

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
_STATIC = Path(__file__).parent / "static"
_log = logging.getLogger("reput.console")


def create_app(
    stores: Mapping[str, SharedStore],
    *,
    missing: Callable[[], Sequence[MissingStore]] = lambda: (),
    token: str | None = None,
    hosts: Sequence[str] | None = None,
    audit: Callable[[dict[str, object]], None] | None = None,
    traffic: Traffic | None = None,
    decoders: Mapping[str, BodyDecoder] | None = None,
    users: Users | None = None,
) -> Starlette:
    """Return an app with the pages and the API for these stores. It writes nothing, and closes no store.

    Args:
        stores: Open stores by the names that users see. The mapping may change while the app runs.
        missing: Returns the configured stores that do not exist.
        token: The token that each request must have. Without a token, everybody has access.
        hosts: Host names that browsers may use for this server. By default, any name is allowed if users must sign in.
            Otherwise only the names of this machine are allowed, because another site could make its own name resolve
            to this server (DNS rebinding).
        audit: Called after each request with its record: the user, the request, and the outcome.
        traffic: Counts of the requests of RocketMQ's clients, for the metrics.
        users: Users, each with a token and roles, in place of a single token.
        decoders: Decoders of bodies by patterns of topics, as in {"orders*": open_decoder("avro:order.avsc")}.
    """
    if users is None and token is not None:
        users = Users.of_token(token)
    if hosts is None and users is None:
        hosts = LOOPBACK_HOSTS
    mounts = Mounts(stores, missing)
    metrics = Metrics(mounts, traffic)
    paths = endpoints(Api(mounts))
    pages = Pages(mounts, users, decoders)

    async def alive(request: Request) -> Response:
        return JSON({"status": "ok"})

    async def ready(request: Request) -> Response:
        answer = await mounts.run_aside(lambda: _health(mounts), HTTP.ready_s)
        late = {"status": "late", "reason": f"the stores did not answer within {HTTP.ready_s:g} s"}
        return answer or JSON(late, 503)

    async def measured(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        page = await mounts.run_aside(lambda: metrics.text(accept), HTTP.ready_s)
        if page is None:
            return JSON({"status": "late"}, 503)
        text, kind = page
        return Response(text, headers={"content-type": kind})

    async def described(request: Request) -> Response:
        return JSONResponse(document(paths))

    routes = [
        Route("/livez", alive),
        Route("/readyz", ready),
        Route("/healthz", ready),
        Route("/metrics", measured),
        Route("/api/openapi.json", described),
        *(Route(endpoint.route, endpoint.handler, methods=["GET"]) for endpoint in paths),
        *pages.routes(),
        Mount("/static", StaticFiles(directory=_STATIC)),
    ]

    async def failed(request: Request, error: Exception) -> Response:
        return await _failed(pages, request, error)

    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(Audit, write=audit),
            Middleware(Access, users=users, hosts=hosts),
            Middleware(metrics.middleware),
        ],
        exception_handlers={ReputError: failed, HTTPException: failed, Exception: failed},
    )
    app.state.mounts = mounts
    return app


def _health(mounts: Mounts) -> Response:
    """Return the health of all stores, with status 503 and the reasons if any is missing or unreadable."""
    missing = mounts.missing
    broken = {name: str(reason) for name, reason in missing.items()}
    for name in mounts.names:
        try:
            mounts.named(name)[1].begin_offset()
        except ReputError as error:
            broken[name] = str(error)
    stores = len({*mounts.names, *missing})
    status = {"status": "unreadable" if broken else "ok", "stores": stores}
    return JSON({**status, **({"unreadable": broken} if broken else {})}, 503 if broken else 200)


async def _failed(pages: Pages, request: Request, error: Exception) -> Response:
    """Return an error as JSON under /api/, and as a page elsewhere."""
    if isinstance(error, HTTPException):
        kinds = {404: "not_found", 405: "method"}
        texts = {404: "This page does not exist.", 405: "This server is read-only: use GET."}
        status = error.status_code
        failure = Failure(
            status, kinds.get(status, "http"), error.detail, texts.get(status, error.detail)
        )
    else:
        failure = Failure.of(error)
        if failure.kind == "internal":
            _log.error("%s", request.url.path, exc_info=error)
    if request.url.path.startswith("/api/"):
        return JSON(failure.as_json(), failure.status)
    return await pages.failure(request, failure)
