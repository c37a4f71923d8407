"""Render pages from templates, and format the values in them."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from reput import __version__
from reput.base import counted, format_duration, format_time, one_line, printable
from reput.engine.writer import SharedStore
from reput.format.commit_log import MessageExt
from reput.wings.console.arguments import Failure, text
from reput.wings.console.mounts import Mounts
from reput.wings.console.results import Row
from reput.wings.console.users import may

FLUSH = "<!---->"
"""A mark in templates: the output up to it may be sent to the browser."""
_TEMPLATES = Path(__file__).parent / "templates"
_UNITS = ("byte", "KB", "MB", "GB", "TB")
_CONTENT_KINDS = (
    ("text", "Text"), ("regex", "Regular expression"), ("json", "JSON path"), ("property", "Property"),
)  # fmt: skip
_JSON_TOKEN = re.compile(
    r'(?P<name>"(?:[^"\\]|\\.)*")(?=\s*:)|(?P<text>"(?:[^"\\]|\\.)*")'
    r"|(?P<number>-?\d[\d.eE+-]*)|(?P<word>\b(?:true|false|null)\b)"
)


def environment() -> Environment:
    """Return a Jinja environment that escapes all values, and raises errors for unknown names."""
    jinja = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters.update(
        number=number, size=size, moment=moment, duration=format_duration, visible=visible,
        line=one_line, rows=rows, query=query, segment=segment, json_markup=json_markup,
        spark=spark, exact=exact, counted=counted,
    )  # fmt: skip
    jinja.globals["FLUSH"] = Markup(FLUSH)
    jinja.globals["content_kinds"] = _CONTENT_KINDS
    jinja.globals["may"] = may
    return jinja


def flushed(pieces: Generator[str, None, None]) -> Generator[bytes, None, None]:
    """Join the pieces of a template's output, and yield the joined text at each `FLUSH` mark."""
    waiting: list[str] = []
    for piece in pieces:
        waiting.append(piece)
        if FLUSH in piece:
            yield "".join(waiting).replace(FLUSH, "").encode("utf-8", "backslashreplace")
            waiting.clear()
    yield "".join(waiting).encode("utf-8", "backslashreplace")


def number(value: int) -> str:
    """Format a number, as in `12,345`."""
    return f"{value:,}"


def size(value: float) -> str:
    """Format a size in powers of 1,000, as in `812 bytes` or `3.2 MB`."""
    for unit in _UNITS:
        if abs(value) < 1_000 or unit == _UNITS[-1]:
            break
        value /= 1_000
    if unit == "byte":
        return counted(round(value), unit)
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"


def moment(timestamp_ms: int) -> Markup:
    """Return the HTML of a time in UTC, with less prominent milliseconds."""
    text = format_time(timestamp_ms)
    day, _, rest = text.removesuffix("Z").partition("T")
    seconds, _, fraction = rest.partition(".")
    if not fraction:
        return escape(text)
    return Markup(
        '<time datetime="{}"><span class="day">{}</span> {}<span class="ms">.{}</span></time>'
    ).format(text, day, seconds, fraction)


def visible(text: str) -> str:
    """Escape control characters, so that they are visible and have no effect."""
    return printable(text)


def rows(messages: Iterable[MessageExt], store: str) -> Iterator[Row]:
    """Return messages as rows of a table."""
    return (Row.of(store, message) for message in messages)


def segment(text: object) -> str:
    """Encode a text as one segment of a URL path."""
    # Topics of damaged records may have lone surrogates, for which `encode` raises an error by default.
    return quote(str(text).encode("utf-8", "surrogatepass"), safe="")


def exact(text: str) -> str:
    """Return a text as JSON in ASCII, for HTML attributes. Browsers would change some characters of the raw text."""
    return json.dumps(text)


def query(values: Mapping[str, object]) -> str:
    """Return a query string such as `?a=1&b=2`, without values that are None or empty."""
    pairs = {
        name: str(value).encode("utf-8", "surrogatepass")
        for name, value in values.items()
        if value not in (None, "")
    }
    return f"?{urlencode(pairs)}" if pairs else ""


def page_links(path: str, values: Mapping[str, object], page: int, pages: int) -> dict[str, str]:
    """Return the addresses of the previous and the next page of a list, if they exist."""
    return {
        which: path + query({**values, "page": number})
        for which, number in (("prev", page - 1), ("next", page + 1))
        if 0 < number <= pages
    }


def json_markup(text: str) -> Markup:
    """Return the HTML of a JSON text with syntax highlighting."""
    parts, position = [], 0
    for token in _JSON_TOKEN.finditer(text):
        parts.append(escape(text[position : token.start()]))
        parts.append(Markup('<span class="j-{}">{}</span>').format(token.lastgroup, token[0]))
        position = token.end()
    return Markup("").join([*parts, escape(text[position:])])


def spark(values: list[int]) -> str:
    """Return the SVG points of a small curve, 100 units wide and 24 high."""
    most = max(values, default=0) or 1
    step = 100 / max(len(values) - 1, 1)
    points = [f"{n * step:.1f},{23 - 21 * value / most:.1f}" for n, value in enumerate(values)]
    return " ".join(points)


class Views:
    """Renders templates, with the values that all of them need."""

    def __init__(self, mounts: Mounts, has_token: bool) -> None:
        self.mounts, self._has_token = mounts, has_token
        self._templates = environment()

    def store(self, request: Request) -> tuple[str, SharedStore]:
        """Return the store that a request names, or the first store by default.

        Raises StoreNotFoundError, UsageError.
        """
        names = self.mounts.names
        name = text(request.query_params, "store")
        return self.mounts.named(name or (names[0] if names else None))

    async def page(
        self, request: Request, template: str, status: int = 200, **values: Any
    ) -> Response:
        """Render a page in a thread, and return it."""
        context = self._context(request, values)

        def render() -> Response:
            html = self._templates.get_template(template).render(context)
            return HTMLResponse(html.encode("utf-8", "backslashreplace"), status)

        return await self.mounts.run(render)

    def stream(
        self, request: Request, template: str, *, in_child: bool = False, **values: Any
    ) -> Response:
        """Return a page that is sent while it is rendered, so that results appear as they are found."""
        self.mounts.check_room()
        context = self._context(request, values)
        pieces = self._templates.get_template(template).generate(context)
        html = flushed(pieces)  # type: ignore[arg-type]
        lines = self.mounts.iterate(html, in_child=in_child)
        return StreamingResponse(lines, media_type="text/html; charset=utf-8")

    async def failure(self, request: Request, failure: Failure) -> Response:
        return await self.page(request, "failure.html", failure.status, failure=failure, view="")

    def _context(self, request: Request, values: dict[str, Any]) -> dict[str, Any]:
        common = {
            "stores": self.mounts.names, "version": __version__, "has_token": self._has_token,
            "path": request.url.path, "q": {}, "store": None,
            "missing": list(map(str, self.mounts.missing.values())),
        }  # fmt: skip
        return {**common, **values}
