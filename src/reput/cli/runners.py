"""Options that choose what runs the tasks of a command."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import click

from reput.operations.runners import Chosen

_OPTIONS = (
    click.option(
        "--runner",
        type=click.Choice(["auto", "serial", "processes", "spark", "local"]),
        default="auto",
        show_default=True,
        help="Run in this process, in processes of this machine, or on Spark. auto: this process for small stores,"
        " else Spark if it is installed. local: the old name of processes.",
    ),
    click.option(
        "--master", metavar="URL", help="The Spark master to run on.  [default: local[*]]"
    ),
)


def runner_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --runner and --master; the command gets them as `chosen`."""

    @wraps(command)
    def with_chosen(*args: Any, runner: str, master: str | None, **options: Any) -> Any:
        if runner == "local":
            click.echo("reput: --runner local is now called --runner processes", err=True)
            runner = "processes"
        return command(
            *args, chosen=Chosen(runner, master, partial(click.echo, err=True)), **options
        )

    for option in reversed(_OPTIONS):
        with_chosen = option(with_chosen)
    return with_chosen
