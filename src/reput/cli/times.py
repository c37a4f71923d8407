"""Options that are times."""

from __future__ import annotations

import click

from reput.clock import now_ms, parse_time

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
