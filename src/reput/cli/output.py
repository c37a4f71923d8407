"""Where output goes: a console that takes a store's text for text, never for markup."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from reput.text import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_PIPED_WIDTH = 100
_LONGEST_LINE = 1 << 12


def console(stderr: bool = False) -> Console:
    """A console on stdout or stderr; 100 columns where it is no terminal and COLUMNS is not set."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    is_terminal = stream is not None and stream.isatty()  # None where it was closed
    width = None if is_terminal or "COLUMNS" in os.environ else _PIPED_WIDTH
    return Console(
        file=stream, stderr=stderr, width=width, highlight=False, markup=False, emoji=False
    )


def emit(renderable: RenderableType, to: Console) -> None:
    """Print without the spaces that rich fills lines with; what comes after may be a `diff`.

    Where it is no terminal, and COLUMNS is not set, lines are as long as they need: no value is cut.
    """
    if not to.is_terminal and "COLUMNS" not in os.environ:
        from rich.measure import Measurement

        needed = Measurement.get(to, to.options.update(max_width=_LONGEST_LINE), renderable)
        to.width = max(to.width, needed.maximum)
    for line in lines_of(renderable, to):
        click.echo(line, file=to.file)


def say_waiting(store: str) -> None:
    """Print on stderr that there is no log to follow yet."""
    click.echo(
        f"reput: {printable(store)}: no CommitLog yet; waiting for its first message", err=True
    )


def lines_of(renderable: RenderableType, console: Console) -> list[str]:
    """What would be printed, line by line."""
    with console.capture() as captured:
        console.print(renderable)
    return [line.rstrip() for line in captured.get().splitlines()]
