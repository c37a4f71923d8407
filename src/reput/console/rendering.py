"""Templates, and how values look in them."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from reput.clock import format_duration, format_time
from reput.messages.body_text import body_preview
from reput.text import one_line, printable

FLUSH = "<!---->"
"""What a template says where all before it may be sent."""

_TEMPLATES = Path(__file__).parent / "templates"
_UNITS = ("bytes", "KB", "MB", "GB", "TB")
_JSON_TOKEN = re.compile(
    r'(?P<name>"(?:[^"\\]|\\.)*")(?=\s*:)|(?P<text>"(?:[^"\\]|\\.)*")'
    r"|(?P<number>-?\d[\d.eE+-]*)|(?P<word>\b(?:true|false|null)\b)"
)


def environment() -> Environment:
    """Templates with everything escaped; a name that is not there is an error."""
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        number=number, size=size, moment=moment, duration=format_duration, visible=visible,
        line=one_line, preview=preview, query=query, segment=segment, json_markup=json_markup,
        spark=spark,
    )  # fmt: skip
    made.globals["FLUSH"] = Markup(FLUSH)
    return made


def flushed(pieces: Generator[str, None, None]) -> Generator[bytes, None, None]:
    """The pieces that a template yields, joined up to each flush."""
    waiting: list[str] = []
    for piece in pieces:
        waiting.append(piece)
        if FLUSH in piece:
            yield "".join(waiting).replace(FLUSH, "").encode("utf-8", "backslashreplace")
            waiting.clear()
    yield "".join(waiting).encode("utf-8", "backslashreplace")


def number(value: int) -> str:
    """`12,345`."""
    return f"{value:,}"


def size(value: float) -> str:
    """`812 bytes`, `3.2 MB`; powers of 1,000."""
    for unit in _UNITS:
        if abs(value) < 1_000 or unit == _UNITS[-1]:
            break
        value /= 1_000
    return f"{value:,.0f} {unit}" if unit == "bytes" or value >= 100 else f"{value:.1f} {unit}"


def moment(timestamp_ms: int) -> Markup:
    """A time in UTC, its milliseconds less prominent."""
    text = format_time(timestamp_ms)
    day, _, rest = text.removesuffix("Z").partition("T")
    seconds, _, fraction = rest.partition(".")
    if not fraction:
        return escape(text)
    return Markup(
        '<time datetime="{}"><span class="day">{}</span> {}<span class="ms">.{}</span></time>'
    ).format(text, day, seconds, fraction)


def visible(text: str) -> str:
    """Text whose control characters show and steer nothing."""
    return printable(text)


def preview(message: Any) -> str:
    """The beginning of the body in one line."""
    return body_preview(message, 240)


def segment(text: object) -> str:
    """One part of a path."""
    return quote(str(text).encode("utf-8", "surrogatepass"), safe="")


def query(values: dict[str, object]) -> str:
    """`?a=1&b=2` of those that are not None."""
    given = {
        name: str(value).encode("utf-8", "surrogatepass")
        for name, value in values.items()
        if value not in (None, "")
    }
    return f"?{urlencode(given)}" if given else ""


def json_markup(text: str) -> Markup:
    """A JSON text with its names, texts, numbers and words told apart."""
    parts, position = [], 0
    for token in _JSON_TOKEN.finditer(text):
        parts.append(escape(text[position : token.start()]))
        parts.append(Markup('<span class="j-{}">{}</span>').format(token.lastgroup, token[0]))
        position = token.end()
    return Markup("").join([*parts, escape(text[position:])])


def spark(values: list[int]) -> str:
    """The points of a small curve, 100 wide and 24 high."""
    most = max(values, default=0) or 1
    step = 100 / max(len(values) - 1, 1)
    points = [f"{n * step:.1f},{23 - 21 * value / most:.1f}" for n, value in enumerate(values)]
    return " ".join(points)
