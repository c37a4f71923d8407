"""Print messages as a table, JSON Lines or CSV, all at once or as they are found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import click

from reput import base
from reput.cli.output import chosen_charset, line_width, stdout_has_styles
from reput.engine import messages as engine_messages
from reput.format.commit_log import MessageExt

if TYPE_CHECKING:
    from reput.core import LocatedRecord
    from reput.engine.stores import FoundMessage

_WRITE_BYTES = 1 << 20
# Number of records that are printed together. It is higher for JSON lines: compiled functions create these
# lines, and need less time per record if they get many records at once.
_TOGETHER = {"jsonl": 4096, "csv": 256, "text": 256}


def table_printer() -> Callable[..., None]:
    """Return a function that prints messages as rows of one table. It can be called several times."""
    is_styled = stdout_has_styles()
    table = engine_messages.MessageTable(line_width(), chosen_charset(), is_styled=is_styled)

    def show(messages: Sequence[MessageExt], stores: Sequence[str] = ()) -> None:
        for line in table.lines(messages, stores):
            # Without `file`, click would write UTF-8 to a terminal of another encoding.
            click.echo(line, file=sys.stdout)

    return show


def print_jsonl(records: Sequence[LocatedRecord], lines: engine_messages.RecordLines) -> None:
    """Print one JSON object per line, in UTF-8, even if the terminal has another encoding."""
    _print(lines.of(records))


def print_csv(
    messages: Iterable[MessageExt], with_header: bool = True, is_safe: bool = False
) -> None:
    """Print a header line, then a line per message, as CSV in UTF-8."""
    if with_header:
        click.echo(engine_messages.csv_line(engine_messages.CSV_NAMES), nl=False)
    cells = map(engine_messages.message_cells, messages)
    _print(engine_messages.csv_line(row, is_safe=is_safe).encode() for row in cells)


class FoundPrinter:
    """Prints messages of several stores, with a column or field for the store. `print` can be called several times."""

    def __init__(self, layout: str, *, is_safe: bool = False) -> None:
        self._layout, self._is_safe, self._has_header = layout, is_safe, False
        self._show = table_printer()

    def print(self, messages: Sequence[FoundMessage]) -> None:
        if self._layout == "csv" and not self._has_header:
            click.echo(engine_messages.csv_line(("store", *engine_messages.CSV_NAMES)), nl=False)
            self._has_header = True
        if self._layout == "csv":
            rows = (
                (message.store, *engine_messages.message_cells(message.message))
                for message in messages
            )
            _print(engine_messages.csv_line(row, is_safe=self._is_safe).encode() for row in rows)
        elif self._layout == "jsonl":
            _print(line_of(message) + b"\n" for message in messages)
        elif messages:
            self._show(
                [message.message for message in messages], [message.store for message in messages]
            )


def record_printer(layout: str, is_safe: bool) -> Callable[[Iterable[LocatedRecord]], int]:
    """Return a function that prints records and returns their count. It can be called repeatedly."""
    show, together = _batch_printer(layout, is_safe), _TOGETHER[layout]

    def show_records(records: Iterable[LocatedRecord]) -> int:
        source, count = iter(records), 0
        while batch := list(islice(source, together)):
            show(batch)
            count += len(batch)
        return count

    return show_records


def _batch_printer(layout: str, is_safe: bool) -> Callable[[Sequence[LocatedRecord]], None]:
    if layout == "jsonl":
        return partial(print_jsonl, lines=engine_messages.RecordLines())
    if layout == "text":
        show_table = table_printer()
        return lambda records: show_table([record.message() for record in records])
    with_header = iter([True])

    def show(records: Sequence[LocatedRecord]) -> None:
        messages = (record.message() for record in records)
        print_csv(messages, next(with_header, False), is_safe)

    return show


def print_json_messages(messages: Iterable[MessageExt]) -> None:
    """Print messages as `print_jsonl` prints records."""
    _print(engine_messages.message_line(message) + b"\n" for message in messages)


def line_of(message: FoundMessage) -> bytes:
    """Return a message as one JSON object: the store, then the fields of the message."""
    return base.json_text(
        {"store": message.store, **engine_messages.message_fields(message.message)}
    ).encode()


def _print(lines: Iterable[bytes | memoryview]) -> None:
    """Print lines in writes of about 1 MiB. This takes few system calls, and bounds the memory for large bodies."""
    waiting, size_bytes = [], 0
    for line in lines:
        waiting.append(line)
        size_bytes += len(line)
        if size_bytes > _WRITE_BYTES:
            click.echo(b"".join(waiting), nl=False)
            waiting, size_bytes = [], 0
    click.echo(b"".join(waiting), nl=False)
