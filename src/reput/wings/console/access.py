"""Control access to the console: identify users, check host names, and refuse requests forged by other sites."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reput.wings.console.users import ANYBODY, CURRENT, NOBODY, ConsoleUser, Permission, Users

COOKIE = "reput"
USER = "reput.user"
"""The key of the user's name in the ASGI scope of a request."""
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:@/]+))(?::[0-9]{0,5})?")
_HEALTH_PATHS = ("/healthz", "/livez", "/readyz")
_OPEN_PATHS = (*_HEALTH_PATHS, "/login")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Access:
    """A middleware that refuses requests that are not allowed.

    Only the middleware `Audit` gets a request earlier, to record refused requests as well.

    If the server has no token, only requests for the given host names are answered. Without this check, a page of
    another site could make its own name resolve to this machine (DNS rebinding), and read all stores. Requests caused
    by pages of other sites are refused, except when a user follows a link.
    """

    def __init__(self, app: ASGIApp, users: Users | None, hosts: Sequence[str] | None) -> None:
        self._app, self._hosts = app, None if hosts is None else frozenset(hosts)
        self._users = users

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        user = ANYBODY if self._users is None else self._users.of(connection, COOKIE)
        CURRENT.set(NOBODY if user is None else user)
        scope[USER] = "" if user is None else user.name
        proxy = None if self._users is None else self._users.proxy
        # The proxy ends TLS, so only this header shows whether the browser used HTTPS. Ignore it if a
        # client without the proxy sends it, because it could be forged.
        if proxy is not None and proxy.is_peer(connection):
            secure = connection.headers.get("x-forwarded-proto", "") == "https"
            scope["scheme"] = "https" if secure else scope["scheme"]
        refusal = self._refusal(connection, user)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                # Answers contain messages, which must not stay on the disk of a browser or proxy.
                if not scope["path"].startswith("/static/"):
                    headers.setdefault("cache-control", "no-store")
            await send(message)

        await (self._app if refusal is None else refusal)(scope, receive, guarded)

    def _refusal(self, connection: HTTPConnection, user: ConsoleUser | None) -> Response | None:
        headers, path = connection.headers, connection.url.path
        is_known_host = self._hosts is None or _host_of(headers) in self._hosts
        # Allow health checks at any host name, because Kubernetes probes use the address of the pod.
        if not is_known_host and path not in _HEALTH_PATHS:
            return _refused(
                421,
                "host",
                "this host name is not allowed; it can be allowed when the server starts",
            )
        if _is_foreign(connection.scope, headers):
            return _refused(403, "cross_site", "a page of another site sent this request")
        # The login page and its style sheet are needed before the user signs in.
        if path in _OPEN_PATHS or path.startswith("/static/"):
            return None
        if user is not None:
            if Permission.SEARCH in user.permissions or path == "/logout":
                return None
            return _refused(403, "forbidden", "this request needs the role search")
        # Programs get a status and a hint. Browsers are sent to the login page.
        if path.startswith("/api/") or "text/html" not in headers.get("accept", ""):
            answer = _refused(401, "token", "pass the token: Authorization: Bearer TOKEN")
            answer.headers["www-authenticate"] = "Bearer"
            return answer
        if self._users is not None and not self._users.has_tokens:
            return _refused(401, "token", "sign in through the proxy")
        target = path + (f"?{connection.url.query}" if connection.url.query else "")
        return RedirectResponse(f"/login?next={quote(target, safe='')}", status_code=303)


def own_path(target: str) -> str:
    """Return the address to open after the login. It must be a path of this server; any other address becomes /."""
    parts = urlsplit(target)
    # Browsers take // and /\ as the beginning of another host's name.
    is_local = target.startswith("/") and target[1:2] not in ("/", "\\") and not parts.netloc
    return target if is_local and target.isprintable() else "/"


def is_own_form(request: Request) -> bool:
    """Return whether a form was sent from a page of this server."""
    # Browsers that do not send Sec-Fetch-Site send Origin. Programs usually send neither.
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        return site in ("same-origin", "none")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


def _is_foreign(scope: Scope, headers: Headers) -> bool:
    """Return whether a page of another site sent the request. Return False if the user followed a link on that page."""
    # Only browsers send Sec-Fetch-Site. A request without it comes from a program, and not from a page.
    site = headers.get("sec-fetch-site", "none")
    if site in ("same-origin", "none"):
        return False
    is_link = headers.get("sec-fetch-mode") == "navigate" and scope["method"] == "GET"
    return not is_link or headers.get("sec-fetch-dest") != "document"


def _host_of(headers: Headers) -> str:
    """Return the host name in the Host header, without the port; empty if the header is malformed."""
    match = _HOST.fullmatch(headers.get("host", "").lower())
    return "" if match is None else match[1] or match[2]


def _refused(status: int, kind: str, text: str) -> JSONResponse:
    return JSONResponse({"error": {"kind": kind, "message": text}}, status)
