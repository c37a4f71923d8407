"""`reput tail`."""

from __future__ import annotations

import select
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.cli.options import (
    index_option,
    messages_format_option,
    open_from,
    store_argument,
    with_config_options,
)
from reput.cli.output import console
from reput.cli.query_view import MessageTable, print_csv, print_jsonl
from reput.cli.text import printable
from reput.errors import UsageError

if TYPE_CHECKING:
    from reput.format.commit_log import MessageExt
    from reput.query.tail import LogTail

_ALL = "all"
_TOGETHER = 256
_POLL_S = 0.05
_Printer = Callable[[Sequence["MessageExt"]], None]


def _lines(ctx: click.Context, param: click.Parameter, value: str) -> int | None:
    """How many; None for all."""
    if value == _ALL:
        return None
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise click.BadParameter(f"{value!r} is no number of messages, and not {_ALL!r}")
    return int(value)


@click.command(
    "tail",
    short_help="Show the last messages, and new ones as they come.",
    epilog="\b\nExamples:"
    "\n  reput tail /data/store --topic orders --tag 'created || cancelled' --follow"
    "\n  reput tail /data/store --lines all --format jsonl > messages.jsonl",
)
@store_argument
@click.option("--topic", metavar="T", help="Messages of this topic only.")
@click.option("--queue-id", type=int, metavar="N", help="Of the queues with this number only.")
@click.option("--key", metavar="K", help="With this key, or unique key, only.")
@click.option("--tag", "tags", metavar="EXPR", help="With one of these tags only: 'a || b'.")
@click.option("--follow", "-f", is_flag=True, help="Go on with new messages, until interrupted.")
@click.option(
    "--lines",
    "-n",
    default="10",
    show_default=True,
    callback=_lines,
    metavar="N",
    help="How many of those there are to begin with; 'all' for all, oldest first.",
)
@messages_format_option
@with_config_options
@index_option
def command(
    store: str,
    topic: str | None,
    queue_id: int | None,
    key: str | None,
    tags: str | None,
    follow: bool,
    lines: int | None,
    layout: str,
    **opening: Any,
) -> int:
    """Show the last messages of STORE in the order of its CommitLog; with --follow new ones, too.

    Nothing is locked: a broker or another process may be writing. A message shows as soon as it is in
    the CommitLog, whether it is in its ConsumeQueue yet or not. What is asked for by topic, key or tag
    leaves out messages of transactions that are open or were rolled back.

    With --format jsonl each line is what `reput put` takes.

    Exits with 1 when there was no message, with 3 when something could not be read, with 130 when
    --follow was interrupted.
    """
    from reput.query.pull import wanted_tags
    from reput.query.tail import LogTail, TailFilter

    if lines == 0 and not follow:
        raise UsageError("--lines 0 without --follow shows nothing")
    wanted = TailFilter(topic, queue_id, key, frozenset(wanted_tags(tags)))
    show = _printer(layout)
    with open_from(store, **opening) as opened:
        tail = LogTail(opened, wanted)
        first = tail.new(to_the_end=not follow) if lines is None else tail.last(lines)
        count = _show(first, show)
        is_damaged = _told_damage(tail)
        while follow:
            if not _show(tail.new(), show):
                _pause()
            _told_damage(tail)
    if is_damaged:
        return DAMAGED
    return FOUND if count else NOT_FOUND


def _printer(layout: str) -> _Printer:
    if layout == "jsonl":
        return print_jsonl
    if layout == "table":
        return MessageTable(console()).print
    with_header = iter([True])

    def show(messages: Sequence[MessageExt]) -> None:
        print_csv(messages, next(with_header, False))

    return show


def _show(messages: Iterable[MessageExt], show: _Printer) -> int:
    source, count = iter(messages), 0
    while some := list(islice(source, _TOGETHER)):
        show(some)
        count += len(some)
    return count


def _told_damage(tail: LogTail) -> bool:
    """Say what could not be read; whether there was such."""
    lines, tail.damage = list(dict.fromkeys(tail.damage)), []
    for line in lines:
        click.echo(f"reput: {printable(line)}", err=True)
    return bool(lines)


def _pause() -> None:
    """Wait a moment; raises BrokenPipeError when whoever reads has gone, who would wait for more in vain."""
    watch = select.poll()
    watch.register(sys.stdout.fileno(), 0)  # errors are always told
    if any(what & select.POLLERR for _, what in watch.poll(_POLL_S * 1000)):
        raise BrokenPipeError
