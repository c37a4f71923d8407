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
_TOPIC_WIDTH = 60
_TAGS_WIDTH = 14
_KEYS_WIDTH = 48
_PREVIEW_CHARS = 400
_STORE_WIDTH = 40
# If a row is too long for the terminal, these columns become narrower, in this order, but no narrower than this. Time,
# topic, queue and offset stay whole: they lead to the message.
_SHRINKING = (("keys", 12), ("tags", 4), ("store", 12), ("keys", 4), ("topic", 20))
_GAP = "  "
_TABLE_COLUMNS: tuple[str, ...] = ("stored (UTC)", "topic", "queue", "offset", "tags", "keys")


class MessageTable:
    """A table with two lines per message: place and fields, then the beginning of the body. It has one header."""

    def __init__(self, console: Console, charset: str = "utf-8") -> None:
        self._console, self._charset = console, charset
        self._widths: list[int] = []

    def lines(self, messages: Sequence[MessageExt], stores: Sequence[str] = ()) -> Iterator[str]:
        """Yield the next lines of the table, for further messages. The first call also yields the header.

        Args:
            messages: The messages.
            stores: The name of each message's store, for a further column. If empty, the table has no such column.
        """
        from rich.text import Text

        console, names = self._console, _TABLE_COLUMNS
        rows: list[tuple[str, ...]] = [_cells(message) for message in messages]
        if stores:
            names = (*names[:1], "store", *names[1:])
            shown = [one_line(store, _STORE_WIDTH) for store in stores]
            rows = [(row[0], store, *row[1:]) for row, store in zip(rows, shown, strict=True)]
        is_first = not self._widths
        # Keep the widths of earlier calls, so that the columns stay aligned.
        self._widths = _widths(names, rows, self._widths, console.width)
        if is_first:
            header = self._line(names)
            is_short = len(header) <= console.width
            yield from lines_of(Text(header, style="bold"), console) if is_short else [header]
        for message, row in zip(messages, rows, strict=True):
            body = Text(f"  {body_preview(message, _PREVIEW_CHARS, self._charset)}", style="dim")
            body.truncate(console.width, overflow="ellipsis")
            yield self._line(row)
            yield "".join(lines_of(body, console))

    def _line(self, cells: Sequence[str]) -> str:
        from rich.text import Text

        shown = [Text(cell) for cell in cells]
        for text, width in zip(shown, self._widths, strict=True):
            text.truncate(width, overflow="ellipsis", pad=True)
        return _GAP.join(text.plain for text in shown).rstrip()


def message_lines(messages: Sequence[MessageExt]) -> Iterator[str]:
    """Yield the lines of a table in the form for pipes: without colours, and with a fixed width."""
    from rich.console import Console

    plain = Console(
        width=PIPED_WIDTH, color_system=None, highlight=False, markup=False, emoji=False
    )
    return MessageTable(plain).lines(messages)


def _widths(
    names: Sequence[str], rows: Sequence[tuple[str, ...]], earlier: Sequence[int], most: int
) -> list[int]:
    """Return the width of each column, so that a line has at most `most` characters if the columns permit this.

    The last column is as wide as the line permits, because later rows may need more.
    """
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(names, *rows, strict=True)]
    widths[-1] = _KEYS_WIDTH
    widths = list(map(max, widths, earlier)) if earlier else widths
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - most
    for name, least in _SHRINKING:
        if name in names and excess > 0:
            place = names.index(name)
            narrower = max(min(widths[place], least), widths[place] - excess)
            excess -= widths[place] - narrower
            widths[place] = narrower
    return widths


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
