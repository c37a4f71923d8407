"""Render Jinja templates. All values are escaped, and control characters are made visible."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import jinja2

from reput import __version__
from reput.base import (
    counted,
    format_days,
    format_duration,
    format_size,
    format_time,
    now_ms,
    one_line,
    printable,
    table_time,
)

_NAME_WIDTH = 120


def render(template: str, **values: object) -> str:
    """Return the HTML of a template with these values."""
    written = {"version": __version__, "written_ms": now_ms()}
    return _environment().get_template(template).render(**written, **values)


def seconds(timestamp_ms: int) -> str:
    """Format a time in UTC, to the second, as pages show it."""
    return table_time(timestamp_ms, 19)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("reput.wings.inspect.pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., str]] = {
        "count": lambda count: f"{count:,}",
        "counted": counted,
        "days": format_days,
        "duration": format_duration,
        "name": lambda text: one_line(text, _NAME_WIDTH) or "(empty)",
        "printable": printable,
        "seconds": seconds,
        "size": format_size,
        "time": format_time,
    }
    environment.filters |= filters
    return environment
