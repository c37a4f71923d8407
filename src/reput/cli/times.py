"""Options that are times."""

from __future__ import annotations

import click

from reput.clock import format_time, now_ms, parse_time
from reput.errors import UsageError

TIME_HELP = (
    "Times are ISO 8601 (2026-10-14, 2026-10-14T08:35:06.637+02:00; UTC where no zone is given), "
    'milliseconds since 1970, or "2h ago", "3 days ago", "now".'
)


def time_option(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """An option's callback: the time it names, in milliseconds since 1970."""
    try:
        return None if value is None else parse_time(value, now_ms=now_ms())
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def check_window(begin_ms: int | None, end_ms: int | None) -> None:
    """Raise UsageError for a window that ends before it begins: no message lies in it."""
    if begin_ms is not None and end_ms is not None and begin_ms > end_ms:
        raise UsageError(
            f"--begin {format_time(begin_ms)} is after --end {format_time(end_ms)}: swap them"
        )
