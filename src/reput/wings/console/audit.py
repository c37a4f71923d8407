"""Write one audit record per request: user, time, requested key or message, and status."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reput.base import format_time, now_ms
from reput.wings.console.access import USER

_MOST_CHARACTERS = 1_000
_QUIET = ("/static/", "/healthz", "/livez", "/readyz", "/metrics")
_PARAMETERS = ("store", "key", "topic", "message", "begin", "end", "contains", "how", "format")


class Audit:
    """Calls `write` with a description of each answered request. Without `write`, the middleware does nothing.

    This is the outermost middleware, so that refused requests are recorded as well.
    """

    def __init__(self, app: ASGIApp, write: Callable[[dict[str, object]], None] | None) -> None:
        self._app, self._write = app, write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        write = self._write
        if write is None or scope["type"] != "http" or scope["path"].startswith(_QUIET):
            await self._app(scope, receive, send)
            return
        begin, status, size = time.perf_counter(), 500, 0

        async def noting(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            write(_fields(scope, status, size, time.perf_counter() - begin))


def _fields(scope: Scope, status: int, size: int, seconds: float) -> dict[str, object]:
    client = scope.get("client") or ("", 0)
    # Query strings should be ASCII, but a client may send any bytes, and latin-1 decodes all of them.
    query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=False))
    # Longer texts are cut off, so that clients cannot fill the disk with audit records.
    parameters = {name: query[name][:_MOST_CHARACTERS] for name in _PARAMETERS if query.get(name)}
    return {
        "time": format_time(now_ms()),
        **({"user": scope[USER]} if scope.get(USER) else {}),
        "client": client[0],
        "method": scope["method"],
        "path": scope["path"][:_MOST_CHARACTERS],
        **parameters,
        "status": status,
        "bytes": size,
        "seconds": round(seconds, 3),
    }
