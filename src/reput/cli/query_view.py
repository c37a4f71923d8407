"""Messages as a table, as JSON Lines, as CSV; all at once, or some now and some later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from reput.clock import format_time
from reput.format.commit_log import MessageExt
from reput.format.properties import KEYS, TAGS, UNIQ_KEY
from reput.log.reader import LocatedRecord
from reput.messages.body_text import body_preview
from reput.messages.csv_text import MESSAGE_COLUMNS, csv_line, message_cells
from reput.messages.json_codec import RecordLines
from reput.text import one_line

if TYPE_CHECKING:
    from rich.console import Console

_TOPIC_WIDTH = 20
_TAGS_WIDTH = 14
_KEYS_WIDTH = 48
_PREVIEW_CHARS = 400
_WRITE_BYTES = 1 << 20
_TABLE_COLUMNS = ("stored (UTC)", "topic", "queue", "offset", "tags", "keys")


class MessageTable:
    """Two lines a message: where and what it is, then the beginning of its body. The header is printed once."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._widths: list[int] = []

    def print(self, messages: Sequence[MessageExt]) -> None:
        from rich.table import Table
        from rich.text import Text

        from reput.cli.output import lines_of

        console, rows = self._console, [_cells(message) for message in messages]
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for place, name in enumerate(_TABLE_COLUMNS):
            # What comes later stands below what came before.
            least = self._widths[place] if self._widths else None
            table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=least)
        for row in rows:
            table.add_row(*map(Text, row))
        header, *lines = lines_of(table, console)
        if not self._widths:
            click.echo(header, file=console.file)
            self._widths = _widths(rows, console.width)
        for message, line in zip(messages, lines, strict=True):
            body = Text(f"  {body_preview(message, _PREVIEW_CHARS)}", style="dim")
            body.truncate(console.width, overflow="ellipsis")
            click.echo(line, file=console.file)
            click.echo("".join(lines_of(body, console)), file=console.file)


def print_table(messages: Sequence[MessageExt], console: Console) -> None:
    """A table of all that there is."""
    MessageTable(console).print(messages)


def _widths(rows: Sequence[tuple[str, ...]], most: int) -> list[int]:
    """Of the columns but the last, as far as there is room."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(_TABLE_COLUMNS, *rows, strict=True)]
    widths[-1] = 0
    return widths if sum(widths) + 2 * len(widths) < most else [0] * len(widths)


def _cells(message: MessageExt) -> tuple[str, ...]:
    properties = message.properties
    return (
        format_time(message.store_timestamp).replace("T", " ").removesuffix("Z"),
        one_line(message.topic, _TOPIC_WIDTH),
        f"{message.queue_id}/{message.queue_offset}",
        str(message.physical_offset),
        one_line(properties.get(TAGS, "-"), _TAGS_WIDTH),
        one_line(properties.get(KEYS) or properties.get(UNIQ_KEY, "-"), _KEYS_WIDTH),
    )


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
