"""What all pages share: the stores, the templates, and how a page is answered."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from reput import __version__
from reput.console.arguments import text
from reput.console.failures import Failure
from reput.console.mounts import Mounts
from reput.console.rendering import environment, flushed
from reput.query.shared_store import SharedStore


class Views:
    """Renders templates with what each of them needs."""

    def __init__(self, mounts: Mounts, has_token: bool) -> None:
        self.mounts, self._has_token = mounts, has_token
        self._templates = environment()

    def store(self, request: Request) -> tuple[str, SharedStore]:
        """The store that a request names, else the first. Raises StoreNotFoundError, UsageError."""
        names = self.mounts.names
        return self.mounts.named(
            text(request.query_params, "store") or (names[0] if names else None)
        )

    async def page(
        self, request: Request, template: str, status: int = 200, **values: Any
    ) -> Response:
        """A page, made in a thread."""
        context = self._context(request, values)

        def render() -> Response:
            html = self._templates.get_template(template).render(context)
            return HTMLResponse(html.encode("utf-8", "backslashreplace"), status)

        return await self.mounts.run(render)

    def stream(self, request: Request, template: str, **values: Any) -> Response:
        """A page that is sent while it is rendered, for what it shows is found meanwhile."""
        context = self._context(request, values)
        pieces = self._templates.get_template(template).generate(context)
        html = flushed(pieces)  # type: ignore[arg-type]
        return StreamingResponse(self.mounts.iterate(html), media_type="text/html; charset=utf-8")

    async def failure(self, request: Request, failure: Failure) -> Response:
        return await self.page(request, "failure.html", failure.status, failure=failure, view="")

    def _context(self, request: Request, values: dict[str, Any]) -> dict[str, Any]:
        common = {
            "stores": self.mounts.names, "version": __version__, "has_token": self._has_token,
            "path": request.url.path, "q": {}, "store": None,
        }  # fmt: skip
        return {**common, **values}
