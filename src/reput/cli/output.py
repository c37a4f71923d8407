"""Print tables, lines for programs, warnings and advice. Text from a store is never interpreted as markup of rich."""

from __future__ import annotations

import json
import os
import re
import select
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import click

from reput import base, cli
from reput.base import PIPED_WIDTH, counted, lines_of, nearest_first, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from reput.core import MessageStore

# Maximum width of a table that is written to a pipe. rich cannot lay out a table without a maximum.
_LONGEST_LINE = 1 << 12
_UNKNOWN_WIDTH = 80  # of a terminal that does not state its width
_MOST_NAMES = 8
_POLL_S = 0.05
_CUT = ("keys", "tags", "store", "unacknowledged", "revived", "client")
"""Columns that are cut if a table is wider than the terminal."""


CHARSET = "reput.charset"
"""The key of the option --charset in the data of a command."""


def console(stderr: bool = False) -> Console:
    """Return a console on stdout or stderr, 100 columns wide unless it is a terminal or COLUMNS is set."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    is_terminal = stream is not None and stream.isatty()  # A process may be started without stdout.
    width = None if is_terminal or "COLUMNS" in os.environ else PIPED_WIDTH
    return Console(
        file=stream, stderr=stderr, width=width, highlight=False, markup=False, emoji=False
    )


def line_width() -> int:
    """Return the number of characters in a line on stdout: 100 unless it is a terminal or COLUMNS is set."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    if sys.stdout is None or not sys.stdout.isatty():
        return PIPED_WIDTH
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _UNKNOWN_WIDTH
    except OSError:
        return _UNKNOWN_WIDTH


def stdout_has_styles() -> bool:
    """Return whether stdout is a terminal that shows bold and dim text."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return is_terminal and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def chosen_charset() -> str:
    """Return the charset of bodies that the option --charset of the running command names; UTF-8 by default."""
    context = click.get_current_context(silent=True)
    return "utf-8" if context is None else str(context.meta.get(CHARSET, "utf-8"))


def stderr_is_terminal() -> bool:
    """Return whether stderr is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def stores_bar(stores: int) -> AbstractContextManager[Callable[[object], None]]:
    """Return a bar on stderr that counts finished stores; without a terminal, a stand-in that prints nothing."""
    if not stderr_is_terminal():
        # Do not draw a bar: importing the library `rich`, which draws it, takes as long as searching dozens of stores.
        return nullcontext(lambda answer: None)
    return cli.StoresBar(stores)


def emit(renderable: RenderableType, to: Console) -> None:
    """Print a table or text, without the trailing spaces that the library Rich adds.

    Such spaces would appear in a `diff` of two outputs.

    If the output is not a terminal and COLUMNS is not set, lines are as long as they need to be: no value is cut.
    """
    if not to.is_terminal and "COLUMNS" not in os.environ:
        from rich.measure import Measurement

        needed = Measurement.get(to, to.options.update(max_width=_LONGEST_LINE), renderable)
        to.width = max(to.width, needed.maximum)
    for line in lines_of(renderable, to):
        click.echo(line, file=to.file)


def warn(*lines: object) -> None:
    """Print lines on stderr that do not belong to the answer, such as damage and advice."""
    for line in lines:
        click.echo(f"reput: {printable(str(line))}", err=True)


def print_json_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print each row as a JSON object on a line of its own. Characters without a glyph are escaped."""
    for row in rows:
        click.echo(base.visible(json.dumps(row, ensure_ascii=False)))


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table. A column whose name begins with > contains numbers, and is right-aligned."""
    from rich.cells import cell_len
    from rich.table import Table

    table = Table(box=None, padding=(0, 3, 0, 0))
    texts = list(rows)
    for place, name in enumerate(columns):
        is_number = name.startswith(">")
        justify: Literal["left", "right"] = "right" if is_number else "left"
        heading = name.removeprefix(">")
        # On a narrow terminal, cut texts such as keys. A time, topic or offset that is cut is of no use.
        whole = max(map(cell_len, (heading, *(row[place] for row in texts))))
        least = None if heading in _CUT else whole
        table.add_column(heading, justify=justify, no_wrap=True, min_width=least)
    for row in texts:
        table.add_row(*row)
    emit(table, console())


def say_waiting(store: str) -> None:
    """Print on stderr that the store has no log yet."""
    warn(f"{store}: no CommitLog yet; waiting for its first message")


def pause() -> bool:
    """Wait for a moment, and return True. Raises BrokenPipeError if the reader of the output has closed it."""
    watch = select.poll()
    # poll reports POLLERR even if no event is requested. POLLERR means that the reader has closed the pipe.
    watch.register(sys.stdout.fileno(), 0)
    if any(events & select.POLLERR for _, events in watch.poll(_POLL_S * 1000)):
        raise BrokenPipeError
    return True


def advise_on_topic(store: MessageStore, topic: str | None) -> None:
    """Print the existing topics on stderr, similar names first, if the given topic has no queue.

    Nothing is printed if consumequeue/ is empty, because it does not show which topics exist.
    """
    topics = store.topics()
    if topic is None or not topics or topic in topics:
        return
    names = nearest_first(topic, topics)[:_MOST_NAMES]
    more = len(topics) - len(names)
    text = ", ".join(names) + (f" and {more:,} more" if more else "")
    warn(f"{store.path}: no topic {topic}; it has {text}")


def advise_on_key(key: str) -> None:
    """Print a line on stderr if a key was not found and looks like several keys."""
    parts = [part for part in re.split(r"[,\s]+", key) if part]
    if len(parts) > 1:
        warn(
            f"if this is {counted(len(parts), 'key')}, query them one by one (--key {parts[0]}), or all at "
            f"once with reput lookup"
        )
