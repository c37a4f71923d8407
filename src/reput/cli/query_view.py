"""Messages as a table, as JSON Lines, as CSV; all at once, or some now and some later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from reput.cli.body import body_preview, readable_body
from reput.cli.message_json import message_line
from reput.cli.text import one_line
from reput.cli.times import format_time
from reput.format.commit_log import MessageExt
from reput.format.message_id import encode_offset_id
from reput.format.properties import KEYS, TAGS, UNIQ_KEY

if TYPE_CHECKING:
    from rich.console import Console

_TOPIC_WIDTH = 20
_TAGS_WIDTH = 14
_KEYS_WIDTH = 48
_PREVIEW_CHARS = 400
_TABLE_COLUMNS = ("stored (UTC)", "topic", "queue", "offset", "tags", "keys")
_CSV_COLUMNS = (
    "stored", "topic", "queue_id", "queue_offset", "physical_offset", "tags", "keys", "unique_key",
    "message_id", "store_timestamp", "born_timestamp", "body",
)  # fmt: skip


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


def print_jsonl(messages: Iterable[MessageExt]) -> None:
    """One JSON object a line, in UTF-8 whatever the terminal's encoding."""
    lines = b"".join([message_line(message) + b"\n" for message in messages])
    click.echo(lines, nl=False)


def print_csv(messages: Iterable[MessageExt], with_header: bool = True) -> None:
    """A line of names, then a line a message (RFC 4180), in UTF-8; other bodies in hex."""
    import csv
    import io

    buffer = io.StringIO()
    writer = csv.writer(buffer)
    if with_header:
        writer.writerow(_CSV_COLUMNS)
    for message in messages:
        writer.writerow(_csv_row(message))
    click.echo(buffer.getvalue().encode(), nl=False)


def _csv_row(message: MessageExt) -> tuple[str | int, ...]:
    properties = message.properties
    body = readable_body(message)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        text = f"0x{body.hex()}"
    return (
        format_time(message.store_timestamp),
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        properties.get(TAGS, ""),
        properties.get(KEYS, ""),
        properties.get(UNIQ_KEY, ""),
        encode_offset_id(message.store_host, message.physical_offset),
        message.store_timestamp,
        message.born_timestamp,
        text,
    )
