"""Options that take a number of bytes."""

from __future__ import annotations

import click

from reput.sizes import parse_size


def size_option(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """An option's callback: bytes, from `128MiB`, `64m` or `1000000`."""
    try:
        return None if value is None else parse_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None
