"""Messages as a table, as JSON Lines, as CSV; all at once, or some now and some later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import click

from reput.cli.output import console
from reput.format.commit_log import MessageExt
from reput.log.reader import LocatedRecord
from reput.messages.csv_text import MESSAGE_COLUMNS, csv_line, message_cells
from reput.messages.json_codec import RecordLines
from reput.messages.message_table import MessageTable

_WRITE_BYTES = 1 << 20


def table_printer() -> Callable[[Sequence[MessageExt]], None]:
    """Return what prints messages as a table on stdout, some now and some later."""
    to = console()
    table = MessageTable(to)

    def show(messages: Sequence[MessageExt]) -> None:
        for line in table.lines(messages):
            click.echo(line, file=to.file)

    return show


def print_jsonl(records: Sequence[LocatedRecord], lines: RecordLines) -> None:
    """One JSON object per line, in UTF-8 whatever the terminal's encoding."""
    _print(lines.of(records))


def print_csv(
    messages: Iterable[MessageExt], with_header: bool = True, is_safe: bool = False
) -> None:
    """A line of names, then a line a message, in UTF-8."""
    if with_header:
        click.echo(csv_line(MESSAGE_COLUMNS), nl=False)
    _print(csv_line(message_cells(message), is_safe=is_safe).encode() for message in messages)


def _print(lines: Iterable[bytes | memoryview]) -> None:
    """Many lines a write, but no more at once than memory should hold: a body may be large."""
    waiting, size_bytes = [], 0
    for line in lines:
        waiting.append(line)
        size_bytes += len(line)
        if size_bytes > _WRITE_BYTES:
            click.echo(b"".join(waiting), nl=False)
            waiting, size_bytes = [], 0
    click.echo(b"".join(waiting), nl=False)
