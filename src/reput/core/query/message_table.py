"""Format messages as a table with two lines per message, for `query` and `tail`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from reput.base import format_time, lines_of, one_line
from reput.core.query.body_text import body_preview
from reput.format.commit_log import MessageExt
from reput.format.properties import KEYS, TAGS, UNIQ_KEY

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 100
_TOPIC_WIDTH = 20
_TAGS_WIDTH = 14
_KEYS_WIDTH = 48
_PREVIEW_CHARS = 400
_STORE_WIDTH = 40
_SHRINKING = (
    "topic",
    "tags",
    "keys",
)  # These columns become narrower to make room for the column `store`.
_TABLE_COLUMNS: tuple[str, ...] = ("stored (UTC)", "topic", "queue", "offset", "tags", "keys")


class MessageTable:
    """A table with two lines per message: place and fields, then the beginning of the body. It has one header."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._widths: list[int] = []

    def lines(self, messages: Sequence[MessageExt], stores: Sequence[str] = ()) -> Iterator[str]:
        """Yield the next lines of the table, for further messages. The first call also yields the header.

        Args:
            messages: The messages.
            stores: The name of each message's store, for a further column. If empty, the table has no such column.
        """
        from rich.table import Table
        from rich.text import Text

        console, names = self._console, _TABLE_COLUMNS
        rows: list[tuple[str, ...]] = [_cells(message) for message in messages]
        if stores:
            names = (*names[:1], "store", *names[1:])
            shown = [one_line(store, _STORE_WIDTH) for store in stores]
            rows = [(row[0], store, *row[1:]) for row, store in zip(rows, shown, strict=True)]
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for place, name in enumerate(names):
            # Keep the widths of earlier calls, so that the columns stay aligned.
            least = self._widths[place] if self._widths else None
            if stores and name not in _SHRINKING:
                widest = max((len(row[place]) for row in rows), default=0)
                least = max(least or 0, widest, len(name))
            table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=least)
        for row in rows:
            table.add_row(*map(Text, row))
        header, *lines = lines_of(table, console)
        if not self._widths:
            yield header
            self._widths = _widths(names, rows, console.width)
        for message, line in zip(messages, lines, strict=True):
            body = Text(f"  {body_preview(message, _PREVIEW_CHARS)}", style="dim")
            body.truncate(console.width, overflow="ellipsis")
            yield line
            yield "".join(lines_of(body, console))


def message_lines(messages: Sequence[MessageExt]) -> Iterator[str]:
    """Yield the lines of a table in the form for pipes: without colours, and with a fixed width."""
    from rich.console import Console

    plain = Console(
        width=PIPED_WIDTH, color_system=None, highlight=False, markup=False, emoji=False
    )
    return MessageTable(plain).lines(messages)


def _widths(names: Sequence[str], rows: Sequence[tuple[str, ...]], most: int) -> list[int]:
    """Return the width of each column except the last, which gets 0.

    Return 0 for every column if the columns together are wider than the terminal (`most` characters).
    """
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(names, *rows, strict=True)]
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
