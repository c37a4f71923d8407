"""What commands print: tables, lines for programs, warnings and advice. A store's text is never taken for markup."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from reput.nearest import nearest_first
from reput.text import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from reput.query.message_store import MessageStore

_PIPED_WIDTH = 100
_LONGEST_LINE = 1 << 12
_MOST_NAMES = 8


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


def warn(*lines: object) -> None:
    """Print lines on stderr that a program should not take for the answer: damage, advice."""
    for line in lines:
        click.echo(f"reput: {printable(str(line))}", err=True)


def print_json_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print an object per line."""
    for row in rows:
        click.echo(json.dumps(row, ensure_ascii=False))


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table. Columns of numbers, which are on the right, have names that begin with >."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 3, 0, 0))
    for name in columns:
        is_number = name.startswith(">")
        justify: Literal["left", "right"] = "right" if is_number else "left"
        table.add_column(name.removeprefix(">"), justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    emit(table, console())


def say_waiting(store: str) -> None:
    """Print on stderr that there is no log to follow yet."""
    warn(f"{store}: no CommitLog yet; waiting for its first message")


def lines_of(renderable: RenderableType, console: Console) -> list[str]:
    """What would be printed, line by line."""
    with console.capture() as captured:
        console.print(renderable)
    return [line.rstrip() for line in captured.get().splitlines()]


def advise_on_topic(store: MessageStore, topic: str | None) -> None:
    """One line on stderr where no queue of a topic exists: the topics that do, nearest names first.

    Nothing where consumequeue/ is empty: then it does not show which topics exist.
    """
    topics = store.topics()
    if topic is None or not topics or topic in topics:
        return
    names = nearest_first(topic, topics)[:_MOST_NAMES]
    more = len(topics) - len(names)
    listed = ", ".join(names) + (f" and {more:,} more" if more else "")
    warn(f"{store.path}: no topic {topic}; it has {listed}")


def advise_on_key(key: str) -> None:
    """Print a line on stderr if a key that was not found looks like several keys."""
    parts = [part for part in re.split(r"[,\s]+", key) if part]
    if len(parts) > 1:
        warn(
            f"if this key is {len(parts)} keys, ask for one after the other (--key {parts[0]}), "
            "or for all with reput lookup"
        )
