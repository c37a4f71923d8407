"""Define the command `reput tail`."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import click

from reput import core
from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.cli.options import (
    GivenStores,
    archived_stores_argument,
    check_window,
    message_options,
    open_from,
    reader_options,
    refuse_a_message,
    time_window_options,
    topic_option,
)
from reput.cli.output import advise_on_topic, pause, say_waiting, warn
from reput.cli.query_view import record_printer
from reput.core import wanted_tags
from reput.engine import messages as engine_messages
from reput.engine.messages import LogTail, TailFilter
from reput.engine.stores import wait_for_log
from reput.errors import UsageError
from reput.format.java_string import decimal_number

_ALL = "all"


def _lines(ctx: click.Context, param: click.Parameter, value: str) -> int | None:
    """Convert the value of --lines: a number of messages, or None for all."""
    if value == _ALL:
        return None
    if (count := decimal_number(value, 9)) is None:
        raise click.BadParameter(f"{value!r} is neither a number of messages nor {_ALL!r}")
    return count


@click.command(
    "tail",
    epilog="\b\nExamples:"
    "\n  reput tail /data/store --topic orders --tag 'created || cancelled' --follow"
    "\n  reput tail /data/store --lines all --format jsonl > messages.jsonl"
    "\n  reput tail --stores fleet.toml --begin '10 minutes ago' --lines all",
)
@archived_stores_argument
@topic_option("Only messages of this topic.")
@click.option(
    "--queue-id",
    type=click.IntRange(min=0),
    metavar="N",
    help="Only messages of queues with this id.",
)
@click.option(
    "--key",
    metavar="K",
    help="Only messages with this key or unique key; an id in upper or lower case.",
)
@click.option(
    "--tag", "tags", metavar="EXPR", help="Only messages with one of these tags: 'a || b'."
)
@time_window_options
@click.option(
    "--follow", "-f", is_flag=True, help="Print new messages as they arrive, until interrupted."
)
@click.option(
    "--lines",
    "-n",
    default="10",
    show_default=True,
    callback=_lines,
    metavar="N",
    help="Number of existing messages to print first; 'all' for all, oldest first.",
)
@message_options
@reader_options
def command(
    targets: GivenStores,
    topic: str | None,
    queue_id: int | None,
    key: str | None,
    tags: str | None,
    begin: int | None,
    end: int | None,
    follow: bool,
    lines: int | None,
    layout: str,
    csv_safe: bool,
    **opening: Any,
) -> int:
    """Print the last messages of STORE in the order of its CommitLog, and with --follow new ones.

    STORE is not locked, so a broker may be writing. A message is printed as soon as it is in the CommitLog, even if its
    ConsumeQueue has no entry yet. With --topic, --queue-id, --key or --tag, messages of open or rolled-back
    transactions are excluded.

    `reput put` accepts the lines that --format jsonl prints.

    Messages of several STOREs, or of a fleet file, are printed in order of their store time, with a column for the
    store. If a store cannot be read, the answer is incomplete.

    If there is no CommitLog yet, --follow waits for its first message.

    {times}

    Exits with 1 if there was no message, with 3 if something could not be read, with 130 if --follow
    was interrupted.
    """
    check_window(begin, end)
    refuse_a_message(targets, "reput tail {store} --key {text}, or --topic {text}")
    if lines == 0 and not follow:
        raise UsageError("--lines 0 without --follow would print nothing; add --follow")
    if end is not None and follow:
        raise UsageError(
            "--end: cannot be combined with --follow, which prints messages until it is interrupted"
        )
    predicate = TailFilter(topic, queue_id, key, frozenset(wanted_tags(tags)), begin, end)
    store = targets.single
    if store is None:
        from reput.cli.tail_stores import tail_stores

        return tail_stores(targets.named(), predicate, lines, layout, csv_safe, follow, opening)
    show = record_printer(layout, csv_safe)
    if follow:
        wait_for_log(store, pause, partial(say_waiting, store))
    with open_from(store, **opening) as reader:
        tail = LogTail(reader, predicate)
        if lines is None and layout == "jsonl" and not follow and predicate == TailFilter():
            count = _print_log(tail, reader)
        else:
            existing = partial(tail.new_records, to_the_end=not follow)
            if lines is None and predicate.has_window and not follow:
                # Set a maximum number of lines, although all messages of the time window are wanted: with a maximum,
                # the messages are found through the ConsumeQueues, and the log is not read from its beginning.
                lines = sys.maxsize
            records = existing() if lines is None else tail.last_records(lines)
            count = show(records)
        is_damaged = _told_damage(tail)
        if not count:
            advise_on_topic(reader, topic)
        while follow:
            if not show(tail.new_records()):
                pause()
            _told_damage(tail)
    if is_damaged:
        return DAMAGED
    return FOUND if count else NOT_FOUND


def _print_log(tail: LogTail, store: core.MessageStore) -> int:
    count = 0
    for lines in engine_messages.lines_of_all(tail, store.commit_log):
        click.echo(bytes(lines.data), nl=False)
        count += lines.messages
    return count


def _told_damage(tail: LogTail) -> bool:
    """Print the new damage; return whether there was any."""
    findings, tail.damage = list(dict.fromkeys(tail.damage)), []
    warn(*findings)
    return bool(findings)
